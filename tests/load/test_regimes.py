from dataclasses import replace
from pathlib import Path

import pytest

from diem.protocol.traffic import Type, decode, encode
from tests.load.regimes import R1, R2, R3, REGIMES, Regime, generate, write_trace
from tests.load.trace import Trace, read_trace, read_visits, trace_of


def trace(regime: Regime, seconds: float = 10.0, seed: int = 1) -> Trace:
    return trace_of(generate(regime, seconds, seed), batch=regime.batch)


def test_trace_is_the_same_for_a_seed_and_another_one_for_another() -> None:
    first, again, other = ([encode(event) for event in generate(R1, 5.0, seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert trace(R1) == trace(R1)


@pytest.mark.parametrize("regime", [each.smaller(10) if each is R2 else each for each in REGIMES], ids=lambda r: r.name)
def test_trace_has_the_clients_the_updates_and_the_frames_per_update_of_its_regime(regime: Regime) -> None:
    found = trace(regime)
    load = found.load()
    assert load.clients == pytest.approx(regime.clients)
    assert load.updates == pytest.approx(regime.updates)
    assert load.endpoints == regime.endpoints
    assert load.subscriptions == pytest.approx(regime.subscriptions)
    assert load.frames_per_update == pytest.approx(regime.frames_per_update, rel=0.05)
    assert load.batch == pytest.approx(regime.batch, rel=0.05)


def test_regimes_differ_in_how_many_watch_an_update() -> None:
    assert (R1.frames_per_update, R2.frames_per_update, R3.frames_per_update) == (15.0, 0.25, 150.0)
    assert R2.smaller(10).frames_per_update == R2.frames_per_update


def test_every_type_of_event_of_a_client_occurs_in_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "r1.jsonl"
    write_trace(path, generate(R1, 10.0, 1))
    types = {decode(line).type for line in path.read_bytes().splitlines()}
    assert types == {Type.CONNECT, Type.SUBSCRIBE, Type.UNSUBSCRIBE, Type.DISCONNECT, Type.COUNTS}
    assert read_trace(path, batch=R1.batch) == trace(R1)
    assert read_visits(path) == trace(R1).visits


def test_clients_that_leave_are_replaced() -> None:
    found = trace(replace(R1, visits=1.0, swaps=0.0))
    assert sum(visit.end is not None for visit in found.visits) == sum(visit.start > 0 for visit in found.visits) == 10


def test_trace_of_more_than_a_minute_is_refused() -> None:
    with pytest.raises(ValueError, match="up to 60 s"):
        next(generate(R1, 61.0, 1))
