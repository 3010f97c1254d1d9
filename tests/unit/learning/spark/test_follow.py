"""Statistics while following: replaced after batches, kept once a window."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from diem.protocol.update import iso
from learning.jobs.warehouse import WINDOW_FILE, NoTraffic, Warehouse, all_statistics, read_window
from learning.spark.pipeline import CURRENT, WindowOptions, _follow
from learning.statistics.window import Window
from tests.support.traffic import BEGIN, MINUTE

HOUR_MS = 60 * MINUTE


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def here(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def computing(here: Warehouse, clock: Clock, ends: list[int]) -> "Callable[[Window | int, str | None], Path]":
    """Write the window that ends with each of ``ends``, 20 s later."""

    def compute(window: Window | int, name: str | None) -> Path:
        assert (window, name) == (HOUR_MS, CURRENT)
        if not ends:
            raise NoTraffic(here.root)
        folder, end = here.statistics / CURRENT, ends.pop(0)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / WINDOW_FILE).write_text(json.dumps({"from": iso(end - HOUR_MS), "to": iso(end)}))
        clock.now += 20
        return folder

    return compute


def test_statistics_take_half_of_the_time_and_are_kept_once_a_window(here: Warehouse) -> None:
    clock, shown, numbers = Clock(), list[int](), count()
    ends = [BEGIN + minutes * MINUTE for minutes in (60, 61, 119, 120, 121)]
    on_batch = _follow(here, WindowOptions(HOUR_MS, None), computing(here, clock, ends), shown.append, clock)  # type: ignore[arg-type]  # batches are only shown

    def follow(seconds: float) -> list[str]:
        clock.now += seconds
        on_batch(next(numbers))  # type: ignore[arg-type]
        return [str(read_window(each)["to"])[11:16] + each.name[:1] for each in all_statistics(here)]

    assert follow(0) == ["01:002"], "the first is kept"
    assert follow(19) == ["01:002"], "one second too early"
    assert follow(1) == ["01:002", "01:01c"]
    assert follow(20) == ["01:002", "01:59c"]
    assert follow(20) == ["01:002", "02:002"]
    assert follow(20) == ["01:002", "02:002", "02:01c"]
    assert follow(20) == ["01:002", "02:002", "02:01c"], "nothing recorded"
    assert shown == list(range(7))
