"""Which versions of the internal protocol speak with each other, and what is said where they do not."""

import pytest

from diem.protocol.compatibility import OURS, UNANNOUNCED, Versions, parse, remedy


def test_a_release_that_announces_nothing_is_version_1_and_this_one_speaks_with_it() -> None:
    assert parse(None) == UNANNOUNCED == Versions(1, 1)
    assert OURS.speaks_with(UNANNOUNCED)
    assert parse(OURS.announcement) == OURS


@pytest.mark.parametrize(
    "announced", ["", "2", "2-", "3-2", "0-1", "1-2-3", "1 - 2", "-1-2", "1-9999999", "\u0661-\u0662"]
)
def test_a_malformed_announcement_is_none(announced: str) -> None:
    assert parse(announced) is None


def test_versions_speak_if_their_ranges_meet() -> None:
    assert Versions(1, 3).speaks_with(Versions(3, 5))
    assert Versions(3, 5).speaks_with(Versions(1, 3))
    assert not Versions(1, 2).speaks_with(Versions(3, 5))
    assert not Versions(3, 5).speaks_with(Versions(1, 2))


def test_the_line_names_both_versions_and_who_is_replaced_first() -> None:
    newer = Versions(OURS.newest + 1, OURS.newest + 2)
    line = remedy(newer, "192.0.2.1:9101")
    assert f"192.0.2.1:9101 speaks version {newer.oldest} to {newer.newest}" in line
    assert f"this process {OURS.oldest} to {OURS.newest}" in line
    assert line.endswith("replace this process first")
    assert remedy(Versions(0, 0), "192.0.2.1:9101").endswith("replace 192.0.2.1:9101 first")
