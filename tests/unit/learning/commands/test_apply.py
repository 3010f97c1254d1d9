from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.cli.options import UnusableFile
from deploy.clients.metadata import MetadataUnavailable, PlanStatus
from diem.errors import DiemError
from diem.process.clock import ManualClock
from learning.commands import apply
from learning.commands.apply import (
    APPLYING,
    ROLLING_BACK,
    MigrationKind,
    MigrationMonitor,
    read_plan,
    select_to_apply,
    select_to_roll_back,
    submit_once,
)
from metadata.plans.plan import Plan, encode
from tests.unit.deploy.scripted_service import service, status, steps

OLD = status("p-1", epoch_of_plan=1)
FITS = status("p-2")
LATER = status("p-3")


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ([OLD, FITS, LATER], "p-3"),
        ([FITS, OLD], "p-2"),
        ([status("p-1", state="moving"), LATER], "p-1"),
    ],
)
async def test_plan_to_apply_is_the_one_in_progress_else_the_latest_current_one(
    there: list[dict[str, Any]], chosen: str
) -> None:
    assert (await select_to_apply(service(steps({"plans": there})), None)).id == chosen


@pytest.mark.parametrize("there", [[], [OLD], [status(state="applied")]])
async def test_without_a_current_plan_there_is_nothing_to_apply(there: list[dict[str, Any]]) -> None:
    with pytest.raises(DiemError, match="make one with `diem plan`"):
        await select_to_apply(service(steps({"plans": there})), None)


@pytest.mark.parametrize("state", ["preparing", "moving", "retiring", "applied", "rolling_back", "rolled_back"])
async def test_plan_to_roll_back_is_the_last_applied_one(state: str) -> None:
    there = {"plans": [status("p-1", state=state), FITS]}
    assert (await select_to_roll_back(service(steps(there)), None)).id == "p-1"
    assert (await select_to_roll_back(service(steps(status("p-1", state=state))), "p-1")).id == "p-1"


async def test_plan_that_was_not_applied_cannot_be_rolled_back() -> None:
    with pytest.raises(DiemError, match="nothing to roll back"):
        await select_to_roll_back(service(steps({"plans": [FITS]})), None)
    with pytest.raises(DiemError, match="p-2 cannot be rolled back: it is not the plan applied last"):
        await select_to_roll_back(service(steps(FITS)), "p-2")


async def test_plan_of_a_file_is_submitted_only_if_the_service_lacks_it(tmp_path: Path) -> None:
    plan = Plan(epoch=3, partitions=8, homes={"/a": 1}, created="2026-01-02T03:04:05Z")
    file = tmp_path / "plan.json"
    file.write_bytes(encode(plan))
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(404, json={"detail": "there is none"})
        bodies.append(request.content)
        return httpx.Response(201, json=status(plan.id))

    assert (await submit_once(service(answer), *read_plan(file))).id == plan.id
    assert bodies == [encode(plan)]
    assert (await submit_once(service(steps(status(plan.id))), *read_plan(file))).id == plan.id
    assert len(bodies) == 1


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_file_without_a_plan_is_rejected(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UnusableFile, match=r"plan\.json"):
        read_plan(file)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "POLL_INTERVAL_S", 0.0)


def going(state: str, phase: str, epoch: int, waiting_for: str | None = None) -> dict[str, Any]:
    return status(state=state, phase=phase, epoch=epoch, moves=2, waiting_for=waiting_for)


async def monitored(
    kind: MigrationKind, begun: dict[str, Any], *seen: dict[str, Any] | None
) -> tuple[PlanStatus, list[str]]:
    shown: dict[str, str] = {}

    def show(key: str, text: str) -> None:
        shown.setdefault(key, text)

    monitor = MigrationMonitor(service(steps(*seen)), kind, show, ManualClock())
    return await monitor.wait(PlanStatus.of(begun)), list(shown.values())


async def test_every_phase_is_shown_once_whatever_the_countdown() -> None:
    ended, shown = await monitored(
        APPLYING,
        status(),
        status(),
        going("preparing", "prepare", 4, "the publisher"),
        going("moving", "move", 5, "clients to move: 9 s"),
        going("moving", "move", 5, "clients to move: 8 s"),
        going("retiring", "retire", 6, "the publisher"),
        going("applied", "stable", 7),
    )
    assert ended.state == "applied"
    assert shown == [
        "prepare, 2 endpoints; waiting for the publisher (0 s)",
        "move, 2 endpoints; waiting for clients to move: 9 s (0 s)",
        "retire, 2 endpoints; waiting for the publisher (0 s)",
    ]


async def test_monitor_waits_for_an_unavailable_service() -> None:
    ended, shown = await monitored(
        ROLLING_BACK,
        going("applied", "stable", 7),
        None,
        None,
        status(phase=None, epoch=None),  # it is back, and has not read the map
        going("rolling_back", "move", 9),
        going("rolled_back", "stable", 11),
    )
    assert ended.state == "rolled_back"
    assert shown == [
        "the metadata service does not answer: connection refused; continuing when it is back (0 s)",
        "back: move, 2 endpoints (0 s)",
    ]


async def test_monitor_gives_up_on_a_service_that_stays_unavailable() -> None:
    clock = ManualClock()
    shown: list[str] = []

    def show(_key: str, text: str) -> None:
        shown.append(text)
        clock.advance(100)

    with pytest.raises(MetadataUnavailable, match="the migration continues when it is back"):
        monitor = MigrationMonitor(service(steps(None)), APPLYING, show, clock)
        await monitor.wait(PlanStatus.of(status(state="moving")))
    assert shown[-1].endswith("(600 s)")


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (APPLYING, going("rolling_back", "move", 6)),
        (APPLYING, going("ready", "stable", 9)),
        (ROLLING_BACK, going("preparing", "prepare", 9)),
    ],
)
async def test_migration_changed_by_another_command_is_an_error(kind: MigrationKind, seen: dict[str, Any]) -> None:
    with pytest.raises(DiemError, match=f"p-1 is {seen['state'].replace('_', ' ')} at epoch {seen['epoch']}"):
        await monitored(kind, going(min(kind.in_progress), "move", 5), seen)
