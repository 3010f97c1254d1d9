"""Results of several processes and machines are added, and what one did not check nobody did."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tools.load.completeness import Completeness, Difference
from tools.load.delays import Delays
from tools.load.processes import shares
from tools.load.result import BadResult, LoadResult, Written, merge


def result(**more: Any) -> LoadResult:
    delays = Delays()
    for delay_ms in (2.0, 40.0):
        delays.add(delay_ms)
    found: LoadResult = replace(
        LoadResult("http://127.0.0.1:1", 2, 2, 5, 20, 1, partitioned=False, wait_s=30.0),
        measured_s=2.0,
        updates=2,
        bytes=100,
        cpu_share=0.1,
        delays=delays,
        completeness=Completeness(checked=10, examples=[Difference(1, "/a", None, 7)]),
        refused=Counter({"timed out": 3}),
        **more,
    )
    return found


def test_result_survives_its_file() -> None:
    made = result(written=Written(10.0, 20, 2.0, Counter({"HTTP 429": 1})), problems=["it is late"])
    read = LoadResult.from_json(json.loads(json.dumps(made.as_json(), allow_nan=False)))
    assert read.as_json() == made.as_json()
    assert (read.passed, read.delays.quantile(0.99), read.completeness) == (True, 40.0, made.completeness)


@pytest.mark.parametrize("text", ["{}", "[]", '{"delay_ms": {"max": 1}}'])
def test_other_files_are_no_result(text: str) -> None:
    with pytest.raises(BadResult):
        LoadResult.from_json(json.loads(text))


def test_results_are_added() -> None:
    late = result(clock_difference_s=-1.5, interruptions=Counter({"1006": 2}))
    late.delays.add(900.0)
    found = merge([result(written=Written(10.0, 20, 2.0)), late, result()])
    assert (found.clients, found.subscribed, found.processes, found.updates, found.passed) == (6, 6, 3, 6, True)
    assert (found.delays.count, found.delays.max_ms, found.clock_difference_s) == (7, 900.0, -1.5)
    assert (found.refused, found.interruptions) == ({"timed out": 9}, {"1006": 2})
    assert found.completeness is not None
    assert (found.completeness.checked, found.written) == (30, Written(10.0, 20, 2.0))


@pytest.mark.parametrize(
    "fault",
    [
        {"completeness": None},
        {"completeness": Completeness(checked=5, missed=1)},
        {"subscribed": 1},
        {"rejected": Counter({"limit": 1})},
    ],
)
def test_a_fault_of_one_is_one_of_all(fault: dict[str, Any]) -> None:
    assert not merge([result(), replace(result(), **fault)]).passed


@pytest.mark.parametrize(("clients", "processes", "expected"), [(10, 3, [4, 3, 3]), (2, 4, [1, 1]), (5, 1, [5])])
def test_clients_are_divided_evenly(clients: int, processes: int, expected: list[int]) -> None:
    assert shares(clients, processes) == expected
