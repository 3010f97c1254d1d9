"""What a fault has to do with: the running system, the writes, the link to cut, and what is found out about them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.load.bench import Goal
from tests.load.brokers import Brokers
from tests.load.crowd import Crowd
from tests.load.injection.held import Hold
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
    crowd: Crowd
    relay: Relay
    """In front of the feed of the first WebSocket server, if a fault of the run needs it."""
    upstream: Relay
    """In front of the first WebSocket server itself, if a fault of the run needs it."""
    seed: int = 0
    quick: bool = False
    """Faults that last are shorter."""
    held: dict[str, Hold] = field(default_factory=dict)
    """What is kept down from one fault to the next."""
    goals: list[Goal] = field(default_factory=list)
    """What the faults have shown, besides what the oracle sees."""
    figures: dict[str, Any] = field(default_factory=dict)
    """What a bench file is to have of them."""
    later: list[Callable[[History], Goal]] = field(default_factory=list)
    """What can be seen only in the recorded history."""


Inject = Callable[[Scene], Awaitable[Fault]]
"""Injects a fault; returns when what it hit is back in service."""
