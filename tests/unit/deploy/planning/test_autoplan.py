import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.options import EXIT_NOTHING
from deploy.planning import autoplan
from deploy.planning.autoplan import (
    AlreadyPlanning,
    CommandResult,
    Decision,
    Interrupted,
    Journal,
    Policy,
    SubprocessRunner,
    is_old,
    pause,
    run_round,
)
from deploy.system.state_dir import BadStateDir
from tests.support.patience import PATIENCE_S

POLICY = Policy(where=["--state-dir", "/s"], pipeline=["--window", "1h"], plan=["--movement", "1%"])


def planned(*, pays: bool, minutes_ago: int = 0, twins: int = 0) -> str:
    end = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    figures = {"fan_out": 1.5, "connections": 3.0, "max_over_mean_load": 1.01, "fan_out_p99": 2}
    return json.dumps(
        {
            "plan": "p-1" if pays else None,
            "file": "/s/plan.json" if pays else None,
            "pays": pays,
            "why": "saves much" if pays else "nothing better was found",
            "window": {"from": (end - timedelta(hours=1)).isoformat(), "to": end.isoformat()},
            "twins": twins,
            "report": {
                "servers": {"4": {"current": figures, "plan": figures, "lpt": figures}},
                "moves": {"endpoints": 2, "subscriptions": 0.004},
                "saves_us_per_s": 5.0,
            },
        }
    )


class Scripted:
    """Commands that end as a test says; those that are not mentioned end well, and say nothing."""

    def __init__(self, **ends: CommandResult) -> None:
        self.ends = ends
        self.ran: list[str] = []

    async def __call__(self, *arguments: str) -> CommandResult:
        self.ran.append(" ".join(arguments))
        return self.ends.get(arguments[0], CommandResult(0, "", ""))


async def test_plan_that_pays_is_applied() -> None:
    run = Scripted(plan=CommandResult(0, "starting Spark\n" + planned(pays=True) + "\n", ""))
    decision = await run_round(run, POLICY)
    assert run.ran == [
        "pipeline run --window 1h",
        "plan --json --no-submit --movement 1% --state-dir /s",
        "apply /s/plan.json --yes --state-dir /s",
    ]
    assert (decision.what, decision.plan) == ("applied", "p-1")
    assert decision.line() == (
        "applied p-1: saves much (S = 4: fan-out 1.50 -> 1.50, load 1.010 -> 1.010; 0.4 % of the subscriptions)"
    )


async def test_plan_that_does_not_pay_changes_nothing_and_says_why() -> None:
    run = Scripted(plan=CommandResult(0, planned(pays=False), ""))
    decision = await run_round(run, POLICY)
    assert len(run.ran) == 2
    assert decision.line().startswith("nothing: nothing better was found (S = 4")


async def test_processes_of_one_name_are_told_with_the_decision() -> None:
    decision = await run_round(Scripted(plan=CommandResult(0, planned(pays=False, twins=1), "")), POLICY)
    assert "1 name was had by two processes at once" in decision.line()
    assert decision.figures is not None
    assert decision.figures["twins"] == 1


async def test_dry_run_submits_and_applies_nothing() -> None:
    run = Scripted(plan=CommandResult(0, planned(pays=True), ""))
    decision = await run_round(run, Policy([], None, [], dry_run=True))
    assert run.ran == ["plan --json --no-submit"]
    assert decision.what == "would apply"


@pytest.mark.parametrize(("minutes", "what"), [(55, "applied"), (65, "nothing")])
async def test_what_was_learnt_from_traffic_of_long_ago_is_not_applied(minutes: int, what: str) -> None:
    run = Scripted(plan=CommandResult(0, planned(pays=True, minutes_ago=minutes), ""))
    decision = await run_round(run, POLICY)
    assert (decision.what, len(run.ran)) == (what, 3 if what == "applied" else 2)
    if what == "nothing":
        assert decision.line().startswith("nothing: no traffic was recorded after 20")


