"""Moves of endpoints to other partitions under load, with kills and rollbacks in each phase."""

from collections.abc import Sequence
from itertools import chain
from random import Random
from time import monotonic
from typing import Final

from diem.protocol.partition_map import Phase
from tests.load.bench import Goal
from tests.load.injection.attempt import ENDS_SECONDS, MOVE_SECONDS, submitted_attempt
from tests.load.injection.scene import Inject, Scene
from tests.oracle.history import Fault, History, Kind

ENDS_KILLED_SECONDS, ENDS_GROWN_SECONDS = MOVE_SECONDS + 20.0, MOVE_SECONDS + 20.0
"""Time within which a plan is applied despite a kill, or with more partitions: groups check for new ones every 5 to
10 s."""
SOON_SECONDS: Final = MOVE_SECONDS - 0.5
"""Allowed lag in a move: a client that misses an update while endpoints move gets it when MOVE ends."""
PHASES: Final = (Phase.PREPARE, Phase.MOVE, Phase.RETIRE)
TARGETS: Final = {
    "metadata": ("metadata",) * 3,
    "data": ("data",) * 3,
    "bridge": ("bridge-1", "bridge-2", "bridge-1"),
    "server": ("websocket-1", "websocket-2", "websocket-1"),
    "proxy": ("proxy-1",) * 3,
}
"""Process to kill in each of the phases."""
FELL_INTO_THE_PHASE: Final = "it fell into the phase"
UNNOTICED: Final = {"metadata", "data"}
"""Processes that carry no updates to clients: no client may notice."""
MOVE: Final = "move-endpoints"
GROWN: Final = "more-partitions"
ROLLED_BACK: Final = "applied-rollback"
HOT_FIRST: Final = 12
"""Number of initially hot endpoints."""
BUSY: Final = 3
"""Endpoints of ten, in the order in which nine have every kind, that change all the time."""


def move(kind: str, *, more: int = 0) -> Inject:
    """Apply a plan, which may need ``more`` partitions. No client may notice."""

    async def inject(scene: Scene) -> Fault:
        async with submitted_attempt(kind, scene, more=more) as attempt:
            start = monotonic()
            moves = await attempt.apply()
            end = await attempt.applied(start, ENDS_GROWN_SECONDS if more else ENDS_SECONDS)
        follows = int(scene.system.mode == "z-client")
        scene.later.extend(
            [
                lambda history: Goal(f"{kind}, connections lost", "", 0, lost(history, start, end)),
                # Proxies follow for their clients.
                lambda history: Goal(f"{kind}, told moved", "", follows, moved(history, start, end), bool(follows)),
            ]
        )
        return Fault(kind, f"{moves} endpoints", start, end, excuses=False)

    return inject


def killed_in(phase: Phase, what: str) -> Inject:
    """Kill a process in a phase of a move; over when its successor is ready. The plan is applied nevertheless."""
    kind, target = f"{phase}-kill-{what}", TARGETS[what][PHASES.index(phase)]

    async def inject(scene: Scene) -> Fault:
        async with submitted_attempt(kind, scene) as attempt:
            began = monotonic()
            async with attempt.held_in(phase):
                start = monotonic()
                killed = await scene.system.kill(target)
                during = (await attempt.plans.map()).head.phase
            scene.goals.append(Goal(f"{kind}, {FELL_INTO_THE_PHASE}", "", 1, float(during is phase), at_least=True))
            back = await scene.system.back(target, killed)
            await attempt.applied(began, ENDS_KILLED_SECONDS)
        return Fault(kind, target, start, back, excuses=what not in UNNOTICED)

    return inject


def rolled_back_in(phase: Phase) -> Inject:
    """Roll a plan back in a phase of its application. No client may notice."""
    kind = f"{phase}-rollback"

    async def inject(scene: Scene) -> Fault:
        async with submitted_attempt(kind, scene) as attempt:
            start = monotonic()
            async with attempt.held_in(phase, 0.5):
                back, moves = monotonic(), await attempt.rollback(0.5)
            end = await attempt.restored(back)
        return Fault(kind, f"{moves} endpoints", start, end, excuses=False)

    return inject


