import json
import time
from pathlib import Path

import pytest

from deploy.plans.asked import PlanRequest
from deploy.plans.planning import PlanFileUnwritable, Planning
from deploy.plans.system import System
from deploy.terminal import Terminal, plain_console
from deploy.topology import Mode
from metadata.plans.plan import decode
from tests.support.traffic import MINUTE, Life, write
from tests.unit.deploy.plans.recorded import recorded
from tests.unit.deploy.plans.scripted import running

SYSTEM = System(("http://m",), Mode.Z_CLIENT)


def planned(traffic: Path, *, quiet: bool = False, movement: float | None = None) -> Planning:
    asked = PlanRequest(recorded(traffic), window=600_000, movement=movement)
    planning = Planning(asked, Terminal(quiet=quiet), plain_console())
    planning.learn()
    planning.make(SYSTEM, running())
    return planning


def test_what_pays_is_told_with_the_next_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path)
    file = tmp_path / "made" / "plan.json"
    planning.write(file)
    plan = decode(file.read_bytes())
    planning.say(file, submitted=True)
    lines = capsys.readouterr().out.splitlines()
    assert "events of 80 clients, " in lines[0]
    assert lines[1] == "16 endpoints, 8 subscription sets; 2 servers now, planned for 2"
    assert any(line.startswith("It pays: ") for line in lines)
    assert lines[-2:] == [f"{plan.id} is submitted, and in {file}", f"next: diem apply {plan.id}"]
    planning.say(file, submitted=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"next: diem apply {file}"


def test_what_does_not_pay_is_told_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path, movement=0.0)
    planning.say(None, submitted=False)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("It does not pay: ") for line in lines)
    assert lines[-1].startswith("no plan was submitted: everything may stay where it is")


def test_for_programs_it_is_one_object_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planning = planned(tmp_path, quiet=True)
    assert capsys.readouterr().out == ""
    found = json.loads(json.dumps(planning.as_json(None, submitted=False)))
    assert (found["plan"], found["pays"], found["submitted"], found["file"]) == (None, True, False, None)
    assert (found["clients"], found["servers"], found["report"]["mode"]) == (80, [2], "z-client")
    assert planning.as_json(tmp_path, submitted=True)["plan"].startswith("p-")


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanFileUnwritable, match="cannot be written: "):
        planned(tmp_path).write(tmp_path)


def test_processes_of_one_name_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin = Life("websocket-1", 0xA2, 0, 0)
    now = time.time_ns() // 1_000_000
    write(tmp_path / "in", "twin.jsonl", [twin.counts(now - n * MINUTE, now - (n - 1) * MINUTE) for n in (4, 3, 2)])
    made = planned(tmp_path)
    assert "1 name was had by two processes at once" in capsys.readouterr().err
    assert made.as_json(None, submitted=False)["twins"] == 1
