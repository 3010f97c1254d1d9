"""Records what a client of passthrough mode is subscribed to: no hub of this process registers it."""

from collections.abc import Iterable

from diem.fanout.session import Session


def joined(session: Session, names: Iterable[str]) -> None:
    """The client was answered for these; where nothing is recorded, nothing is kept."""
    if session.visit is not None:
        named = [name.encode() for name in names]
        if new := [endpoint for endpoint in named if endpoint not in session.endpoints]:
            session.endpoints.update(dict.fromkeys(new))
            session.visit.subscribed(new)


def left(session: Session, names: Iterable[str]) -> None:
    """The client does not want these any more."""
    if session.visit is not None:
        named = dict.fromkeys(name.encode(errors="replace") for name in names)
        if held := [endpoint for endpoint in named if endpoint in session.endpoints]:
            for endpoint in held:
                del session.endpoints[endpoint]
            session.visit.unsubscribed(held)
