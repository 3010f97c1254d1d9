"""Where a partition is read from."""

import pytest

from services.data.errors import InvalidDataset
from services.data.sources.kafka.positions import (
    END_LOST,
    Beginning,
    PartitionBounds,
    Position,
    SourcePartition,
    beginnings,
)

P0, P1 = SourcePartition("t", 0), SourcePartition("t", 1)
BOUNDS = PartitionBounds("id", begin=10, end=30, start=20)


@pytest.mark.parametrize(
    ("stored", "offset", "lost", "reason"),
    [
        ("id:15", 15, 0, ""),
        ("id:10", 10, 0, ""),
        ("id:30", 30, 0, ""),
        ("id:3", 10, 7, "the log was cut"),
        ("id:31", 30, 0, END_LOST),
        ("old:15", 10, 0, "the topic was deleted and made again"),
        ("old:3", 10, 0, "the topic was deleted and made again"),
    ],
)
def test_a_partition_is_read_from_its_stored_position_as_far_as_it_is_there(
    stored: str, offset: int, lost: int, reason: str
) -> None:
    found = beginnings({"t/0": stored}, {P0: BOUNDS})
    assert found == {P0: Beginning(Position("id", offset), stored, lost, reason)}


def test_a_source_that_has_read_nothing_begins_as_configured() -> None:
    assert beginnings({}, {P0: BOUNDS}) == {P0: Beginning(Position("id", 20), None)}


def test_a_partition_that_appears_later_is_read_from_its_first_record() -> None:
    found = beginnings({"t/0": "id:12"}, {P0: BOUNDS, P1: BOUNDS})
    assert found[P1] == Beginning(Position("id", 10), None)


@pytest.mark.parametrize("text", ["", "12", ":12", "id:", "id:-1", "id:x"])
def test_another_text_is_no_position(text: str) -> None:
    with pytest.raises(InvalidDataset, match="is no position in a topic"):
        Position.parse(text)
