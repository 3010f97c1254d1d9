"""API keys: their form, how they are made and known again; pure but for the system's source of chance.

A key is ``diem_<8 characters of its id>_<43 of its secret>``. The secret has 256 bits of chance, so its SHA-256 is
kept, once: a slow hash helps secrets that people choose, and would cost every request.
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

MARK: Final = "diem_"
"""What every key begins with, so that scanners of repositories and people know one when they see it."""
MAX_KEYS: Final = 10_000
MAX_NAME: Final = 100
ID_CHARACTERS: Final = 8
SECRET_CHARACTERS: Final = 43

# Letters and digits alone: a double click selects the whole key, and no URL or shell changes it.
_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_SECRET_ALPHABET: Final = string.ascii_letters + string.digits
_FORM: Final = re.compile(r"diem_([a-z0-9]{8})_([A-Za-z0-9]{32,64})")
_ID: Final = re.compile(r"[a-z0-9]{8}")


class TooManyKeys(DiemError):
    """As many keys as there may be are there, and none of them is revoked."""

    def __str__(self) -> str:
        return f"there are {MAX_KEYS:,} keys already: revoke one that is not used any more"


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key: not its secret."""

    id: str
    name: str
    plan: str
    digest: bytes
    """SHA-256 of the secret."""
    created_ms: int
    revoked_ms: int | None = None


def new_key(name: str, plan: str, now_ms: int) -> tuple[Key, str]:
    """Make a key; returns what is kept of it, and the key itself, which is nowhere else."""
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(ID_CHARACTERS))
    secret = "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(SECRET_CHARACTERS))
    return Key(key_id, name, plan, _digest(secret), now_ms), f"{MARK}{key_id}_{secret}"


def is_id(text: str) -> bool:
    """Whether a key may have this id."""
    return _ID.fullmatch(text) is not None


def offered(header: str | None) -> str | None:
    """The API key that the value of an Authorization header offers, right or wrong; None when it offers none."""
    scheme, _, token = (header or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.startswith(MARK) else None


class Keyring:
    """All keys by id, revoked ones too. At 10,000, the one that was revoked first is forgotten for a new one."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = {key.id: key for key in keys}

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> list[Key]:
        """All keys, the oldest first."""
        return sorted(self._keys.values(), key=lambda key: (key.created_ms, key.id))

    def get(self, key_id: str) -> Key | None:
        """A key by its id."""
        return self._keys.get(key_id)

    def verify(self, text: str) -> Key | None:
        """The key that ``text`` is; None when it is none or is revoked.

        Takes equally long for every wrong secret, and for an id that there is not: ids are no secrets, but nobody
        learns from us which there are.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        key = self._keys.get(match[1])
        right = hmac.compare_digest(_digest(match[2]), key.digest if key is not None else bytes(32))
        return key if right and key is not None and key.revoked_ms is None else None

    def oldest_revoked(self) -> Key | None:
        """Which key has to go before another one can be added; None while there is room.

        Raises:
            TooManyKeys: none can go.
        """
        if len(self._keys) < MAX_KEYS:
            return None
        revoked = [key for key in self._keys.values() if key.revoked_ms is not None]
        if not revoked:
            raise TooManyKeys
        return min(revoked, key=lambda key: (key.revoked_ms, key.id))

    def add(self, key: Key) -> None:
        """Take a key in."""
        self._keys[key.id] = key

    def remove(self, key_id: str) -> None:
        """Forget a key."""
        del self._keys[key_id]

    def revoke(self, key_id: str, now_ms: int) -> Key | None:
        """Let a key be of no use from now on; returns it, or None when there is none. A repeat changes nothing."""
        key = self._keys.get(key_id)
        if key is None or key.revoked_ms is not None:
            return key
        self._keys[key_id] = revoked = replace(key, revoked_ms=now_ms)
        return revoked


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
