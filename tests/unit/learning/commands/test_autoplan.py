import asyncio
import importlib.util
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import commands
from deploy.cli.options import EXIT_NOTHING
from deploy.system.state_dir import BadStateDir, StateDir
from diem.errors import DiemError
from learning.commands import autoplan
from learning.commands.autoplan import (
    CommandResult,
    Decision,
    Interrupted,
    Journal,
    Policy,
    SubprocessRunner,
    is_old,
    learning_of,
    run_round,
)
from tests.support.patience import PATIENCE_S


@pytest.fixture
def spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())


@pytest.mark.usefixtures("spark_is_there")
def test_plans_are_made_from_the_statistics_that_the_round_computes(tmp_path: Path) -> None:
    statistics = tmp_path / "traffic" / "warehouse" / "statistics" / "autoplan-3"
    pipeline, plan = learning_of(StateDir(tmp_path), "2h", None, spark=None, number=3)
    assert pipeline == ["--state-dir", str(tmp_path), "--window", "2h", "--name", "autoplan-3"]
    assert plan == ["--traffic", str(statistics)]


@pytest.mark.usefixtures("spark_is_there")
@pytest.mark.parametrize(("spark", "how"), [(None, []), (True, ["--spark"]), (False, ["--no-spark"])])
def test_named_traffic_is_read_with_the_window(tmp_path: Path, spark: bool | None, how: list[str]) -> None:
    found = learning_of(StateDir(tmp_path), "2h", Path("other"), spark=spark)
    assert found == (None, ["--traffic", "other", "--window", "2h", *how])


def test_without_spark_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert learning_of(StateDir(tmp_path), "2h", None, spark=None) == (None, ["--window", "2h", "--no-spark"])


@pytest.mark.parametrize(
    ("what", "arguments", "left"),
    [
        ("nothing", ["--no-spark"], ["8"]),
        ("nothing", ["--no-spark", "--window", "6h"], ["8", "10"]),
        ("nothing", ["--no-spark", "--keep-days", "11"], ["8", "10"]),
        ("failed", ["--no-spark"], ["8", "10", "12"]),
        ("nothing", ["--no-spark", "--traffic", "other"], ["8", "10", "12"]),
        ("nothing", ["--spark"], ["8", "10", "12"]),
    ],
)
def test_without_spark_files_are_removed_once_no_window_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, arguments: list[str], left: list[str]
) -> None:
    async def decide(*_: object) -> Decision:
        return Decision(what, "as the test says")

    folder = tmp_path / "traffic" / "in"
    folder.mkdir(parents=True)
    for days in (8, 10, 12):
        file = folder / f"{days}.jsonl"
        file.touch()
        at = time.time() - days * 86_400 + 43_200
        os.utime(file, (at, at))
    monkeypatch.setattr(autoplan, "run_round", decide)
    monkeypatch.setattr(sys, "argv", ["diem", "autoplan", "--once", "--state-dir", str(tmp_path), *arguments])
    assert commands.main() == (1 if what == "failed" else 0)
    assert sorted((file.stem for file in folder.iterdir()), key=int) == left


POLICY = Policy(where=["--state-dir", "/s"], pipeline=["--window", "1h"], plan=["--movement", "1%"])


def planned(
    *, pays: bool, minutes_ago: int = 0, twins: int = 0, balances: bool = False, hour: float = 60, **report: Any
) -> str:
    """Return the output of ``diem plan``; a window of ``hour`` minutes ended so many minutes ago."""
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
                "balances": balances,
                **report,
            },
        }
    )


class Scripted:
    """Scripted commands; those without a script succeed without output."""

    def __init__(self, **ends: CommandResult) -> None:
        self.ends = ends
        self.ran: list[str] = []

    async def __call__(self, *arguments: str) -> CommandResult:
        self.ran.append(" ".join(arguments))
        return self.ends.get(arguments[0], CommandResult(0, "", ""))


