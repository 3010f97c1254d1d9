"""Recommendations: commands that `diem up` accepts, the next mode, and what runs."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.topology import BadTopology, KafkaTopology, Mode, sizes_of
from learning.costs import ROLES
from learning.modes.configuration import MAX_SERVERS, Configuration, Size
from learning.modes.load import Load
from learning.modes.recommend import Requirements, choose
from learning.recommend.advice import Advice, command, remark
from learning.recommend.source import LoadSource
from tests.unit.deploy.topology.topologies import options_of

LOAD = Load(5000, 200, 50)
WORD = re.compile(r"--([a-z]+) (\S+)")


def advice(load: Load = LOAD, needs: Requirements = Requirements(), **source: object) -> Advice:  # noqa: B008
    return Advice(LoadSource(load, "a test", **source), ROLES, needs)  # type: ignore[arg-type]


@pytest.mark.parametrize("survive", [0, 1])
@pytest.mark.parametrize("load", [LOAD, Load(100_000, 1000, 500, batch=50)], ids=["few", "many"])
def test_commands_of_all_modes_that_hold_fit_the_topology(load: Load, survive: int) -> None:
    needs = Requirements(survive=survive)
    holding = [each for each in advice(load, needs).candidates if each.fault is None]
    assert holding
    for each in holding:
        given = dict(WORD.findall(command(each, needs)))
        options = options_of(
            Mode(given["mode"]),
            Path("/tmp/diem"),  # noqa: S108
            servers=int(given.get("servers", 1)),
            clones=int(given["clones"]) if "clones" in given else None,
            kafka=KafkaTopology(brokers=int(given.get("brokers", 1))),
        )
        try:
            found = sizes_of(options)
        except BadTopology as error:
            pytest.fail(f"{command(each, needs)}: {error}")
        assert found.servers == each.size.servers
        assert each.size.all_servers <= MAX_SERVERS


def test_the_next_mode_is_the_choice_for_the_load_that_has_grown_so_much() -> None:
    found = advice()
    assert found.chosen is not None
    assert found.following is not None
    factor, candidate = found.following
    assert factor > 1
    assert candidate == choose(LOAD.grown(factor), ROLES, Requirements())
    assert candidate is None or candidate.configuration is not found.chosen.configuration
    before = choose(LOAD.grown(factor / 1.07), ROLES, Requirements())
    assert before is not None
    assert before.configuration is found.chosen.configuration


def test_growth_is_part_of_the_load_that_must_hold() -> None:
    assert Advice(LoadSource(LOAD, "a test"), ROLES, Requirements(), 3.0).load == LOAD.grown(3)


def test_what_runs_is_compared_with_the_choice() -> None:
    assert advice().cheaper is None
    assert advice(present=Configuration.SINGLE, size=Size()).cheaper is None
    found = advice(present=Configuration.X, size=Size(4)).cheaper
    assert found is not None
    assert re.fullmatch(r"diem up --mode single would take \d+% less CPU than the x that runs", found)


def reply(mode: str, clients: int, *others: str, changes: int = 2400, servers: int = 2) -> dict[str, Any]:
    """Return a reply of ``status`` after two minutes: 200 endpoints, clients with 10 subscriptions."""
    data = {
        "name": "data",
        "process": "data",
        "uptime_seconds": 120.0,
        "report": {"endpoints": 200, "changes": changes},
    }
    edge = {"clients": clients, "subscriptions": 10 * clients}
    processes = [data, {"name": "websocket-1", "process": "websocket", "report": edge}]
    processes += [{"name": f"{other}-1", "process": other, "report": None} for other in others]
    return {"mode": mode, "servers": servers, "clones": 1, "processes": processes}


def test_a_running_mode_that_costs_much_more_than_another_is_remarked_upon() -> None:
    found = remark(reply("x", 500, "kafka"), cores=4)
    assert found is not None
    # Two servers may be there for the case that one fails: so must the other mode have two.
    assert re.fullmatch(r"diem up --mode \S+ --servers \d.* would take \d+% less CPU than the x that runs", found)


@pytest.mark.parametrize(
    "status",
    [
        reply("single", 500, servers=1),
        reply("x", 0, "kafka"),
        reply("x", 500, "kafka", changes=0),
        reply("x", 50_000, "kafka"),
        reply("x", 500, "kafka", servers=8),
        {"mode": "x", "processes": []},
    ],
    ids=["the cheapest", "no clients", "no updates", "more clients", "more servers than measured", "no answer"],
)
def test_there_is_no_remark_without_a_load_that_was_measured(status: dict[str, Any]) -> None:
    assert remark(status, cores=4) is None


def test_json_has_every_mode_and_is_json() -> None:
    found = json.loads(json.dumps(advice().as_json(), allow_nan=False))
    assert {each["configuration"] for each in found["modes"]} == {str(each) for each in Configuration}
    assert found["command"] == "diem up --mode single"
    assert found["thresholds"]["updates"][-1]["until"] is None
    assert found["load"]["clients"] == 5000
    assert found["unmeasured"] == []


def test_constants_that_were_not_measured_are_named() -> None:
    lacking = replace(ROLES, constants={**ROLES.constants, "composite_idle_us_per_s": None})
    found = Advice(LoadSource(LOAD, "a test"), lacking, Requirements())
    assert found.unmeasured == ["composite: being there, without its children"]


def test_where_no_mode_holds_there_is_no_command() -> None:
    found = advice(Load(100, 100_000, 50_000, batch=50))
    assert found.chosen is None
    assert found.following is None
    assert found.as_json()["command"] is None
