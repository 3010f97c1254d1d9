import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learning.placement.instance import (
    Instance,
    expected_counts,
    expected_factors,
    from_events,
    read_statistics,
    split_time,
)
from learning.statistics.window import Window
from tests.unit.learning.placement.instances import block, instance, sets_of

START = 1_700_000_000_000
WINDOW = Window(START, START + 100_000)


def same(one: Instance, other: Instance) -> bool:
    arrays = ("rate", "subscribers", "starts", "pins", "weight")
    return (one.endpoints, one.seconds) == (other.endpoints, other.seconds) and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in arrays
    )


def test_equal_sets_are_merged_and_pins_are_distinct_and_ascending() -> None:
    made = Instance.of(["/b", "/a"], [1, 2], [3, 4], block(([0, 1], 2), ([1, 0, 1], 3), ([0], 1)))
    assert (made.endpoints, made.rate.tolist(), made.subscribers.tolist()) == (("/a", "/b"), [2, 1], [4, 3])
    assert sorted(sets_of(made)) == [([0, 1], 5), ([1], 1)]


def test_instances_do_not_depend_on_the_order_of_endpoints_and_sets() -> None:
    sets = [([0, 1], 1), ([1, 2], 2), ([3], 3), ([0, 1], 4)]
    names, rates = ["/a", "/b", "/c", "/d"], [1.0, 2.0, 3.0, 4.0]
    one = Instance.of(names, rates, rates, block(*sets))
    number = {old: new for new, old in enumerate([2, 0, 3, 1])}
    turned = [([number[pin] for pin in pins], weight) for pins, weight in reversed(sets)]
    order = [2, 0, 3, 1]
    other = Instance.of(
        [names[each] for each in order],
        [rates[each] for each in order],
        [rates[each] for each in order],
        block(*turned),
    )
    assert same(one, other)


def test_earlier_windows_are_combined_by_their_shares_over_the_endpoints_of_all() -> None:
    one = Instance.of(["/a", "/b"], [1.0, 2.0], [3.0, 4.0], block(([0, 1], 100)), 100.0)
    other = Instance.of(["/c", "/b"], [4.0, 8.0], [1.0, 2.0], block(([0, 1], 200), ([0], 20)), 100.0)
    latest, (both, last) = split_time(one, [other, one], [1.0, 0.5])
    assert latest.endpoints == both.endpoints == last.endpoints == ("/a", "/b", "/c")
    assert sorted(sets_of(both)) == [([0, 1], 50), ([1, 2], 200), ([2], 20)]
    assert both.rate.tolist() == pytest.approx([1 / 3, 18 / 3, 8 / 3])
    assert float(both.weight.sum()) / both.seconds == pytest.approx(270 / 150)
    assert (last.rate.tolist(), sorted(sets_of(latest))) == ([0.0, 8.0, 4.0], [([0, 1], 100)])


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        Instance.of(["/a", "/a"], [1, 1], [1, 1], block())


def test_blocks_have_all_sets_with_a_bounded_sum_of_weights() -> None:
    made = Instance.of(["/a", "/b"], [1, 1], [1, 1], block(([0, 1], 1 << 40), ([0], 1), ([1], 1 << 38)))
    parts = made.blocks(2)
    assert sum(part.sizes.size for part in parts) == 3
    weights = [int(weight) for part in parts for weight in part.weights]
    assert max(weights) <= 1 << 31
    assert min(weights) == 1


def line(number: int, kind: str, at: int, **more: object) -> bytes:
    return orjson.dumps({"type": kind, "id": f"{0:012x}-{number}", "time": START + at, "edge": "websocket-1", **more})


def events() -> list[bytes]:
    one, two = {"client": f"{1:016x}", "connection": f"{1:016x}"}, {"client": f"{2:016x}", "connection": f"{2:016x}"}
    counted = {"since": START, "until": START + 60_000, "updates": {"/a": [50, 100], "/b": [10, 0]}}
    return [
        line(1, "connect", 0, **one),
        line(2, "subscribe", 0, **one, endpoints=["/a", "/b"]),
        line(3, "connect", 0, **two),
        line(4, "subscribe", 0, **two, endpoints=["/b", "/a"]),
        line(5, "unsubscribe", 25_000, **two, endpoints=["/a"]),
        line(6, "counts", 60_000, **counted),
        line(7, "disconnect", 50_000, **two),
        line(8, "disconnect", 99_999, **one),
    ]


def test_events_become_rates_subscribers_and_sets() -> None:
    made = from_events(events(), WINDOW)
    assert made.endpoints == ("/a", "/b")
    assert made.rate.tolist() == [0.5, 0.1]
    assert made.subscribers == pytest.approx([1.25, 1.5], abs=0.001)
    assert sets_of(made) == [([0, 1], 149)]
    assert made.seconds == 100


