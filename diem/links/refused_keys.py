"""Peers of this process with another internal key: a warning a minute for each, and their list for ``/status``.

The module owns one list for the process, as :mod:`diem.process.security_log` does for what is refused here: dialers
report to it, on the event loop.
"""

import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from websockets.exceptions import InvalidStatus

from diem.links.mutual_auth import PeerNotAuthenticated

WARN_EVERY_S: Final = 60.0
MAX_PEERS: Final = 64
"""Peers that are told apart; further ones are not reported."""
REMEDY: Final = (
    "this machine and that one need the same internal.key, or feed.key and metadata.key (DIEM_INTERNAL_KEY_FILE); "
    "if addresses are translated between them, DIEM_INTERNAL_ADDRESSES there"
)


@dataclass(slots=True)
class RefusedKeys:
    """Peer -> why a key was refused there, or there was no proof of one, at the last attempt."""

    peers: dict[str, str] = field(default_factory=dict)
    _warned_at: dict[str, float] = field(default_factory=dict)

    def refuse(self, peer: str, error: Exception) -> bool:
        """Report a failed attempt, and return whether keys were the reason.

        A failure of another kind says nothing about keys: what is known stays.
        """
        if not _is_about_keys(error) or (peer not in self._warned_at and len(self._warned_at) >= MAX_PEERS):
            return False
        self.peers[peer] = str(error)
        now = time.monotonic()
        if now - self._warned_at.get(peer, -WARN_EVERY_S) >= WARN_EVERY_S:
            self._warned_at[peer] = now
            structlog.get_logger("links").warning(f"keys do not match: {error}; {REMEDY}", peer=peer)
        return True

    def accept(self, peer: str) -> None:
        """Report that both ends have proved the key."""
        self.peers.pop(peer, None)
        self._warned_at.pop(peer, None)


def _is_about_keys(error: Exception) -> bool:
    if isinstance(error, InvalidStatus):
        return error.response.status_code in {401, 403}
    return isinstance(error, PeerNotAuthenticated)


_of_process: Final = RefusedKeys()
refuse = _of_process.refuse
accept = _of_process.accept


def current() -> dict[str, str]:
    """Return the peers whose keys do not match now, and why, for ``/status``."""
    return dict(_of_process.peers)