def rolled_back() -> Inject:
    """Roll a plan back after it was applied. No client may notice."""

    async def inject(scene: Scene) -> Fault:
        async with submitted_attempt(ROLLED_BACK, scene) as attempt:
            start = monotonic()
            await attempt.apply(0.5)
            await attempt.applied(start)
            back, moves = monotonic(), await attempt.rollback(0.5)
            end = await attempt.restored(back)
        return Fault(ROLLED_BACK, f"{moves} endpoints", start, end, excuses=False)

    return inject


SMOOTH: Final = {MOVE, ROLLED_BACK} | {f"{phase}-{what}" for phase in PHASES for what in ("rollback", "kill-metadata")}
"""Faults without a failure of a process that carries updates, and without other moves than the plan's."""
REPARTITIONS: Final[dict[str, Inject]] = {
    MOVE: move(MOVE),
    GROWN: move(GROWN, more=2),
    **{f"{phase}-kill-{what}": killed_in(phase, what) for phase in PHASES for what in TARGETS},
    **{f"{phase}-rollback": rolled_back_in(phase) for phase in PHASES},
    ROLLED_BACK: rolled_back(),
}
"""Every fault of a move, by name."""


def repartitions(mode: str, seed: int, *, quick: bool = False) -> tuple[str, ...]:
    """Return the moves of a mode, ordered so that each kind of process is killed seldom; a seeded few if quick.

    Clients that have lost connections within the last minute wait longer before they dial again.
    """
    kinds = [what for what in TARGETS if what != "proxy" or mode == "z-proxy"]
    if not quick:
        each = [[f"{phase}-{what}" for what in (*[f"kill-{kind}" for kind in kinds], "rollback")] for phase in PHASES]
        return (MOVE, *chain.from_iterable(each), ROLLED_BACK, GROWN)
    random = Random(seed)
    phases = [*random.sample(PHASES, 3), *random.choices(PHASES, k=2)]
    kills = [f"{phase}-kill-{what}" for what, phase in zip(random.sample(kinds, len(kinds)), phases, strict=False)]
    return (MOVE, *kills, f"{random.choice(PHASES)}-rollback", ROLLED_BACK)


def settings_of(names: Sequence[str], endpoints: Sequence[str]) -> list[str]:
    """Return the options of ``diem up`` if there are moves among ``names``."""
    if not REPARTITIONS.keys() & set(names):
        return []
    return [word for name in endpoints[:HOT_FIRST] for word in ("--hot", name)]


def variables_of(names: Sequence[str]) -> dict[str, str]:
    """Return the variables of all processes, also in composites, if there are moves among ``names``."""
    return {"DIEM_METADATA_MOVE_SECONDS": str(MOVE_SECONDS)} if REPARTITIONS.keys() & set(names) else {}


def quiet_of(names: Sequence[str], endpoints: Sequence[str]) -> frozenset[str]:
    """Return the endpoints that seldom change, seven of ten of each kind, if there are moves among ``names``."""
    if not REPARTITIONS.keys() & set(names):
        return frozenset()
    return frozenset(name for number, name in enumerate(endpoints) if number % 10 >= BUSY)


def lost(history: History, start: float, end: float) -> int:
    """Count the connections with subscriptions that ended between two times."""
    found = 0
    for events in history.clients.values():
        held: dict[int, set[str]] = {}
        for time, kind, endpoint, _, _, link in events:
            if kind == Kind.SUBSCRIBED:
                held.setdefault(link, set()).add(endpoint)
            elif kind in (Kind.UNSUBSCRIBE, Kind.UNSUBSCRIBED, Kind.MOVED):
                # An unsubscribe names no connection: it applies to all.
                for names in [held.get(link, set())] if kind != Kind.UNSUBSCRIBE else held.values():
                    names.discard(endpoint)
            elif kind == Kind.CLOSE:
                found += bool(held.pop(link, None)) and start <= time <= end
    return found


def moved(history: History, start: float, end: float) -> int:
    """Count the `moved` messages for endpoints between two times."""
    return sum(
        event.kind == Kind.MOVED and event.code == 1 and start <= event.time <= end
        for events in history.clients.values()
        for event in events
    )