async def decided(output: str, last: dict[str, Any] | None = None) -> tuple[Decision, list[str]]:
    """Return the decision of a round in which ``diem plan`` has this output, and its commands."""
    run = Scripted(plan=CommandResult(0, output, ""))
    return await run_round(run, POLICY, last), run.ran


def figures_of(decision: Decision) -> dict[str, Any]:
    assert decision.figures is not None
    return decision.figures


async def test_plan_that_pays_is_applied() -> None:
    decision, ran = await decided("starting Spark\n" + planned(pays=True) + "\n")
    assert ran == [
        "pipeline run --window 1h",
        "plan --json --no-submit --movement 1% --state-dir /s",
        "apply /s/plan.json --yes --state-dir /s",
    ]
    assert (decision.what, decision.plan) == ("applied", "p-1")
    assert decision.line() == (
        "applied p-1: saves much (S = 4: fan-out 1.50 -> 1.50, load 1.010 -> 1.010; 0.4 % of the subscriptions)"
    )


async def test_what_holds_a_plan_back_is_part_of_the_decision() -> None:
    obstacle = {"kind": "movement", "text": "the best plan moves 69 %"}
    decision, _ = await decided(planned(pays=False, obstacle=obstacle))
    assert decision.line().startswith("nothing: nothing better was found; the best plan moves 69 % (S = 4")
    assert figures_of(decision)["obstacle"]["kind"] == "movement"


async def test_a_plan_that_balances_its_only_window_waits_for_another() -> None:
    obstacle = {"kind": "movement", "text": "a plan without a budget pays, but moves 69 %"}
    waiting, _ = await decided(planned(pays=True, balances=True, obstacle=obstacle))
    assert waiting.line().startswith(
        "waiting: saves much; to be confirmed by the next window; a plan without a budget pays, but moves 69 % (S = 4"
    )
    applied, _ = await decided(planned(pays=True, balances=True, obstacle=obstacle, windows=1))
    assert applied.line().startswith("applied p-1: saves much; a plan without a budget pays, but moves 69 % (S = 4")


@pytest.mark.parametrize(
    ("hours", "obstacle", "compares"),
    [(None, {}, True), (23, {}, False), (25, {}, True), (1, {"obstacle": {"kind": "movement"}}, True), (-1, {}, True)],
    ids=["never", "today", "yesterday", "held-back", "by a clock that was ahead"],
)
async def test_the_plan_without_a_budget_is_searched_once_a_day_where_the_budget_is_enough(
    hours: int | None, obstacle: dict[str, Any], compares: bool
) -> None:
    at = {} if hours is None else {"compared_at": (datetime.now(UTC) - timedelta(hours=hours)).isoformat()}
    last = {"what": "nothing", "figures": {**at, **obstacle}}
    decision, ran = await decided(planned(pays=False, compared=compares), last)
    assert ("--no-compare" in ran[1]) is not compares
    # The next round knows when it was.
    assert (figures_of(decision)["compared_at"] == at.get("compared_at")) is not compares


async def test_duplicate_process_names_are_reported_with_the_decision() -> None:
    decision, _ = await decided(planned(pays=False, twins=1))
    assert "1 name was had by two processes at once" in decision.line()
    assert figures_of(decision)["twins"] == 1


async def test_dry_run_submits_and_applies_nothing() -> None:
    run = Scripted(plan=CommandResult(0, planned(pays=True), ""))
    decision = await run_round(run, Policy([], None, [], dry_run=True))
    assert run.ran == ["plan --json --no-submit"]
    assert decision.what == "would apply"


@pytest.mark.parametrize(("minutes", "what"), [(55, "applied"), (65, "nothing")])
async def test_plan_from_old_traffic_is_not_applied(minutes: int, what: str) -> None:
    decision, ran = await decided(planned(pays=True, minutes_ago=minutes))
    assert (decision.what, len(ran)) == (what, 3 if what == "applied" else 2)
    if what == "nothing":
        assert decision.line().startswith("nothing: no traffic was recorded after 20")


