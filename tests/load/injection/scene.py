"""What a fault acts on: the running system, the writer, the links to cut, and the results of the run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.load.bench import Goal
from tests.load.brokers import Brokers
from tests.load.client_process import ClientProcess
from tests.load.injection.keep_down import KeepDown
from tests.load.relay import Relay
from tests.load.system import System
from tests.load.trace import Trace
from tests.load.writes import Writer
from tests.oracle.history import Fault, History


@dataclass(frozen=True)
class Scene:
    """The parts of a run that faults use."""

    system: System
    writer: Writer
    brokers: Brokers
    clients: ClientProcess
    relay: Relay
    """In front of the feed of the first WebSocket server, if a fault of the run needs it."""
    upstream: Relay
    """In front of the first WebSocket server itself, if a fault of the run needs it."""
    seed: int = 0
    trace: Trace | None = None
    """What the run repeats."""
    quick: bool = False
    """Shorten long faults."""
    kept_down: dict[str, KeepDown] = field(default_factory=dict)
    """Processes that are kept down from one fault to a later one."""
    goals: list[Goal] = field(default_factory=list)
    """Results of the faults, besides those of the oracle."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Figures of the faults for the bench file."""
    later: list[Callable[[History], Goal]] = field(default_factory=list)
    """Goals that are computed from the recorded history."""


Inject = Callable[[Scene], Awaitable[Fault]]
"""Inject a fault; return when the affected part is back in service."""
