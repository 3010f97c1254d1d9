"""Parts of series: pages joined, and days inserted into what is stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.errors import InvalidDataset
from services.data.kinds import DOCUMENT, SERIES, Representation, kind_of, seal
from services.data.kinds.series import Point, build, iso_seconds
from services.data.sources.parts import insert, join

HOUR = 3600


def dataset(values: dict[int, float | None], endpoint: str = "/a", unit: str = "MW") -> Representation:
    return build(endpoint, unit, "PT1H", [Point(hour * HOUR, value) for hour, value in sorted(values.items())])


def same(one: Representation | None, other: Representation) -> bool:
    return one is not None and (one.content, one.digest, one.labels) == (other.content, other.digest, other.labels)


def test_pages_are_joined_by_endpoint_and_the_last_value_counts() -> None:
    pages = [[dataset({3: 3, 4: 4}), dataset({1: 1}, "/b")], [dataset({1: 1, 4: 5})], [dataset({2: None})]]
    first, second = join(pages)
    assert same(first, dataset({1: 1, 2: None, 3: 3, 4: 5}))
    assert same(second, dataset({1: 1}, "/b"))


def test_documents_of_later_pages_replace_earlier_ones() -> None:
    one, two = (seal("/a", DOCUMENT, content) for content in (b"1", b"2"))
    assert join([[one], [two]]) == [two]


def test_pages_of_different_units_are_refused() -> None:
    with pytest.raises(InvalidDataset, match="/a has another unit or resolution than on a page before"):
        join([[dataset({1: 1})], [dataset({2: 1}, unit="kW")]])


@pytest.mark.parametrize(
    ("part", "keep", "expected"),
    [
        ({6: 60}, 0, {1: 1, 2: 2, 3: 3, 4: 4, 6: 60}),
        ({0: 0}, 0, {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}),
        # What it leaves out between its points is gone.
        ({1: 10, 4: None}, 0, {1: 10, 4: None}),
        ({3: 30}, 2, {2: 2, 3: 30, 4: 4}),
        ({1: 10, 3: 30}, 2, {2: 2, 3: 30, 4: 4}),
        ({9: 9}, 9, {9: 9}),
    ],
)
def test_a_part_replaces_its_span_and_early_points_are_dropped(
    part: dict[int, float | None], keep: int, expected: dict[int, float | None]
) -> None:
    stored = dataset({1: 1, 2: 2, 3: 3, 4: 4}).content
    made = insert(dataset(part), stored, iso_seconds(keep * HOUR))
    assert same(made, dataset(expected))
    assert made is not None
    assert kind_of(SERIES).undo(made.content, made.undo) == stored


def test_without_a_stored_series_the_part_is_one() -> None:
    assert same(insert(dataset({1: 1, 2: 2}), None, iso_seconds(2 * HOUR)), dataset({2: 2}))
    assert insert(dataset({1: 1}), None, iso_seconds(2 * HOUR)) is None
    assert insert(dataset({1: 1}), dataset({5: 5}).content, iso_seconds(2 * HOUR)) is None


def test_a_part_of_another_unit_is_left_to_the_store_to_refuse() -> None:
    part = dataset({2: 2}, unit="kW")
    made = insert(part, dataset({1: 1}).content, iso_seconds(0))
    assert same(made, part)
    assert made is not None
    assert made.undo == b""


def test_documents_replace_what_is_stored() -> None:
    one = seal("/a", DOCUMENT, b"1")
    assert insert(one, b"2", iso_seconds(0)) is one


VALUES = st.dictionaries(st.integers(0, 30), st.none() | st.integers(-5, 5), min_size=1)


@given(VALUES, VALUES, st.integers(0, 31))
def test_insertion_is_that_of_dictionaries(
    stored: dict[int, int | None], part: dict[int, int | None], keep: int
) -> None:
    late = {hour: value for hour, value in part.items() if hour >= keep}
    made = insert(dataset({**part}), dataset({**stored}).content, iso_seconds(keep * HOUR))
    if not late:
        assert made is None
        return
    others = {hour: value for hour, value in stored.items() if hour >= keep and not min(late) <= hour <= max(late)}
    assert same(made, dataset({**others, **late}))
