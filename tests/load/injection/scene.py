"""What a fault has to do with: the running system, the writes, the link to cut, and what is found out about them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.load.bench import Goal
from tests.load.brokers import Brokers
from tests.load.relay import Relay
from tests.load.system import System
from tests.load.writes import Writer
from tests.oracle.history import Fault, History


@dataclass(frozen=True)
class Scene:
    """Everything of a run that a fault may need."""

    system: System
    writer: Writer
    brokers: Brokers
    relay: Relay
    """In front of the feed of the first WebSocket server, if a fault of the run needs it."""
    quick: bool = False
    """Faults that last are shorter."""
    goals: list[Goal] = field(default_factory=list)
    """What the faults have shown, besides what the oracle sees."""
    later: list[Callable[[History], Goal]] = field(default_factory=list)
    """What can be seen only in the recorded history."""


Inject = Callable[[Scene], Awaitable[Fault]]
"""Injects a fault; returns when what it hit is back in service."""
