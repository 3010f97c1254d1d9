"""How long the client waits for what (docs/protocol.md section 1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; the defaults are the protocol's, tests have shorter ones."""

    base: float = 0.5
    """The first window of a random delay; it doubles with every failure."""
    cap: float = 30.0
    stable_after: float = 60.0
    """An open connection of this age begins its back-off anew."""
    held_after: float = 10.0
    """An open connection of this age has ended the outage before it."""
    silent_after: float = 60.0
    doubt_after: float = 5.0
    """A server that is not live is doubted after this and up to as much again, and then once more."""
    empty_after: float = 5.0
    """A connection that nothing needs any more is kept this long."""
    stays_after: float = 1.0
    """What stayed this long at a server has arrived: its hops are forgotten."""
    named_cap: float = 5.0
    """The longest window for a server that the metadata service names: it is expected back."""
    soon: float = 0.5
    """A server that is named while it waits for its next attempt is dialled within this."""
    patience: float = 2.0
    """A dial waits this long for the metadata service, then goes where it went before."""
