"""Plans computed on Spark equal those without it, to the last bit."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from diem.protocol.traffic import encode
from metadata.costs import Costs
from metadata.jobs import planning
from metadata.jobs.block_files import BlockFiles, endpoint_weights, store_sets, store_subscriptions
from metadata.jobs.planning import bind_instance, block_files, is_large, plan_in_session
from metadata.jobs.statistics import CachedFrames, statistics, write
from metadata.placement.backend import Backend, NumpyBackend
from metadata.placement.instance import Instance, from_events, read_endpoints
from metadata.placement.options import PlanOptions
from metadata.placement.planner import plan
from metadata.statistics.window import Window
from tests.integration.pipeline.test_windows import table
from tests.support.traffic import BEGIN, MINUTE, generated
from tests.unit.metadata.placement.instances import random_instance, sets_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COSTS = Costs(update_us=1.0, delivery_us=1.0, connection_us_per_s=1000.0)
ENDPOINTS = 60
K = 5


@pytest.fixture(scope="module")
def made() -> Instance:
    """An instance with weights so large that they are converted to the planner's unit."""
    small = random_instance(3, ENDPOINTS, 300)
    heavy = np.random.default_rng(1).integers(1, 1 << 33, small.weight.size)
    assert replace(small, weight=heavy).shift > 1
    return replace(small, weight=heavy)


@contextmanager
def opened(spark: "SparkSession", made: Instance, count: int) -> Iterator[BlockFiles]:
    """The sets of an instance in ``count`` blocks; half of them twice, with half their weight."""
    rows = [
        (pins, part)
        for pins, weight in sets_of(made)
        for part in ([weight // 2, -(-weight // 2)] if weight % 2 else [weight])
    ]
    random.Random(count).shuffle(rows)
    with block_files(spark, count) as files:
        store_sets(spark.createDataFrame(rows, "endpoints array<int>, weight long"), files, ENDPOINTS)
        yield files


def results(backend: Backend) -> list[bytes]:
    """Return the results of every function of a backend."""
    rng = np.random.default_rng(7)
    part = rng.integers(-1, K, ENDPOINTS).astype(np.int32)
    near = part.copy()
    near[:3] = (near[:3] + 1) % K
    far = np.roll(part, 1)
    group = rng.integers(-1, 3, ENDPOINTS).astype(np.int32)
    found = [
        backend.fan_out(part, K),
        backend.fan_out_change(far, part, K, 5.0),
        backend.required_parts(rng.random(ENDPOINTS), 0.7),
        backend.removal_savings(part, K),
        *(backend.affinity(each, K, sharpness) for sharpness in (1, 3) for each in (part, near, far)),
        np.array(backend.count_pairs(3)),
    ]
    for sides in (2, 1):
        backend.begin_level(np.minimum(group, sides).astype(np.int32))
        found.append(backend.gains(rng.integers(0, 2, ENDPOINTS).astype(np.uint8)))
    backend.end_levels()
    for share in (1.0, 0.5):
        graph = backend.cosubscription(part >= 0, share, 4)
        found += [graph.indptr, graph.indices, graph.data]
    found += backend.contract(part, K)
    rates = rng.integers(0, 1000, ENDPOINTS)
    for each in (backend, backend.fold(1 << 20, 0.3, held_out=False), backend.fold(1 << 20, 0.3, held_out=True)):
        found += [np.array(each.count_sets()), each.fan_out(part, K), each.squared_loads(rates, part, K)]
        found.append(each.affinity(part, K, 1))
    return [np.ascontiguousarray(each, np.result_type(each, np.int64)).tobytes() for each in found]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_spark_backend_equals_the_numpy_backend_to_the_last_bit(
    spark: "SparkSession", made: Instance, count: int
) -> None:
    expected = results(NumpyBackend(made.blocks(3), ENDPOINTS))
    with opened(spark, made, count) as files:
        instance, backend = bind_instance(made, files)
        assert (instance.shift, instance.weight.sum()) == (made.shift, made.weight.sum())
        assert results(backend) == expected


def test_single_subscriptions_become_the_sets_of_their_clients(spark: "SparkSession", made: Instance) -> None:
    light = [(pins, weight % 9 + 1) for pins, weight in sets_of(made)]
    clients = [(f"client-{client:x}", pins, weight) for client, (pins, weight) in enumerate(light + light[:50])]
    rows = [(client, pin, weight) for client, pins, weight in clients for pin in pins for _ in range(1 + pin % 2)]
    random.Random(1).shuffle(rows)
    subscribers = [sum(weight for _, pins, weight in clients if pin in pins) for pin in range(ENDPOINTS)]
    with block_files(spark, 2) as files:
        frame = spark.createDataFrame(rows, "client string, endpoint int, weight long")
        store_subscriptions(frame, files, ENDPOINTS)
        assert endpoint_weights(files, ENDPOINTS).tolist() == subscribers
        stored = [tuple(each) for arrays in files.map(list, "sets") for each in _sets(*arrays)]
    once = [(tuple(pins), weight * (2 if number < 50 else 1)) for number, (pins, weight) in enumerate(light)]
    assert sorted(stored) == sorted(once)


def _sets(pins: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> Iterator[tuple[tuple[int, ...], int]]:
    for each, weight in zip(np.split(pins, np.cumsum(sizes)[:-1]), weights.tolist(), strict=True):
        yield tuple(each.tolist()), weight


def test_an_instance_without_sets_can_be_planned(spark: "SparkSession", made: Instance) -> None:
    part = np.zeros(ENDPOINTS, np.int32)
    with block_files(spark, 2) as files:
        store_sets(spark.createDataFrame([], "endpoints array<int>, weight long"), files, ENDPOINTS)
        instance, backend = bind_instance(made, files)
        assert instance.weight.sum() == 0
        assert backend.fan_out(part, 1).tolist() == [0, 0]
        assert backend.contract(part, 1).sizes.size == 0


def test_a_plan_from_statistics_on_spark_equals_that_from_events_without(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrivals, window = generated(1), Window(BEGIN, BEGIN + 90 * MINUTE)
    kept = CachedFrames()
    folder = write(statistics(table(spark, arrivals), window, kept), window, tmp_path / "window")
    kept.free()
    options = PlanOptions(servers=(2,), current_partitions=2, epsilon=0.3, hot_budget=0.0, reference=True)
    expected = plan(from_events((encode(event) for event, _ in arrivals), window), options, COSTS)

    found = plan_in_session(spark, folder, options, COSTS, None)

    assert found.placement.tobytes() == expected.placement.tobytes()
    assert (found.partitions, found.pays, found.why) == (expected.partitions, expected.pays, expected.why)
    assert len(set(found.placement.tolist())) > 1
    assert read_endpoints(folder).endpoints == from_events((encode(event) for event, _ in arrivals), window).endpoints
    assert not is_large(folder)
    monkeypatch.setattr(planning, "LARGE_PINS", 10)
    assert is_large(folder)
