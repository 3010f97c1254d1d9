"""Peers refused by this process, or refusing it: a log line per minute about each, and their list for ``/status``.

There are two kinds, peers with another internal key and peers without a version of the internal protocol in common.
The module owns one list of each for the process, as :mod:`diem.process.security_log` does for refused clients: dialers
and listeners report to them, on the event loop.
"""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from websockets.exceptions import InvalidStatus

from diem.links.mutual_auth import PeerNotAuthenticated
from diem.protocol.compatibility import OURS, Versions, remedy

LOG_EVERY_S: Final = 60.0
"""Seconds between two lines about one peer, and without a refusal until it is forgotten."""
MAX_PEERS: Final = 64
"""Maximum number of recorded peers of one kind; refusals of others are not recorded meanwhile."""
KEY_REMEDY: Final = (
    "this machine and that one need the same internal.key, or feed.key and metadata.key (DIEM_INTERNAL_KEY_FILE); "
    "if addresses are translated between them, DIEM_INTERNAL_ADDRESSES there"
)


@dataclass(slots=True)
class _Refusal:
    reason: str
    refused_at: float
    logged_at: float = -math.inf


class RefusedPeers:
    """Peers of one kind refused within the last minute, at most :data:`MAX_PEERS`.

    ``level`` is the level of the log lines; ``clock`` returns monotonic seconds.
    """

    def __init__(self, level: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._level = level
        self._clock = clock
        self._peers: dict[str, _Refusal] = {}

    def refuse(self, peer: str, reason: str, line: str) -> bool:
        """Record a refusal, and log ``line`` unless the peer had a line within the last minute.

        Return whether the peer is recorded.
        """
        now = self._clock()
        self._forget(now)
        if peer not in self._peers and len(self._peers) >= MAX_PEERS:
            return False
        refusal = self._peers.setdefault(peer, _Refusal(reason, now))
        refusal.reason, refusal.refused_at = reason, now
        if now - refusal.logged_at >= LOG_EVERY_S:
            refusal.logged_at = now
            structlog.get_logger("links").log(self._level, line, peer=peer)
        return True

    def accept(self, peer: str) -> None:
        """Forget a peer that is no longer refused."""
        self._peers.pop(peer, None)

    def reasons(self) -> dict[str, str]:
        """Return the reason of each peer's last refusal."""
        self._forget(self._clock())
        return {peer: refusal.reason for peer, refusal in self._peers.items()}

    def _forget(self, now: float) -> None:
        for peer in [peer for peer, refusal in self._peers.items() if now - refusal.refused_at > LOG_EVERY_S]:
            del self._peers[peer]


def _is_about_keys(error: Exception) -> bool:
    if isinstance(error, InvalidStatus):
        return error.response.status_code in {401, 403}
    return isinstance(error, PeerNotAuthenticated)


_other_keys: Final = RefusedPeers(logging.WARNING)
_other_versions: Final = RefusedPeers(logging.ERROR)


def refuse_key(peer: str, error: Exception) -> bool:
    """Report a failed dial, and return whether it is recorded as due to another key.

    Other failures are unrelated to keys: the record stays unchanged.
    """
    line = f"keys do not match: {error}; {KEY_REMEDY}"
    return _is_about_keys(error) and _other_keys.refuse(peer, str(error), line)


def accept_key(peer: str) -> None:
    """Report that both ends have proved the key."""
    _other_keys.accept(peer)


def keys_refused() -> dict[str, str]:
    """Return the field ``keys_refused`` of ``/status``: the peers whose keys do not match, and why."""
    return _other_keys.reasons()


def refuse_versions(peer: str, theirs: Versions) -> None:
    """Report a peer without a version of the internal protocol in common."""
    _other_versions.refuse(peer, theirs.announcement, remedy(theirs, peer))


def protocol() -> dict[str, Any]:
    """Return the field ``protocol`` of ``/status``: our versions, and the peers with others."""
    refused = _other_versions.reasons()
    return {**OURS._asdict(), **({"refused": refused} if refused else {})}
