from pathlib import Path

import pytest

from diem.protocol.traffic import encode
from learning.costs import ROLES
from learning.modes.configuration import Configuration, Size
from learning.modes.load import Load, touched
from metadata.plans.plan import decode
from tests.bench.modes.learnt import Learnt, learn, write_plan
from tests.bench.modes.plan import Run
from tests.bench.modes.runs import expected, scenario_of
from tests.load.regimes import R1, R5, Regime, generate

SECONDS = 5.0


def learnt(regime: Regime) -> Learnt:
    return learn((encode(event) for event in generate(regime, SECONDS, 1)), SECONDS, 4)


def test_plan_needs_half_of_the_servers_where_interests_are_common_and_nearly_as_many_elsewhere() -> None:
    common, any_interests = learnt(R5), learnt(R1)
    assert common.hashed == pytest.approx(any_interests.hashed, rel=0.02)
    assert common.planned < 0.6 * common.hashed
    assert any_interests.planned > 0.8 * any_interests.hashed


def test_plan_of_a_trace_is_the_same_each_time_and_can_be_applied(tmp_path: Path) -> None:
    first, again = learnt(R5), learnt(R5)
    assert first.plan.id == again.plan.id
    write_plan(tmp_path / "plans" / "plan.json", first)
    assert decode((tmp_path / "plans" / "plan.json").read_bytes()) == first.plan


def test_planned_run_applies_its_plan_and_is_predicted_with_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hashed, planned = (Run(R5, Configuration.Z_CLIENT, Size(4), 1, SECONDS, planned=each) for each in (False, True))
    assert scenario_of(hashed).plan is None
    assert decode(Path(scenario_of(planned).plan or "").read_bytes()).homes
    before, after = (expected(each, ROLES) for each in (hashed, planned))
    assert after.connections == pytest.approx(300 * learnt(R5).planned, rel=0.01)
    assert after.connections < 0.6 * before.connections
    # Endpoints of a client are in fewer partitions, so that more of its frames share a send.
    assert after.cpu_ms["websocket"] < 0.95 * before.cpu_ms["websocket"]


def test_sends_to_clients_of_endpoints_in_random_partitions_are_the_same_by_either_formula() -> None:
    load = Load(300, 200, 300, 10, 50)
    assert load.sends_of(touched(12, 10)) == pytest.approx(load.sends(touched(12, 50)), rel=0.05)
    assert load.sends_of(1.0) == pytest.approx(load.sends(1.0), rel=0.05)
