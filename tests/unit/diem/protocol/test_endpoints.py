"""Reasons of refused names; which names are refused is in ``tests/cases/endpoint_names.json``."""

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
