"""Patches of points: the same as changing a mapping of times and values, and the bytes of a PUT of the result."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.media_types import POINTS_PATCH, SERIES
from services.data.errors import InvalidDataset, MalformedBody, PatchRefused
from services.data.kinds import Representation, kind_of
from services.data.kinds.kind import Body
from services.data.kinds.series import Dataset, Point, build, iso_seconds
from services.data.store import StoredVersion

HOUR = 3600
START = 1_767_225_600
VALUES = st.none() | st.integers(-(10**15) + 1, 10**15 - 1) | st.floats(-1e14, 1e14)
HOURS = st.integers(0, 40)


def series(points: dict[int, float | None], resolution: str = "PT1H", unit: str = "MW") -> Dataset:
    """Return a series of hours after the start."""
    made = [Point(START + hour * HOUR, value) for hour, value in sorted(points.items())]
    return build("/a", unit, resolution, made)


def time(hour: int) -> str:
    return iso_seconds(START + hour * HOUR)


def patched(dataset: Dataset, patch: Any, **fields: str) -> Representation:
    """Return a dataset with a patch applied as the Data Service does."""
    content = patch if isinstance(patch, bytes) else orjson.dumps(patch)
    body = Body(content, POINTS_PATCH, fields, dataset.labels)
    return kind_of(SERIES).patch("/a", StoredVersion(1, 1, 0, SERIES, dataset.content), body)


def changes(put: dict[int, float | None], gone: list[int]) -> dict[str, Any]:
    """Return a patch, without empty arrays."""
    points = [{"time": time(hour), "value": value} for hour, value in sorted(put.items())]
    parts = {"points": points, "delete": [time(hour) for hour in sorted(gone)]}
    return {name: part for name, part in parts.items() if part}


@given(
    st.dictionaries(HOURS, VALUES, min_size=1),
    st.lists(st.tuples(st.dictionaries(HOURS, VALUES, max_size=8), st.sets(HOURS, max_size=8)), min_size=1, max_size=4),
    st.sampled_from(["MW", '{"time":"', ',"points":[', "a{b}"]),
)
def test_patches_do_what_changes_of_a_mapping_do(
    points: dict[int, float | None], patches: list[tuple[dict[int, float | None], set[int]]], unit: str
) -> None:
    dataset, expected = series(points, unit=unit), dict(points)
    for put, given_gone in patches:
        gone = sorted(given_gone - put.keys())
        if not put and not gone:
            continue
        after = {hour: value for hour, value in (expected | put).items() if hour not in gone}
        if not after:
            with pytest.raises(PatchRefused, match="no point would be left"):
                patched(dataset, changes(put, gone))
            continue
        made = patched(dataset, changes(put, gone))
        if made.digest != dataset.digest:
            assert kind_of(SERIES).undo(made.content, made.undo) == dataset.content
        dataset, expected = series(after, unit=unit), after
        assert (made.content, made.digest, made.labels) == (dataset.content, dataset.digest, dataset.labels)
        assert made == dataset


@given(st.integers(1, 60), st.integers(0, 122))
def test_each_point_of_a_series_is_found(count: int, half: int) -> None:
    """Points at every second hour: the patch is of one of them, between two, before or after all."""
    points: dict[int, float | None] = {2 * number: 10.0 ** (number % 7) for number in range(count)}
    expected = series(points | {half: -1})
    assert patched(series(points), changes({half: -1}, [])).content == expected.content
    left = {hour: value for hour, value in points.items() if hour != half}
    if left:
        assert patched(series(points), changes({}, [half])).content == series(left).content


def test_points_before_the_time_to_keep_from_go_and_come_back_with_the_version_before() -> None:
    dataset = series({0: 1, 1: 2, 2: 3, 3: 4})
    made = patched(dataset, changes({4: 5, 0: 9}, []) | {"keep_from": "2026-01-01T01:30:00Z"})
    assert made == series({2: 3, 3: 4, 4: 5})
    assert kind_of(SERIES).undo(made.content, made.undo) == dataset.content
    assert patched(dataset, {"keep_from": time(3)}) == series({3: 4})


def test_equal_content_has_the_digest_of_before() -> None:
    dataset = series({0: 1, 1: None})
    assert patched(dataset, changes({1: None}, [5])).digest == dataset.digest


@pytest.mark.parametrize(
    ("patch", "where", "reason"),
    [
        ({}, "$", "expected an object"),
        ([], "$", "expected an object"),
        ({"points": [], "delete": [time(0)]}, "$.points", "at least one point"),
        ({"points": {"time": time(0), "value": 1}}, "$.points", "array"),
        ({"delete": []}, "$.delete", "at least one time"),
        ({"delete": time(0)}, "$.delete", "array"),
        ({"delete": [7]}, "$.delete[0]", "a time is a string"),
        ({"delete": [[]]}, "$.delete[0]", "a time is a string"),
        ({"keep_from": 7}, "$.keep_from", "a time is a string"),
        ({"unit": "MW", "points": [{"time": time(0), "value": 1}]}, "$", "nothing else"),
        ({"points": [{"time": time(0)}]}, "$.points[0]", '"time" and "value"'),
        ({"points": [{"time": time(0), "value": "1"}]}, "$.points[0]", "number"),
        ({"points": [{"time": time(0), "value": 1e15}]}, "$.points[0]", "out of range"),
        ({"points": [{"time": "2026-01-01T00:30:00Z", "value": 1}]}, "$.points[0]", "not on the grid of PT1H"),
        ({"points": [{"time": "2026-01-01T00:00:00", "value": 1}]}, "$.points[0]", "zone"),
        ({"points": [{"time": time(0), "value": 1}] * 2}, "$.points[1]", "twice"),
        ({"points": [{"time": time(1), "value": 1}, {"time": time(0), "value": 1}]}, "$.points[1]", "earlier"),
        ({"delete": ["2026-01-01T00:30:00Z"]}, "$.delete[0]", "not on the grid of PT1H"),
        ({"delete": [time(1), time(0)]}, "$.delete[1]", "earlier"),
        ({"points": [{"time": time(0), "value": 1}], "delete": [time(0)]}, "$.delete[0]", "is in points, too"),
        (b'{"points":[{"time":"2026-01-01T00:00:00Z","value":1,"value":2}]}', "", "'value' appears twice"),
        (b'{"points":[{"time":"2026-01-01T00:00:00Z","value" :1,"value":2}]}', "", "'value' appears twice"),
        (b'{"delete":["2026-01-01T00:00:00Z"],"delete":["2026-01-01T01:00:00Z"]}', "", "'delete' appears twice"),
    ],
)
def test_a_wrong_patch_is_refused_with_the_place(patch: Any, where: str, reason: str) -> None:
    with pytest.raises(InvalidDataset) as caught:
        patched(series({0: 1, 1: 2}), patch)
    assert (caught.value.where, reason in caught.value.reason) == (where, True), str(caught.value)


@pytest.mark.parametrize("patch", [b"", b"[", b"[" * 40])
def test_what_is_not_json_is_malformed(patch: bytes) -> None:
    with pytest.raises(MalformedBody):
        patched(series({0: 1}), patch)


def test_times_have_any_notation_that_a_put_takes() -> None:
    patch = {"points": [{"time": "2026-01-01 03:00+02:00", "value": 5}], "delete": ["2026-01-01T02:00z"]}
    assert patched(series({0: 1, 2: 3}), patch) == series({0: 1, 1: 5})
    local = {"points": [{"time": "2026-01-01T03:00", "value": 5}], "delete": ["2026-01-01T04:00"]}
    assert patched(series({0: 1, 2: 3}), local, zone="Europe/Athens") == series({0: 1, 1: 5})


def test_an_irregular_series_gets_points_at_any_second() -> None:
    points = [Point(START + second, second) for second in (0, 1, 59)]
    dataset = build("/a", "1", "irregular", points)
    patch = {"points": [{"time": iso_seconds(START + 30), "value": 30}]}
    expected = build("/a", "1", "irregular", [*points[:2], Point(START + 30, 30), points[2]])
    assert patched(dataset, patch) == expected


def months(zone: str, *seconds: int) -> Dataset:
    return build("/a", "MWh", "P1M", [Point(at, 1) for at in seconds], zone=zone)


ATHENS = [1_767_218_400, 1_769_896_800, 1_772_316_000]
"""Beginnings of January to March 2026."""


def test_dates_of_a_patch_are_in_the_zone_of_the_series() -> None:
    dataset = months("Europe/Athens", *ATHENS[:2])
    patch = {"points": [{"time": "2026-03-01", "value": 1}], "delete": ["2026-01-01"]}
    assert patched(dataset, patch) == months("Europe/Athens", *ATHENS[1:])
    assert patched(dataset, patch, zone="Europe/Athens") == months("Europe/Athens", *ATHENS[1:])


@pytest.mark.parametrize(
    ("patch", "fields", "reason"),
    [
        ({"points": [{"time": "2026-03-01T00:00Z", "value": 1}]}, {}, "is not the start of a month in Europe/Athens"),
        ({"delete": ["2026-03-02"]}, {}, "is not the start of a month in Europe/Athens"),
        ({"delete": ["2026-03-01"]}, {"zone": "Europe/Berlin"}, "its days begin in Europe/Athens, not in Europe"),
        ({"delete": ["2026-03-01"]}, {"zone": "UTC"}, "its days begin in Europe/Athens, not in UTC"),
    ],
)
def test_a_patch_keeps_the_zone_of_the_series(patch: Any, fields: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidDataset, match=reason):
        patched(months("Europe/Athens", *ATHENS), patch, **fields)


def test_days_of_utc_are_not_mixed_with_those_of_a_zone() -> None:
    dataset = build("/a", "1", "P1D", [Point(START, 1)])
    patch = {"points": [{"time": "2026-01-02", "value": 1}]}
    assert patched(dataset, patch) == build("/a", "1", "P1D", [Point(START, 1), Point(START + 24 * HOUR, 1)])
    with pytest.raises(InvalidDataset, match=r"is not on the grid of P1D \(in UTC\)"):
        patched(dataset, {"points": [{"time": "2026-01-01T22:00Z", "value": 1}]})


def test_the_zone_of_a_series_of_an_earlier_release_is_asked_for() -> None:
    dataset = months("Europe/Athens", *ATHENS[:2])
    unzoned = Dataset("/a", SERIES, dataset.content, dataset.digest, labels='{"resolution":"P1M","unit":"MWh"}')
    patch = {"points": [{"time": "2026-03-01", "value": 1}]}
    with pytest.raises(InvalidDataset, match=r"its days do not begin in UTC: give their zone as \?zone="):
        patched(unzoned, patch)
    made = patched(unzoned, patch, zone="Europe/Athens")
    assert made == months("Europe/Athens", *ATHENS)
    assert made.label("zone") == "Europe/Athens"


def test_a_patch_may_describe_the_series() -> None:
    made = patched(series({0: 1}), changes({1: 2}, []), title="Load", quantity="load", area="GR")
    assert (made.title, made.label("quantity"), made.label("area")) == ("Load", "load", "GR")
    with pytest.raises(InvalidDataset, match="price is not measured in MW"):
        patched(series({0: 1}), changes({1: 2}, []), quantity="price")
