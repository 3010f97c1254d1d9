"""Reasons of refused names, and prefixes; which names are refused is in ``tests/cases/endpoint_names.json``."""

import pytest

from diem.protocol import endpoints


def test_an_endpoint_name_is_returned() -> None:
    assert endpoints.check("/dam/prices/GR") == "/dam/prices/GR"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("/" + "a" * 256, "longer than 256 bytes"), ("/a b", "it must be '/' and segments"), ("/a/../b", "a segment is")],
)
def test_a_refused_name_has_a_reason(name: str, reason: str) -> None:
    with pytest.raises(endpoints.BadName, match=f"is not an endpoint name: {reason}"):
        endpoints.check(name)


@pytest.mark.parametrize(
    ("prefixes", "endpoint", "expected"),
    [
        ((), "/a", False),
        (("/",), "/a", True),
        (("/dam",), "/dam", True),
        (("/dam",), "/dam/prices/GR", True),
        (("/dam",), "/damage", False),
        (("/load", "/dam/prices"), "/dam", False),
        (("/load", "/dam/prices"), "/dam/prices", True),
    ],
)
def test_a_prefix_covers_whole_segments(prefixes: tuple[str, ...], endpoint: str, expected: bool) -> None:
    assert endpoints.coverage(prefixes)(endpoint) is expected


@pytest.mark.parametrize(
    ("name", "above"), [("/dam/prices/GR", ["/dam/prices", "/dam"]), ("/dam", []), ("/a//b", ["/a/", "/a"]), ("", [])]
)
def test_ancestors_are_the_prefixes_of_whole_segments_the_longest_first(name: str, above: list[str]) -> None:
    assert list(endpoints.ancestors(name)) == above


@pytest.mark.parametrize("name", ["/x/*", "/x*y/z"])
def test_a_new_name_has_no_wildcard_and_an_old_one_is_read_and_written(name: str) -> None:
    assert endpoints.check_single(name) == name
    with pytest.raises(endpoints.BadName, match="subscribe to the collection"):
        endpoints.check_written(name)
