from typing import Any

import pytest

from deploy.plans import follow
from deploy.plans.follow import APPLYING, ROLLING_BACK, Course, PlanFollower, PlanSuperseded
from deploy.plans.service import MetadataUnavailable, PlanStatus
from diem.process.clock import ManualClock
from tests.unit.deploy.plans.scripted import service, status, steps


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "EVERY_S", 0.0)


def going(state: str, phase: str, epoch: int, waiting_for: str | None = None) -> dict[str, Any]:
    return status(state=state, phase=phase, epoch=epoch, moves=2, waiting_for=waiting_for)


async def followed(way: Course, begun: dict[str, Any], *seen: dict[str, Any] | None) -> tuple[PlanStatus, list[str]]:
    told: dict[str, str] = {}

    def tell(key: str, text: str) -> None:
        told.setdefault(key, text)

    follower = PlanFollower(service(steps(*seen)), way, tell, ManualClock())
    return await follower.follow(PlanStatus.of(begun)), list(told.values())


async def test_every_phase_is_told_once_whatever_the_countdown_says() -> None:
    ended, told = await followed(
        APPLYING,
        status(),
        status(),
        going("preparing", "prepare", 4, "the publisher"),
        going("moving", "move", 5, "clients to go over: 9 s"),
        going("moving", "move", 5, "clients to go over: 8 s"),
        going("retiring", "retire", 6, "the publisher"),
        going("applied", "stable", 7),
    )
    assert ended.state == "applied"
    assert told == [
        "prepare, 2 endpoints; waits for the publisher (0 s)",
        "move, 2 endpoints; waits for clients to go over: 9 s (0 s)",
        "retire, 2 endpoints; waits for the publisher (0 s)",
    ]


async def test_service_that_is_away_is_waited_for() -> None:
    ended, told = await followed(
        ROLLING_BACK,
        going("applied", "stable", 7),
        None,
        None,
        status(phase=None, epoch=None),  # it is back, and has not read the map
        going("rolling_back", "move", 9),
        going("rolled_back", "stable", 11),
    )
    assert ended.state == "rolled_back"
    assert told == [
        "the metadata service does not answer: connection refused; going on when it is back (0 s)",
        "back: move, 2 endpoints (0 s)",
    ]


async def test_service_that_stays_away_ends_the_command_but_not_the_move() -> None:
    clock = ManualClock()
    told: list[str] = []

    def tell(_key: str, text: str) -> None:
        told.append(text)
        clock.advance(100)

    with pytest.raises(MetadataUnavailable, match="the move goes on when it is back"):
        await PlanFollower(service(steps(None)), APPLYING, tell, clock).follow(PlanStatus.of(status(state="moving")))
    assert told[-1].endswith("(600 s)")


@pytest.mark.parametrize(
    ("way", "seen"),
    [
        (APPLYING, going("rolling_back", "move", 6)),
        (APPLYING, going("ready", "stable", 9)),
        (ROLLING_BACK, going("preparing", "prepare", 9)),
    ],
)
async def test_what_somebody_else_did_meanwhile_is_said(way: Course, seen: dict[str, Any]) -> None:
    with pytest.raises(PlanSuperseded, match=f"p-1 is {seen['state'].replace('_', ' ')} at epoch {seen['epoch']}"):
        await followed(way, going(min(way.doing), "move", 5), seen)
