"""The secret that makes pseudonyms, another one each day (UTC)."""

import hmac
import os
import re
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Self

import structlog

from diem.process.auth import MAX_CHARACTERS, SharedKey, read_private

DAY_MS: Final = 86_400_000
PSEUDONYM_BYTES: Final = 8

_FIRST: Final = b"diem.traffic.salt"
_NEXT: Final = b"diem.traffic.next-day"
_EPOCH: Final = date(1970, 1, 1)
_DATED: Final = re.compile(rb"(\d{4}-\d\d-\d\d)\.([0-9a-f]{64})")

_logger = structlog.get_logger("traffic")


class DailySalt:
    """The secret of one day, which goes forward only: that of the next day is the HMAC of it, and replaces it.

    So nobody can compute the pseudonyms of earlier days, not even with the file; and all processes whose files come
    from one original have the same salt on each day, without asking each other.

    Args:
        secret: the salt of ``day``.
        day: days since 1970 (UTC).
        path: the file, which is rewritten when the day changes; None: there is none.
    """

    def __init__(self, secret: bytes, day: int, path: Path | None = None) -> None:
        self._secret = secret
        self._path = path
        self.day = day

    @classmethod
    def load(cls, path: Path, now_ms: int) -> Self:
        """Return today's salt from a file: ``<date>.<salt>`` as written here, or any key, which is that of 1970-01-01.

        Raises:
            BadKeyFile: it is unreadable, another user's, readable by others, or not a key.
        """
        match = _DATED.fullmatch(read_private(path, MAX_CHARACTERS).strip())
        try:
            day = (date.fromisoformat(match[1].decode()) - _EPOCH).days if match is not None else 0
        except ValueError:
            match, day = None, 0
        secret = SharedKey.load(path).digest(_FIRST) if match is None else bytes.fromhex(match[2].decode())
        salt = cls(secret, day, path)
        salt.advance(now_ms)
        return salt

    def advance(self, now_ms: int) -> bool:
        """Go on to the day of ``now_ms`` (Unix milliseconds); return whether the salt has changed."""
        days = now_ms // DAY_MS - self.day
        if days <= 0:
            return False
        for _ in range(days):
            self._secret = hmac.digest(self._secret, _NEXT, "sha256")
        self.day += days
        self._write()
        return True

    def pseudonym(self, identity: bytes) -> bytes:
        """Return the pseudonym of an identity on this day: 8 bytes."""
        return hmac.digest(self._secret, identity, "sha256")[:PSEUDONYM_BYTES]

    def _write(self) -> None:
        """Replace the file; processes that do so at the same time write the same."""
        if self._path is None:
            return
        try:
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=".salt-")  # mode 0600
            with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(f"{_EPOCH + timedelta(days=self.day)}.{self._secret.hex()}\n")
            os.replace(name, self._path)  # noqa: PTH105
        except OSError as error:
            # A read-only file of a deployment: its secret makes all pseudonyms since the day that it is of.
            _logger.warning("the salt of earlier days stays in its file", path=str(self._path), error=str(error))
