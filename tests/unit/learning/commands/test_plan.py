"""Exit codes of the commands for plans."""

import json
from pathlib import Path

import pytest

from deploy.cli.options import EXIT_INTERRUPTED, EXIT_NOTHING
from diem.process import lifecycle
from learning.commands import plan
from learning.commands.autoplan import CommandResult, Policy, run_round
from learning.planning import context
from learning.planning.context import RunningSystem
from tests.support.brief_search import brief_search
from tests.unit.deploy.scripted_service import running
from tests.unit.learning.commands.conftest import Run
from tests.unit.learning.planning.recorded_traffic import recorded


def test_interrupted_command_does_not_succeed(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(context, "run_interactive", lambda _work: lifecycle.EXIT_OK)
    assert run("plan", "--json")[:2] == (EXIT_INTERRUPTED, "")


def test_plan_without_traffic_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(plan, "run_step", lambda _work: (RunningSystem(("http://one:1",)), running()))
    code, out, err = run("plan", "--json")
    assert (code, out) == (EXIT_NOTHING, "")
    assert err.startswith("diem: there is nothing to learn from in ")


@pytest.mark.parametrize(("capacity", "code"), [("40", lifecycle.EXIT_OK), ("39", lifecycle.EXIT_FAILED)])
async def test_autoplan_fails_a_round_with_more_clients_than_a_server_accepts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Run, capacity: str, code: int
) -> None:
    monkeypatch.setattr(plan, "run_step", lambda _work: (RunningSystem(("http://one:1",)), running()))
    codes, applied = [], []

    async def step(*arguments: str) -> CommandResult:
        if arguments[0] == "apply":
            applied.append(arguments)
            return CommandResult(0, "", "")
        with brief_search():
            result = CommandResult(*run(*arguments))
        codes.append(result.code)
        return result

    options = ["--traffic", str(recorded(tmp_path)), "--no-spark", "--window", "10m", "--capacity", capacity]
    decision = await run_round(step, Policy(["--state-dir", str(tmp_path)], None, options))
    assert (codes, len(applied)) == ([code], 1 - code)
    assert decision.what == ("failed" if code else "applied")
    if code:
        assert decision.why.startswith("diem plan: server ")
        assert " of 2 would have 40 clients of 39: plan without --movement, " in decision.why


@pytest.mark.parametrize("plan", ["planned/p-1", "p-1.json"])
def test_missing_plan_file_is_not_taken_for_a_plan_name(run: Run, plan: str) -> None:
    expected = f"diem: {plan}: No such file or directory\n"
    assert run("apply", plan) == (lifecycle.EXIT_CONFIGURATION, "", expected)


def test_traffic_of_others_is_planned_without_a_system(tmp_path: Path, run: Run) -> None:
    lines = [f"u{client},/{client % 4}/{which},0,600" for client in range(40) for which in "ab"]
    (file := tmp_path / "use.csv").write_text("\n".join(["who,endpoint,start,end", *lines, "u1"]))
    options = ("--from-csv", str(file), "--mapping", "client=who", "--state-dir", str(tmp_path))
    assert run("plan", *options)[0] == lifecycle.EXIT_FAILED, "no number of servers"
    with brief_search():
        code, out, err = run("plan", *options, "--servers", "2", "--anyway")
    assert (code, err) == (lifecycle.EXIT_OK, "1 of 81 lines were skipped: no client or endpoint (1)\n")
    assert out.splitlines()[0].startswith("80 events of 40 clients, 1970-01-01T00:00:00.000Z to ")
    assert "8 endpoints, 4 subscription sets; planned for 2" in out
    (made,) = (tmp_path / "planned").iterdir()
    assert out.splitlines()[-1].endswith(f" is in {made}: the partition of each endpoint is in `homes`")
    assert sorted(json.loads(made.read_bytes())["homes"]) == [f"/{pair}/{which}" for pair in range(4) for which in "ab"]


def test_recorded_traffic_is_planned_where_no_system_runs(tmp_path: Path, run: Run) -> None:
    options = ("--traffic", str(recorded(tmp_path / "elsewhere")), "--state-dir", str(tmp_path), "--anyway")
    for more in (("--servers", "2"), ("--no-submit",)):
        code, _, err = run("plan", *options, *more)
        assert code == lifecycle.EXIT_FAILED
        assert f"diem is not up in {tmp_path}" in err
    with brief_search():
        code, out, _ = run("plan", *options, "--servers", "2", "--no-submit")
    assert code == lifecycle.EXIT_OK
    (made,) = (tmp_path / "planned").iterdir()
    assert out.splitlines()[-1].endswith(f" is in {made}: the partition of each endpoint is in `homes`")


@pytest.mark.parametrize("options", [("--mapping", "client=a"), ("--from-csv", "a", "--mapping", "who=a")])
def test_a_mapping_names_columns_of_a_file(run: Run, options: tuple[str, ...]) -> None:
    code, _, err = run("plan", *options)
    assert code == lifecycle.EXIT_CONFIGURATION
    assert "--mapping" in err
