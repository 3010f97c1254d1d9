"""API keys: format, verification, and that the secret is not stored."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.access import keys
from services.data.access.keys import ApiKeys, KeyState, TooManyKeys, bearer_key, is_id, new_key

NOW = 1_700_000_000_000


def test_a_new_key_is_verified() -> None:
    key, text = new_key("the page", "free", NOW)
    assert re.fullmatch(r"diem_[a-z0-9]{8}_[A-Za-z0-9]{43}", text)
    assert text.startswith(f"diem_{key.id}_")
    assert is_id(key.id)
    assert ApiKeys([key]).verify(text, NOW) == key


def test_the_secret_is_not_stored() -> None:
    key, text = new_key("the page", "free", NOW)
    secret = text.rpartition("_")[2]
    assert secret not in repr(key)
    assert secret.encode() not in key.digest


def test_two_keys_differ() -> None:
    made = [new_key("a", "free", NOW) for _ in range(100)]
    assert len({key.id for key, _ in made}) == len({text for _, text in made}) == 100


@given(st.data())
def test_a_key_with_one_changed_character_is_refused(data: st.DataObject) -> None:
    key, text = new_key("a", "free", NOW)
    other, _ = new_key("b", "free", NOW)
    api_keys = ApiKeys([key, other])
    at = data.draw(st.integers(0, len(text) - 1))
    wrong = data.draw(st.characters().filter(lambda found: found != text[at]))
    assert api_keys.verify(text[:at] + wrong + text[at + 1 :], NOW) is None
    assert api_keys.verify(text.replace(key.id, other.id), NOW) is None


@given(st.text())
def test_arbitrary_text_is_refused_as_a_key(text: str) -> None:
    assert ApiKeys().verify(text, NOW) is None
    assert ApiKeys().verify(f"diem_{text}", NOW) is None


def test_a_revoked_key_is_refused_for_good() -> None:
    key, text = new_key("a", "free", NOW)
    api_keys = ApiKeys([key])
    revoked = api_keys.revoke(key.id, NOW + 1)
    assert revoked == replace(key, revoked_ms=NOW + 1)
    assert api_keys.verify(text, NOW) is None
    assert api_keys.revoke(key.id, NOW + 2) == revoked
    assert api_keys.revoke("aaaaaaaa", NOW) is None
    assert api_keys.all() == [revoked]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer a-write-key", None),
        ("Basic diem_x", None),
        ("Bearer diem_x", "diem_x"),
        ("bearer  diem_x ", "diem_x"),
    ],
)
def test_only_bearer_tokens_with_the_prefix_are_api_keys(header: str | None, expected: str | None) -> None:
    assert bearer_key(header) == expected


def test_a_full_keyring_forgets_the_key_revoked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS", 3)
    made = [new_key(str(number), "free", NOW + number)[0] for number in range(3)]
    api_keys = ApiKeys(made)
    with pytest.raises(TooManyKeys, match="revoke one"):
        api_keys.oldest_invalid(NOW + 12)
    api_keys.revoke(made[2].id, NOW + 10)
    api_keys.revoke(made[0].id, NOW + 11)
    oldest = api_keys.oldest_invalid(NOW + 12)
    assert oldest is not None
    assert oldest.id == made[2].id
    api_keys.remove(oldest.id)
    assert api_keys.oldest_invalid(NOW + 12) is None


def test_a_key_expires_at_its_time_and_is_replaced_like_a_revoked_one(monkeypatch: pytest.MonkeyPatch) -> None:
    key, text = new_key("a", "free", NOW, expires_ms=NOW + 1000)
    api_keys = ApiKeys([key])
    assert api_keys.verify(text, NOW + 999) == key
    assert api_keys.verify(text, NOW + 1000) is None
    assert api_keys.find(text) == key
    assert key.state(NOW + 1000) is KeyState.EXPIRED
    assert replace(key, revoked_ms=NOW).state(NOW + 1000) is KeyState.REVOKED
    monkeypatch.setattr(keys, "MAX_KEYS", 1)
    with pytest.raises(TooManyKeys):
        api_keys.oldest_invalid(NOW)
    assert api_keys.oldest_invalid(NOW + 1000) == key