def test_last_entry_of_a_journal_is_none_without_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path, lambda _: None)
    assert journal.last() is None
    journal.file.write_text("{broken\n")
    assert journal.last() is None


def test_short_windows_count_as_recent_for_ten_minutes() -> None:
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
        ({"plan": CommandResult(0, "hello", "")}, "diem plan: its output is not JSON"),
        ({"plan": CommandResult(0, "", "")}, "diem plan: its output is not JSON"),
        (
            {"plan": CommandResult(0, planned(pays=True), ""), "apply": CommandResult(1, "", "diem: it was overtaken")},
            "it was overtaken",
        ),
    ],
)
async def test_failed_step_ends_the_round_and_is_recorded(ends: dict[str, CommandResult], why: str) -> None:
    decision = await run_round(Scripted(**ends), POLICY)
    assert decision.what == "failed"
    assert decision.why.endswith(why)


@pytest.mark.parametrize("command", ["pipeline", "plan"])
async def test_round_without_traffic_does_nothing_and_is_not_a_failure(command: str) -> None:
    run = Scripted(
        **{command: CommandResult(EXIT_NOTHING, "", "diem: from 10 to 11 no client was subscribed to anything\n")}
    )
    decision = await run_round(run, POLICY)
    assert decision == Decision("nothing", f"diem {command}: from 10 to 11 no client was subscribed to anything")
    assert not any(each.startswith("apply") for each in run.ran)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoplan, "pdeathsig_command", lambda argv: argv)
    monkeypatch.setattr(autoplan, "command", lambda: (sys.executable, "-c"))


@pytest.mark.usefixtures("program")
async def test_command_runs_to_its_end() -> None:
    run = SubprocessRunner(asyncio.Event())
    assert await run("import sys; print(1); sys.stderr.write('two'); sys.exit(3)") == CommandResult(3, "1\n", "two")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("handles", [True, False])
async def test_running_command_is_interrupted_on_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handles: bool
) -> None:
    monkeypatch.setattr(autoplan, "TERMINATE_TIMEOUT_S", 20.0 if handles else 0.1)
    begun, interrupted, stopping = tmp_path / "begun", tmp_path / "interrupted", asyncio.Event()
    code = (
        "import pathlib, signal, time\n"
        f"{'' if handles else 'signal.signal(signal.SIGINT, signal.SIG_IGN)'}\n"
        f"try:\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(1000)\n"
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


def test_decisions_are_recorded_and_printed(tmp_path: Path) -> None:
    lines: list[str] = []
    journal = Journal(tmp_path / "state", lines.append)
    with journal.lock():
        journal.record(Decision("nothing", "it is even"), 1.26)
        journal.record(Decision("applied", "it pays", "p-1", None), 2.0)
    entries: list[dict[str, Any]] = [json.loads(line) for line in journal.file.read_text().splitlines()]
    assert [(entry["what"], entry["plan"], entry["seconds"]) for entry in entries] == [
        ("nothing", None, 1.3),
        ("applied", "p-1", 2.0),
    ]
    assert [line.split("  ", 1)[1] for line in lines] == ["nothing: it is even", "applied p-1: it pays"]


def test_second_loop_of_a_state_directory_is_refused(tmp_path: Path) -> None:
    first, second = Journal(tmp_path, print), Journal(tmp_path, print)
    with first.lock(), pytest.raises(DiemError, match=r"autoplan\.lock"), second.lock():
        pass
    with second.lock():
        pass


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadStateDir, match="file"), Journal(tmp_path / "file", print).lock():
        pass
    lines: list[str] = []
    Journal(tmp_path / "nowhere", lines.append).record(Decision("nothing", "it is even"), 1.0)
    assert "was not written" in lines[1]


async def test_a_mode_that_costs_much_less_is_part_of_the_decision() -> None:
    decision, _ = await decided(planned(pays=False, cheaper_mode="diem up --mode single would take 50% less CPU"))
    assert decision.line().endswith("; diem up --mode single would take 50% less CPU)")
    assert figures_of(decision)["cheaper_mode"] in decision.line()
