"""Counts of requests: bounded, whatever is asked for."""

import pytest

from services.data.access import access as module
from services.data.access.access import Cell, Usage


def test_what_is_beyond_the_bound_is_counted_without_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CELLS", 3)
    usage = Usage()
    for number in (0, 1, 2, 3, 4, 0):
        usage.add(Cell("k", "p", f"/e{number}"), "admitted", 1, refused=False)
    counted = {cell.endpoint: count.answered for cell, count in usage.swap().items()}
    assert counted == {"/e0": 2, "/e1": 1, "/e2": 1, "": 2}
    assert usage.merged == 2
    assert usage.today("k", 1) == {"/e0": 2, "/e1": 1, "/e2": 1, "": 2}
    assert usage.outcomes == {("p", "admitted"): 6}


def test_a_new_day_begins_with_nothing() -> None:
    usage = Usage()
    usage.add(Cell("k", "p", "/a"), "admitted", 1, refused=False)
    assert usage.today("k", 2) == {}
    usage.add(Cell("k", "p", "/b"), "admitted", 2, refused=False)
    assert usage.today("k", 2) == {"/b": 1}
    assert usage.today("k", 1) == {}


def test_refused_requests_are_told_apart_and_are_no_use_of_an_endpoint() -> None:
    usage = Usage()
    usage.add(Cell("k", "p", "/a"), "minute", 1, refused=True)
    assert usage.swap() == {Cell("k", "p", "/a"): (0, 1)}
    assert usage.today("k", 1) == {}


def test_a_key_that_is_forgotten_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CELLS", 1)
    usage = Usage()
    usage.add(Cell("a", "p", "/a"), "admitted", 1, refused=False)
    usage.forget("a")
    usage.swap()
    usage.add(Cell("b", "p", "/b"), "admitted", 1, refused=False)
    assert usage.today("b", 1) == {"/b": 1}
