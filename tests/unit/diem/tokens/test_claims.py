from dataclasses import FrozenInstanceError

import pytest

from diem.tokens.claims import Claims


def covering(*prefixes: str) -> Claims:
    return Claims("alice", None, prefixes, 0.0, 1.0)


@pytest.mark.parametrize("endpoint", ["/dam", "/dam/prices/GR", "/load/GR", "/load/GR/a"])
def test_a_prefix_covers_itself_and_what_is_below(endpoint: str) -> None:
    assert covering("/dam", "/load/GR").allows(endpoint)


@pytest.mark.parametrize("endpoint", ["/damage", "/load", "/load/GRx", "/da", "dam/prices", "/", ""])
def test_a_prefix_covers_whole_segments_only(endpoint: str) -> None:
    assert not covering("/dam", "/load/GR").allows(endpoint)


def test_the_slash_covers_every_endpoint() -> None:
    claims = covering("/")
    assert claims.everything
    assert claims.allows("/dam")
    assert claims.allows("/load/GR")


def test_no_prefixes_cover_nothing() -> None:
    claims = covering()
    assert not claims.everything
    assert not claims.allows("/dam")
    assert not covering("/dam").everything


def test_claims_are_immutable_values() -> None:
    claims = covering("/dam")
    assert claims == covering("/dam")
    assert claims != covering("/load")
    assert hash(claims) == hash(covering("/dam"))
    with pytest.raises(FrozenInstanceError):
        claims.subject = "bob"  # type: ignore[misc]
