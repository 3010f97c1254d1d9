"""Keys that sign client tokens: files in a directory, the newest of which signs, reloaded while the service runs.

A file ``<kid>.key`` is a key file like the others (mode 0600, see :mod:`diem.process.auth`); the Ed25519 key pair is
derived from its text. A rotation adds a file. The new key is published at once and signs a minute later, when every
verifier has it; the old one stays published until its last token has expired, and its file is removed an hour later. To
withdraw all tokens of a key, remove its file. A rotation needs no restart, and no state beyond the times of the files.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from diem.errors import DiemError
from diem.process.auth import BadKeyFile, SharedKey, foreign_owner
from diem.process.clock import Clock
from diem.tokens.key_set import TokenKey
from diem.tokens.verifier import LEEWAY_S
from services.data.access.plans import MAX_TOKEN_S

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUFFIX: Final = ".key"
PUBLISHED_BEFORE_USE_S: Final = 60.0
"""Delay before a new key signs: verifiers poll the public keys every 20 s."""
RETIRED_AFTER_S: Final = MAX_TOKEN_S + 2 * LEEWAY_S
"""Time that a key stays published after its successor starts to sign."""
REMOVED_AFTER_S: Final = 3600.0
"""Delay before the file of a retired key is removed, by the monotonic clock: a wall clock temporarily ahead retires
keys too early, but must not destroy them."""
MAX_FILES: Final = 16
"""Maximum number of key files; a directory with more is refused."""
_CHECK_EVERY_S: Final = 2.0
_KID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DERIVATION: Final = b"DIEM client tokens: Ed25519 private key"

_logger = structlog.get_logger(__name__)


class TooManySigningKeys(DiemError):
    """A rotation would exceed the maximum number of files."""

    def __str__(self) -> str:
        return f"there are {MAX_FILES} signing keys already: wait until old ones are retired, or remove their files"


class SigningState(StrEnum):
    """Use of a key."""

    PUBLISHED = "published"
    """Published, but not signing yet."""
    SIGNING = "signing"
    VERIFYING = "verifying"
    """Its tokens are still valid."""
    RETIRED = "retired"
    """None: its file will be removed."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key pair."""

    kid: str
    private: "Ed25519PrivateKey" = field(repr=False)
    public: TokenKey
    created_s: float
    """Unix time at which the file was created or last changed."""


class SigningKeyStatus(NamedTuple):
    """A key and its state."""

    key: SigningKey
    state: SigningState
    until_s: float | None
    """Unix time at which the state ends; None: at the next rotation, or soon."""


