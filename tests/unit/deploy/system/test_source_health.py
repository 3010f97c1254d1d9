"""Failing sources in words."""

from typing import Any

import pytest

from deploy.system.source_health import is_tried, next_attempt, summary

NOW_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""


def source(name: str, error: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "ok": error is None, "error": error, **more}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([], None),
        ([source("a"), source("b")], None),
        ([source("a", "no route")], "1 of 1 source fails: a: no route"),
        ([source("a"), source("load", "no such directory")], "1 of 2 sources fails: load: no such directory"),
        ([source(name, "x") for name in "abcd"], "4 of 4 sources fail: a: x; b: x; c: x; ..."),
    ],
    ids=["none", "all-work", "the-only-one", "one", "many"],
)
def test_failing_sources_are_counted_and_named(sources: list[dict[str, Any]], expected: str | None) -> None:
    assert summary(sources) == expected


def test_a_source_is_tried_once_it_has_worked_or_failed() -> None:
    starting = {"name": "a", "ok": False, "error": None}
    assert [is_tried(each) for each in (source("a"), source("a", "x"), starting)] == [True, True, False]


@pytest.mark.parametrize(
    ("error", "at", "expected"),
    [
        ("x", "2026-01-01T00:00:20.000Z", "next try in 20 s"),
        ("x", "2026-01-01T00:14:00.000Z", "next try in 14 min"),
        ("x", "2026-01-01T00:00:00.500Z", "trying again"),
        ("x", None, ""),
        (None, "2026-01-01T00:00:20.000Z", ""),
    ],
)
def test_the_next_attempt_of_a_failing_source_is_shown(error: str | None, at: str | None, expected: str) -> None:
    assert next_attempt(source("a", error, next_attempt=at), NOW_S) == expected
