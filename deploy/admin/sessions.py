"""Sign-in of the operator page: its key is exchanged for a session, with its token in a cookie."""

import secrets
from pathlib import Path
from typing import Final

import structlog

from diem.errors import DiemError
from diem.process.auth import BadKeyFile, SharedKey
from diem.process.clock import Clock
from diem.process.limits import TokenBucket

SESSION_S: Final = 12 * 3600
"""Lifetime of a session: one shift."""
MAX_SESSIONS: Final = 32
MAX_KEY_CHARACTERS: Final = 4096
WRONG_PER_S: Final = 0.2
WRONG_AT_ONCE: Final = 10
"""Limit of wrong keys over all clients, beyond which further ones are :class:`TooManyAttempts` for a while."""
TOKEN_BYTES: Final = 32


class WrongKey(DiemError):
    """The given key is not the page's."""


class TooManyAttempts(DiemError):
    """The key is wrong, after too many others. The right one is accepted at any time."""


class Sessions:
    """The sessions of one page. They end with the process, when the key is replaced, and after :data:`SESSION_S`.

    Args:
        file: file of the key, reread when it changes.
        clock: times sessions and attempts.

    Raises:
        BadKeyFile: from the constructor.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._key = SharedKey.load(file)
        self._stamp = _stamp(file)
        self._expiry: dict[bytes, float] = {}
        """Digest of a token under the key -> end, the oldest first: a copy of this memory opens nothing."""
        self._wrong = TokenBucket(WRONG_PER_S, WRONG_AT_ONCE)

    def open(self, key: str) -> str:
        """Return the token of a new session; with :data:`MAX_SESSIONS` sessions, the oldest ends.

        Raises:
            WrongKey: the key is wrong. TooManyAttempts: the key is wrong, after too many others.
        """
        now = self._clock.monotonic()
        self._refresh()
        # The key first: others must not lock out its holder.
        if len(key) > MAX_KEY_CHARACTERS or not self._key.matches(f"Bearer {key}"):
            if not self._wrong.take(now):
                raise TooManyAttempts("too many wrong keys")
            raise WrongKey("that is not the key")
        while len(self._expiry) >= MAX_SESSIONS:
            del self._expiry[next(iter(self._expiry))]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._expiry[self._digest(token)] = now + SESSION_S
        return token

    def is_open(self, token: str) -> bool:
        """Return whether a token belongs to an open session."""
        self._refresh()
        digest = self._digest(token)
        end = self._expiry.get(digest)
        if end is not None and self._clock.monotonic() >= end:
            del self._expiry[digest]
            return False
        return end is not None

    def close(self, token: str) -> None:
        """End a session; no-op for an unknown token."""
        self._expiry.pop(self._digest(token), None)

    def _digest(self, token: str) -> bytes:
        return self._key.digest(token.encode("utf-8", "replace"))

    def _refresh(self) -> None:
        """Read a changed key, ending all sessions; if unreadable, the last one stays in force."""
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._key = SharedKey.load(self._file)
        except BadKeyFile as error:
            structlog.get_logger("admin").warning("the key was not read again: the last one stays", error=str(error))
        else:
            self._expiry.clear()


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