def test_short_windows_may_be_as_old_as_recording_takes() -> None:
    window = {"from": "2026-01-01T00:00:00.000Z", "to": "2026-01-01T00:00:30.000Z"}
    end = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert [is_old(window, end + timedelta(minutes=minutes)) for minutes in (9, 11)] == [False, True]


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (
            {"pipeline": CommandResult(1, "", "a warning\ndiem: the topic is away\n")},
            "diem pipeline: the topic is away",
        ),
        ({"plan": CommandResult(70, "", "")}, "diem plan: exit 70"),
        ({"plan": CommandResult(0, "hello", "")}, "diem plan: it gave no JSON"),
        ({"plan": CommandResult(0, "", "")}, "diem plan: it gave no JSON"),
        (
            {"plan": CommandResult(0, planned(pays=True), ""), "apply": CommandResult(1, "", "diem: it was overtaken")},
            "it was overtaken",
        ),
    ],
)
async def test_step_that_fails_ends_the_round_and_is_told(ends: dict[str, CommandResult], why: str) -> None:
    decision = await run_round(Scripted(**ends), POLICY)
    assert decision.what == "failed"
    assert decision.why.endswith(why)


@pytest.mark.parametrize("command", ["pipeline", "plan"])
async def test_without_traffic_to_learn_from_nothing_is_done_and_nothing_has_failed(command: str) -> None:
    run = Scripted(
        **{command: CommandResult(EXIT_NOTHING, "", "diem: from 10 to 11 no client was subscribed to anything\n")}
    )
    decision = await run_round(run, POLICY)
    assert decision == Decision("nothing", f"diem {command}: from 10 to 11 no client was subscribed to anything")
    assert not any(each.startswith("apply") for each in run.ran)


async def test_pause_ends_when_it_is_to_stop() -> None:
    stopping = asyncio.Event()
    await pause(stopping, 0.0)
    stopping.set()
    async with asyncio.timeout(PATIENCE_S):
        await pause(stopping, 1000.0)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoplan, "pdeathsig_command", lambda argv: argv)
    monkeypatch.setattr(autoplan, "command", lambda: (sys.executable, "-c"))


@pytest.mark.usefixtures("program")
async def test_command_is_run_to_its_end() -> None:
    run = SubprocessRunner(asyncio.Event())
    assert await run("import sys; print(1); sys.stderr.write('two'); sys.exit(3)") == CommandResult(3, "1\n", "two")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("handles", [True, False])
async def test_command_is_interrupted_when_it_is_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handles: bool
) -> None:
    monkeypatch.setattr(autoplan, "TERMINATE_TIMEOUT_S", 20.0 if handles else 0.1)
    begun, interrupted, stopping = tmp_path / "begun", tmp_path / "interrupted", asyncio.Event()
    code = (
        "import pathlib, signal, time\n"
        f"{'' if handles else 'signal.signal(signal.SIGINT, signal.SIG_IGN)'}\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        "try:\n    time.sleep(1000)\n"
        f"except KeyboardInterrupt:\n    pathlib.Path({str(interrupted)!r}).touch()\n"
    )
    running = asyncio.create_task(SubprocessRunner(stopping)(code))
    deadline = time.monotonic() + PATIENCE_S
    while not begun.exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    stopping.set()
    with pytest.raises(Interrupted):
        await running
    assert interrupted.exists() is handles


def test_decisions_are_written_down(tmp_path: Path) -> None:
    said: list[str] = []
    journal = Journal(tmp_path / "state", said.append)
    with journal.lock():
        journal.record(Decision("nothing", "it is even"), 1.26)
        journal.record(Decision("applied", "it pays", "p-1", None), 2.0)
    entries: list[dict[str, Any]] = [json.loads(line) for line in journal.file.read_text().splitlines()]
    assert [(entry["what"], entry["plan"], entry["seconds"]) for entry in entries] == [
        ("nothing", None, 1.3),
        ("applied", "p-1", 2.0),
    ]
    assert [line.split("  ", 1)[1] for line in said] == ["nothing: it is even", "applied p-1: it pays"]


def test_two_loops_of_a_state_directory_are_one_too_many(tmp_path: Path) -> None:
    first, second = Journal(tmp_path, print), Journal(tmp_path, print)
    with first.lock(), pytest.raises(AlreadyPlanning, match=r"autoplan\.lock"), second.lock():
        pass
    with second.lock():
        pass


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadStateDir, match="file"), Journal(tmp_path / "file", print).lock():
        pass
    said: list[str] = []
    Journal(tmp_path / "nowhere", said.append).record(Decision("nothing", "it is even"), 1.0)
    assert "was not written" in said[1]
