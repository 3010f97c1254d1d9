"""Exit codes of the commands for plans."""

import sys
from pathlib import Path

import pytest

from deploy.cli import commands
from deploy.cli.options import EXIT_INTERRUPTED, EXIT_NOTHING
from diem.process import lifecycle
from learning.commands import plan
from learning.commands.autoplan import CommandResult, Policy, run_round
from learning.planning import context
from learning.planning.context import RunningSystem
from tests.support.brief_search import brief_search
from tests.unit.deploy.scripted_service import running
from tests.unit.learning.planning.recorded_traffic import recorded


def test_interrupted_command_does_not_succeed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context, "run_interactive", lambda _work: lifecycle.EXIT_OK)
    monkeypatch.setattr(sys, "argv", ["diem", "plan", "--json", "--state-dir", str(tmp_path)])
    assert commands.main() == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""


def test_plan_without_traffic_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "run_step", lambda _work: (RunningSystem(("http://one:1",)), running()))
    monkeypatch.setattr(sys, "argv", ["diem", "plan", "--json", "--state-dir", str(tmp_path)])
    assert commands.main() == EXIT_NOTHING
    written = capsys.readouterr()
    assert written.err.startswith("diem: there is nothing to learn from in ")
    assert written.out == ""


@pytest.mark.parametrize(("capacity", "code"), [("40", lifecycle.EXIT_OK), ("39", lifecycle.EXIT_FAILED)])
async def test_autoplan_fails_a_round_with_more_clients_than_a_server_accepts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], capacity: str, code: int
) -> None:
    monkeypatch.setattr(plan, "run_step", lambda _work: (RunningSystem(("http://one:1",)), running()))
    codes, applied = [], []

    async def run(*arguments: str) -> CommandResult:
        if arguments[0] == "apply":
            applied.append(arguments)
            return CommandResult(0, "", "")
        monkeypatch.setattr(sys, "argv", ["diem", *arguments])
        with brief_search():
            codes.append(commands.main())
        return CommandResult(codes[-1], *capsys.readouterr())

    options = ["--traffic", str(recorded(tmp_path)), "--no-spark", "--window", "10m", "--capacity", capacity]
    decision = await run_round(run, Policy(["--state-dir", str(tmp_path)], None, options))
    assert (codes, len(applied)) == ([code], 1 - code)
    assert decision.what == ("failed" if code else "applied")
    if code:
        assert decision.why.startswith("diem plan: server ")
        assert " of 2 would have 40 clients of 39: plan without --movement, " in decision.why


@pytest.mark.parametrize("plan", ["planned/p-1", "p-1.json"])
def test_missing_plan_file_is_not_taken_for_a_plan_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["diem", "apply", plan])
    assert commands.main() == lifecycle.EXIT_CONFIGURATION
    assert capsys.readouterr().err == f"diem: {plan}: No such file or directory\n"