class SigningKeys:
    """The key pairs of a directory, created with a first key if missing.

    Args:
        directory: of the files; None keeps one key in memory, for tests.
        clock: its wall clock is compared with the times of the files.
    """

    def __init__(self, directory: Path | None, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._checked_at = clock.monotonic()
        self._seen: tuple[tuple[object, ...], ...] = ()
        self._keys: tuple[SigningKey, ...] = ()
        """The oldest first."""
        self._published: tuple[SigningKey, ...] = ()
        """The last answer of :meth:`published`."""
        self._retired: tuple[SigningKey, ...] = ()
        self._retired_at = clock.monotonic()
        """Monotonic time since which these keys are retired."""
        self._failed = ""

    def load(self) -> None:
        """Read all keys at the start.

        Raises:
            BadKeyFile: the directory or a file is unreadable, another user's, open to others, or not a key.
        """
        if self._directory is None:
            self._keys = (_derived("memory", SharedKey(secrets.token_urlsafe(32)), 0.0),)
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_directory(self._directory)
            if not _files(self._directory):
                self._create(self._directory)
            self._read()
        except OSError as error:
            raise BadKeyFile(self._directory, error.strerror or str(error)) from error

    def signing(self) -> SigningKey:
        """Return the signing key: the newest that verifiers have had time to read."""
        self._refresh()
        used_since = self._now_s() - PUBLISHED_BEFORE_USE_S
        return max((key for key in self._keys if key.created_s <= used_since), key=_age, default=self._keys[0])

    def published(self) -> tuple[SigningKey, ...]:
        """Return the keys with valid tokens, oldest first; the same object as before if unchanged."""
        self._refresh()
        published = self._keys[self._count_retired() :]
        if published != self._published:
            self._published = published
        return self._published

    def status(self) -> list[SigningKeyStatus]:
        """Return all keys with their states, the oldest first."""
        signing, retired = self.signing(), self._count_retired()
        states = []
        for at, (key, successor) in enumerate(zip(self._keys, (*self._keys[1:], None), strict=True)):
            ends_s = None if successor is None else successor.created_s + PUBLISHED_BEFORE_USE_S
            if at < retired:
                found = SigningKeyStatus(key, SigningState.RETIRED, None)
            elif key is signing:
                found = SigningKeyStatus(key, SigningState.SIGNING, ends_s)
            elif _age(key) > _age(signing):
                found = SigningKeyStatus(key, SigningState.PUBLISHED, key.created_s + PUBLISHED_BEFORE_USE_S)
            else:
                found = SigningKeyStatus(key, SigningState.VERIFYING, ends_s and ends_s + RETIRED_AFTER_S)
            states.append(found)
        return states

    def rotate(self) -> SigningKey:
        """Create a key, published now and signing in :data:`PUBLISHED_BEFORE_USE_S`; return it.

        Raises:
            TooManySigningKeys: there are :data:`MAX_FILES` keys not retired yet.
            BadKeyFile: the directory cannot be read or written, or a file in it is not a key.
        """
        if self._directory is None:
            raise BadKeyFile(Path("memory"), "a key in memory is not replaced")
        try:
            _check_directory(self._directory)
            self._read()
            if len(self._keys) >= MAX_FILES:
                self._remove(self._keys[: self._count_retired()])
                self._read()
            if len(self._keys) >= MAX_FILES:
                raise TooManySigningKeys
            kid = self._create(self._directory)
            self._read()
        except OSError as error:
            raise BadKeyFile(self._directory, error.strerror or str(error)) from error
        return next(key for key in self._keys if key.kid == kid)

    def _create(self, directory: Path) -> str:
        """Write a new key; return its id."""
        now = datetime.fromtimestamp(self._now_s(), UTC)
        kid = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        SharedKey.create(directory / f"{kid}{SUFFIX}")
        return kid

    def _count_retired(self) -> int:
        """Return the number of keys no longer published, which are the oldest."""
        retired_since = self._now_s() - RETIRED_AFTER_S - PUBLISHED_BEFORE_USE_S
        return sum(successor.created_s <= retired_since for successor in self._keys[1:])

    def _remove_retired(self, now: float) -> None:
        """Remove the files of long-retired keys."""
        retired = self._keys[: self._count_retired()]
        if retired != self._retired:
            self._retired, self._retired_at = retired, now
        elif retired and now - self._retired_at >= REMOVED_AFTER_S:
            self._retired_at = now  # retried an hour later on failure
            self._remove(retired)

    def _remove(self, keys: Sequence[SigningKey]) -> None:
        if self._directory is None or not keys:
            return
        kids = [key.kid for key in keys]
        try:
            for kid in kids:
                (self._directory / f"{kid}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            _logger.warning("retired keys for client tokens not removed", kids=kids, error=str(error))
        else:
            _logger.info("retired keys for client tokens removed", kids=kids)

    def _refresh(self) -> None:
        """Reload changed files; log faulty ones, keeping their previous keys."""
        now = self._clock.monotonic()
        if not self._keys:
            self.load()
        if self._directory is None or now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        try:
            _check_directory(self._directory)
            self._read()
            self._remove_retired(now)
        except (BadKeyFile, OSError) as error:
            if str(error) != self._failed:
                self._failed = str(error)
                _logger.warning("keys for client tokens not read", error=self._failed)

    def _read(self) -> None:
        directory = self._directory
        found = () if directory is None else _files(directory)
        if directory is None or found == self._seen:
            return
        if not found:
            raise BadKeyFile(directory, "no key for client tokens is left")
        if len(found) > MAX_FILES:
            raise BadKeyFile(directory, f"more than {MAX_FILES} files: remove old ones")
        keys = []
        for path, _, changed_ns, _ in found:
            if _KID.fullmatch(path.stem) is None:
                raise BadKeyFile(path, "the name, which is the key id, has letters, digits, points and dashes only")
            keys.append(_derived(path.stem, SharedKey.load(path), changed_ns / 1e9))
        self._keys = tuple(sorted(keys, key=_age))
        self._seen, self._failed = found, ""
        _logger.info("keys for client tokens", kids=[key.kid for key in self._keys])

    def _now_s(self) -> float:
        return self._clock.wall_ms() / 1000


def _age(key: SigningKey) -> tuple[float, str]:
    return key.created_s, key.kid


def _files(directory: Path) -> tuple[tuple[Path, int, int, int], ...]:
    """Return the key files, each with a fingerprint that changes on replacement."""
    paths = sorted(path for path in directory.iterdir() if path.suffix == SUFFIX)
    status = [(path, path.stat()) for path in paths]
    # Unlike the modification time, the inode's change time cannot be set back.
    return tuple((path, found.st_ino, found.st_ctime_ns, found.st_size) for path, found in status)


def _check_directory(directory: Path) -> None:
    status = directory.stat()
    if owner := foreign_owner(status):
        raise BadKeyFile(directory, f"it belongs to user {owner}, who could sign any token: remove it, or chown it")
    if status.st_mode & 0o022:
        raise BadKeyFile(directory, f"others may write it: run chmod go-w {directory}")


def _derived(kid: str, key: SharedKey, created_s: float) -> SigningKey:
    # Imported only by services with tokens: it takes 20 ms.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.from_private_bytes(key.digest(_DERIVATION))
    public = TokenKey(kid, "EdDSA", private.public_key().public_bytes_raw())
    return SigningKey(kid, private, public, created_s)
