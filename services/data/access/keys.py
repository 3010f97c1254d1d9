"""API keys: format, creation and verification; pure except for the system's random source.

A key is ``diem_<8 characters of its id>_<43 of its secret>``. The secret has 256 random bits, so a single SHA-256 of it
is stored: a slow hash protects secrets chosen by people, and would cost every request.
"""

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from diem.errors import DiemError

KEY_PREFIX: Final = "diem_"
"""Prefix of every key, by which people and secret scanners recognise one."""
MAX_KEYS: Final = 10_000
MAX_NAME: Final = 100
ID_CHARACTERS: Final = 8
SECRET_CHARACTERS: Final = 43

# Letters and digits only: a double click selects the whole key, and neither URLs nor shells need quotes.
_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_SECRET_ALPHABET: Final = string.ascii_letters + string.digits
_FORM: Final = re.compile(r"diem_([a-z0-9]{8})_([A-Za-z0-9]{32,64})")
_ID: Final = re.compile(r"[a-z0-9]{8}")


class TooManyKeys(DiemError):
    """The keyring is full, and no key is revoked."""

    def __str__(self) -> str:
        return f"there are {MAX_KEYS:,} keys already: revoke one that is no longer used"


@dataclass(frozen=True, slots=True)
class Key:
    """The stored record of a key, without its secret."""

    id: str
    name: str
    plan: str
    digest: bytes
    """SHA-256 of the secret."""
    created_ms: int
    revoked_ms: int | None = None


def new_key(name: str, plan: str, now_ms: int) -> tuple[Key, str]:
    """Make a key; return its record and its text, which is not stored anywhere."""
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(ID_CHARACTERS))
    secret = "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(SECRET_CHARACTERS))
    return Key(key_id, name, plan, _digest(secret), now_ms), f"{KEY_PREFIX}{key_id}_{secret}"


def is_id(text: str) -> bool:
    """Return whether ``text`` has the format of a key's id."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether ``text`` may be the name of a key's holder: printable, without white space around it."""
    return text.isprintable() and text == text.strip() and 1 <= len(text) <= MAX_NAME


def bearer_key(header: str | None) -> str | None:
    """Return the API key in an Authorization header, valid or not; None when there is none."""
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.startswith(KEY_PREFIX) else None


class Keyring:
    """All keys by id, including revoked ones. At 10,000, a new key replaces the one revoked first."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = {key.id: key for key in keys}

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> list[Key]:
        """Return all keys, the oldest first."""
        return sorted(self._keys.values(), key=lambda key: (key.created_ms, key.id))

    def get(self, key_id: str) -> Key | None:
        """Return a key by its id; None when there is none."""
        return self._keys.get(key_id)

    def verify(self, text: str) -> Key | None:
        """Return the key with this text; None when there is none or it is revoked.

        Takes the same time for every wrong secret and for unknown ids: ids are not secret, but which exist is not
        disclosed.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        key = self._keys.get(match[1])
        right = hmac.compare_digest(_digest(match[2]), key.digest if key is not None else bytes(32))
        return key if right and key is not None and key.revoked_ms is None else None

    def oldest_revoked(self) -> Key | None:
        """Return the key to replace by a new one; None while there is room.

        Raises:
            TooManyKeys: no key is revoked.
        """
        if len(self._keys) < MAX_KEYS:
            return None
        revoked = [key for key in self._keys.values() if key.revoked_ms is not None]
        if not revoked:
            raise TooManyKeys
        return min(revoked, key=lambda key: (key.revoked_ms, key.id))

    def add(self, key: Key) -> None:
        """Add a key."""
        self._keys[key.id] = key

    def remove(self, key_id: str) -> None:
        """Remove a key."""
        del self._keys[key_id]

    def revoke(self, key_id: str, now_ms: int) -> Key | None:
        """Revoke a key and return it; None when there is none. A repeat changes nothing."""
        key = self._keys.get(key_id)
        if key is None or key.revoked_ms is not None:
            return key
        self._keys[key_id] = revoked = replace(key, revoked_ms=now_ms)
        return revoked


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
