"""API keys for reading and write keys: format, creation and verification; pure except for the random source.

A key is ``diem_<8 characters of its id>_<43 of its secret>``. The secret has 256 random bits, so a plain SHA-256 of it
is stored: a slow hash is for human-chosen secrets, and would cost every request.
"""

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Final

from diem.errors import DiemError
from diem.process.auth import bearer_credential
from diem.tokens.claims import covers_origin

KEY_PREFIX: Final = "diem_"
"""Prefix of every key, for people and secret scanners."""
MAX_KEYS: Final = 10_000
MAX_NAME: Final = 100
MAX_PREFIXES: Final = 100
"""Maximum number of prefixes of one write key."""
DEFAULT_ENDPOINTS: Final = 1_000
"""Default bound of endpoints for a write key with prefixes."""
MAX_ENDPOINTS: Final = 10_000_000
ID_CHARACTERS: Final = 8
SECRET_CHARACTERS: Final = 43

# Letters and digits only, selectable by a double click and needing no quotes in URLs and shells.
_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_SECRET_ALPHABET: Final = string.ascii_letters + string.digits
_FORM: Final = re.compile(r"diem_([a-z0-9]{8})_([A-Za-z0-9]{32,64})")
_ID: Final = re.compile(r"[a-z0-9]{8}")


class TooManyKeys(DiemError):
    """The keyring is full, and no key is revoked or expired."""

    def __str__(self) -> str:
        return f"there are {MAX_KEYS:,} keys already: revoke one that is no longer used"


class KeyState(Enum):
    """State of a key: accepted, or the reason why not."""

    VALID = "valid"
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Key:
    """The stored record of a key, without its secret."""

    id: str
    name: str
    plan: str
    """Empty for write keys: they have no plan."""
    digest: bytes
    """SHA-256 of the secret."""
    created_ms: int
    revoked_ms: int | None = None
    expires_ms: int | None = None
    """Time from which the key is refused; None if it does not expire."""
    last_used_ms: int | None = None
    """Last stored use, to the minute; see ``LastUse``."""
    writes: bool = False
    """True for a write key: it may write but not read."""
    prefixes: tuple[str, ...] = ()
    """Prefixes of the endpoints that a write key may write; empty: all."""
    per_minute: int | None = None
    """Maximum number of a write key's changes within 60 seconds; None: unlimited."""
    origins: tuple[str, ...] = ()
    """Canonical origins of pages that may use an API key or its tokens; empty: all."""
    max_endpoints: int | None = None
    """Number of endpoints below its prefixes up to which a write key may create new ones; None: the store's limit."""

    def state(self, now_ms: int) -> KeyState:
        """Return whether the key is accepted at ``now_ms`` (Unix time)."""
        if self.revoked_ms is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expires_ms is not None and now_ms >= self.expires_ms else KeyState.VALID

    def allows_origin(self, origin: str | None) -> bool:
        """Return whether a page of this origin (None: a client other than a page) may use the key."""
        return covers_origin(self.origins or None, origin)


@dataclass(frozen=True, slots=True)
class WriteTerms:
    """Terms of a write key; the fields are those of :class:`Key`."""

    prefixes: tuple[str, ...] = ()
    per_minute: int | None = None
    max_endpoints: int | None = None


def new_key(
    name: str,
    plan: str,
    now_ms: int,
    *,
    expires_ms: int | None = None,
    origins: tuple[str, ...] = (),
    writes: WriteTerms | None = None,
) -> tuple[Key, str]:
    """Create a key, for reading unless ``writes`` is given; return its record and its text, which is never stored."""
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(ID_CHARACTERS))
    secret = "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(SECRET_CHARACTERS))
    key = Key(key_id, name, plan, _digest(secret), now_ms, expires_ms=expires_ms, origins=origins)
    if writes is not None:
        key = replace(key, writes=True, **asdict(writes))
    return key, f"{KEY_PREFIX}{key_id}_{secret}"


def is_id(text: str) -> bool:
    """Return whether ``text`` has the format of a key's id."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether ``text`` may be the name of a key's holder: printable, without white space around it."""
    return text.isprintable() and text == text.strip() and 1 <= len(text) <= MAX_NAME


def bearer_key(header: str | None) -> str | None:
    """Return the API key in an Authorization header, valid or not; None when there is none."""
    credential = bearer_credential(header)
    return credential if credential is not None and credential.startswith(KEY_PREFIX) else None


class ApiKeys:
    """All keys by id, including invalid ones; at 10,000, a new key replaces the oldest invalid one."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = {key.id: key for key in keys}
        self.revision = 0
        """Increases with every change."""

    def __len__(self) -> int:
        return len(self._keys)

    def all(self) -> list[Key]:
        """Return all keys, the oldest first."""
        return sorted(self._keys.values(), key=lambda key: (key.created_ms, key.id))

    def get(self, key_id: str) -> Key | None:
        """Return a key by its id; None when there is none."""
        return self._keys.get(key_id)

    def find(self, text: str) -> Key | None:
        """Return the key with this text, valid or not (:meth:`Key.state`); None when there is none.

        Takes the same time for wrong secrets and unknown ids: ids are not secret, but their existence is not disclosed.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        key = self._keys.get(match[1])
        right = hmac.compare_digest(_digest(match[2]), key.digest if key is not None else bytes(32))
        return key if right else None

    def verify(self, text: str, now_ms: int) -> Key | None:
        """Return the key with this text, if it is valid at ``now_ms``."""
        key = self.find(text)
        return key if key is not None and key.state(now_ms) is KeyState.VALID else None

    def revoked_since(self, since_ms: int) -> Iterator[tuple[str, int]]:
        """Yield id and time of each revocation of an API key after a Unix time in milliseconds."""
        for key in self._keys.values():
            if key.revoked_ms is not None and key.revoked_ms > since_ms and not key.writes:
                yield key.id, key.revoked_ms

    def oldest_invalid(self, now_ms: int) -> Key | None:
        """Return the key to be replaced by a new one, the first revoked or expired; None while there is room.

        Raises:
            TooManyKeys: every key is valid.
        """
        if len(self._keys) < MAX_KEYS:
            return None
        invalid = [key for key in self._keys.values() if key.state(now_ms) is not KeyState.VALID]
        if not invalid:
            raise TooManyKeys
        return min(invalid, key=lambda key: (key.revoked_ms or key.expires_ms, key.id))

    def add(self, key: Key) -> None:
        """Add a key."""
        self._keys[key.id] = key
        self.revision += 1

    def remove(self, key_id: str) -> None:
        """Remove a key."""
        del self._keys[key_id]
        self.revision += 1

    def revoke(self, key_id: str, now_ms: int) -> Key | None:
        """Revoke a key and return it; None when there is none. Idempotent."""
        key = self._keys.get(key_id)
        if key is None or key.revoked_ms is not None:
            return key
        self._keys[key_id] = revoked = replace(key, revoked_ms=now_ms)
        self.revision += 1
        return revoked


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
