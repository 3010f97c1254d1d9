"""The secret behind pseudonyms, changed every day (UTC)."""

import hmac
import re
import secrets
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Self

import structlog

from diem.process.auth import MAX_CHARACTERS, BadKeyFile, SharedKey, read_private, shared_key_remedy
from diem.process.private_files import create_private, replace_private

DAY_MS: Final = 86_400_000
PSEUDONYM_BYTES: Final = 8
_SALT_BYTES: Final = 32
"""Of an HMAC-SHA256."""

_FIRST: Final = b"diem.traffic.salt"
_NEXT: Final = b"diem.traffic.next-day"
_REPLACED: Final = b"diem.traffic.replaced."
MAX_DAYS_AHEAD: Final = 1
"""Days that a salt may be ahead of the clock: clocks differ, and midnight may have just passed."""
_EPOCH: Final = date(1970, 1, 1)
_DATED: Final = re.compile(rb"(\d{4}-\d\d-\d\d)\.([0-9a-f]{64})")

_logger = structlog.get_logger("traffic")


class DailySalt:
    """The secret of one day: its HMAC is the secret of the next day, and replaces it.

    So nobody can compute the pseudonyms of earlier days, not even with the file; and all processes with copies of one
    file have the same salt on each day, without communication. A salt more than :data:`MAX_DAYS_AHEAD` days ahead was
    made under a wrong clock. It would stay the same until that day, so it is replaced by an HMAC of it for today:
    processes that went ahead together come back together. The others have a different salt then, until each reads the
    file at the next change of the day.

    Args:
        secret: the salt of ``day``.
        day: days since 1970 (UTC).
        path: the file, rewritten when the day changes; None: no file.
    """

    def __init__(self, secret: bytes, day: int, path: Path | None = None) -> None:
        self._secret = secret
        self._path = path
        self.day = day

    @classmethod
    def load(cls, path: Path, now_ms: int) -> Self:
        """Return today's salt from a file: ``<date>.<salt>`` as written here, or any key, as the salt of 1970-01-01.

        Raises:
            BadKeyFile: it is unreadable, another user's, readable by others, or not a key.
        """
        dated = _read_dated(path)
        salt = cls(SharedKey.load(path).digest(_FIRST), 0, path) if dated is None else cls(*dated, path)
        salt.advance(now_ms)
        return salt

    def advance(self, now_ms: int) -> bool:
        """Advance to the day of ``now_ms`` (Unix milliseconds); return whether the salt changed."""
        today = now_ms // DAY_MS
        if today <= self.day <= today + MAX_DAYS_AHEAD:
            return False
        if self.day > today:
            _logger.warning("the salt was made under a clock that was ahead and is replaced", days=self.day - today)
        found = self._read()
        if found is not None and found[1] == today:
            self._secret, self.day = found
            return True
        if self.day > today:
            self._secret = hmac.digest(self._secret, _REPLACED + str(today).encode(), "sha256")
        for _ in range(today - self.day):
            self._secret = hmac.digest(self._secret, _NEXT, "sha256")
        self.day = today
        self._write()
        return True

    def pseudonym(self, identity: bytes) -> bytes:
        """Return the pseudonym of an identity on this day: 8 bytes."""
        return hmac.digest(self._secret, identity, "sha256")[:PSEUDONYM_BYTES]

    def _read(self) -> tuple[bytes, int] | None:
        """Return the secret and day of the file, which another process may have written; None if it has none."""
        try:
            return _read_dated(self._path) if self._path is not None else None
        except BadKeyFile:
            return None

    def _write(self) -> None:
        """Replace the file; concurrent processes write the same content."""
        if self._path is None:
            return
        try:
            content = f"{_EPOCH + timedelta(days=self.day)}.{self._secret.hex()}\n"
            replace_private(self._path, content.encode("ascii"))
        except OSError as error:
            # A read-only file of a deployment: its secret makes all pseudonyms since the day that it is of.
            _logger.warning("the salt of earlier days stays in its file", path=str(self._path), error=str(error))


def create_salt(path: Path, now_ms: int) -> None:
    """Write a random salt of today to a file, if missing.

    This saves every process the 40 ms of advancing a plain key over the 20,000 days since 1970.
    """
    if not path.exists():
        day = _EPOCH + timedelta(days=now_ms // DAY_MS)
        create_private(path, f"{day}.{secrets.token_hex(_SALT_BYTES)}\n".encode("ascii"))


def client_identity(client: str) -> bytes:
    """Return the identity behind the pseudonyms of a client with an id."""
    return b"client:" + client.encode()


def known_pseudonyms(path: Path, identity: bytes, today: date, days: int) -> dict[date, bytes]:
    """Return the pseudonyms of an identity that a file reveals, by day: of its own day, and of later ones until today.

    Of a running system this is today only. The file stays as it is.

    Args:
        path: as for :meth:`DailySalt.load`.
        identity: as for :meth:`DailySalt.pseudonym`.
        today: UTC.
        days: maximum number of days before today.

    Raises:
        BadKeyFile: as :meth:`DailySalt.load`.
    """
    secret, day = _read_dated(path) or (SharedKey.load(path).digest(_FIRST), 0)
    last, found = (today - _EPOCH).days, {}
    # A file ahead of our clock has the salt of all processes ahead, too.
    for each in range(day, max(last, day) + 1):
        if each >= last - days:
            found[_EPOCH + timedelta(days=each)] = DailySalt(secret, each).pseudonym(identity)
        secret = hmac.digest(secret, _NEXT, "sha256")
    return found


def _read_dated(path: Path) -> tuple[bytes, int] | None:
    """Return the secret and day of a file ``<date>.<salt>``; None for any other content."""
    match = _DATED.fullmatch(read_private(path, MAX_CHARACTERS, missing=shared_key_remedy(path)).strip())
    if match is None:
        return None
    try:
        return bytes.fromhex(match[2].decode()), (date.fromisoformat(match[1].decode()) - _EPOCH).days
    except ValueError:
        return None