def test_few_counts_are_drawn_towards_the_mean_and_their_sum_stays() -> None:
    counts = np.array([0.0, 1.0, 5.0, 1000.0, 400.0])
    expected = expected_counts(counts)
    assert expected.sum() == pytest.approx(counts.sum())
    assert expected[0] > 0.5
    assert expected[3] == pytest.approx(1000, rel=0.01)
    assert (np.diff(expected[:4]) > 0).all()
    # Differences that chance explains say nothing.
    assert expected_counts(np.array([3.0, 5.0, 4.0])).tolist() == [4.0] * 3
    assert expected_counts(np.zeros(2)).tolist() == [0.0, 0.0]


def test_expectations_are_nearer_to_the_true_means_than_the_counts() -> None:
    rng = np.random.default_rng(1)
    true = rng.gamma(0.5, 4.0, 2000)
    counts = rng.poisson(true).astype(float)
    assert ((expected_counts(counts) - true) ** 2).mean() < 0.9 * ((counts - true) ** 2).mean()


def test_expected_subscribers_are_known_from_clients_however_long_they_stay() -> None:
    sets = [0] * 9 + [1] + [2] * 2
    long, short = (instance([1.0] * 3, *(([pin], stay) for pin in sets)) for stay in (100, 10))
    assert len(set(long.expected_subscribers)) == 3
    assert short.expected_subscribers == pytest.approx(long.expected_subscribers / 10)
    # Twice as many are expected if half of the clients are known.
    of_half = replace(long, subscribers=2 * long.subscribers, share=0.5)
    assert of_half.expected_subscribers == pytest.approx(2 * long.expected_subscribers)


def test_factors_of_busy_minutes_are_those_of_endpoints_only_where_they_differ() -> None:
    rng = np.random.default_rng(1)
    expected = rng.gamma(1.0, 20.0, 500)
    even, known = expected_factors(rng.poisson(2 * expected).astype(float), expected)
    assert np.ptp(even) < 0.2
    assert even.mean() == pytest.approx(2, rel=0.05)
    assert known.min() > 100
    bursts = np.where(np.arange(500) % 2, 15.0, 1.0)
    found, _ = expected_factors(rng.poisson(bursts * expected).astype(float), expected)
    often = expected > 10
    assert found[often] == pytest.approx(bursts[often], rel=0.9)
    assert (found[often] > 4).tolist() == (bursts[often] > 4).tolist()
    assert expected_factors(np.zeros(2), np.ones(2))[0].tolist() == [1.0, 1.0]


def test_instances_do_not_depend_on_the_order_or_repetition_of_lines() -> None:
    lines = events()
    random.Random(3).shuffle(lines)
    assert same(from_events(lines + lines[:3], WINDOW), from_events(events(), WINDOW))


def test_an_instance_is_read_from_the_files_of_a_window(tmp_path: Path) -> None:
    sets = {"endpoints": pa.array([[0, 1], [1]], pa.list_(pa.int32())), "weight": [7, 3], "clients": [1, 1]}
    (tmp_path / "sets.parquet").mkdir()
    pq.write_table(pa.table(sets).slice(0, 1), tmp_path / "sets.parquet" / "part-0.parquet")
    pq.write_table(pa.table(sets).slice(1, 1), tmp_path / "sets.parquet" / "part-1.parquet")
    rows = {"endpoint": ["/a", "/b"], "rate": [1.0, 2.0], "subscribers": [0.7, 1.0], "busy_rate": [9.0, 2.0]}
    pq.write_table(pa.table(rows), tmp_path / "endpoints.parquet")
    window = {"from": "2026-01-01T00:00:00.000Z", "to": "2026-01-01T00:00:10.000Z"}
    (tmp_path / "window.json").write_bytes(orjson.dumps(window))
    expected = Instance.of(["/a", "/b"], [1.0, 2.0], [0.7, 1.0], block(([0, 1], 7), ([1], 3)), 10.0, busy=[9.0, 2.0])
    read = read_statistics(tmp_path)
    assert same(read, expected)
    assert read.busy is not None
    assert read.busy.tolist() == [9.0, 2.0]
    assert np.diff(expected.starts).sum() == 3
    # Each client in the sets of a sample stands for several.
    (tmp_path / "window.json").write_bytes(orjson.dumps({**window, "halvings": 2}))
    sample = read_statistics(tmp_path)
    assert sorted(sample.weight.tolist()) == [12, 28]
    assert sample.load.clients == 4 * expected.load.clients
    assert sample.clients.tolist() == expected.clients.tolist()


def test_recorded_traffic_is_a_load_with_the_subscribers_of_its_updates() -> None:
    # Three endpoints with 1, 3 and 2 subscribers; three clients.
    found = instance([1.0, 3.0, 4.0], ([0, 1], 100), ([1, 2], 200)).load
    assert (found.clients, found.endpoints, found.updates) == (3, 3, 8)
    assert found.frames == 1 + 9 + 8
    assert found.subscriptions == 2
