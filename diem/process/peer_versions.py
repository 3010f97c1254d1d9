"""Peers with which this process has no version of the internal protocol in common: one line a minute each, and status.

Like :mod:`~diem.process.security_log`, the state is that of the process: every dialer and listener reports to it.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

from diem.protocol.compatibility import OURS, Versions, remedy

LOG_EVERY_S: Final = 60.0
"""Seconds between two lines about one peer; a peer that was not refused for so long is forgotten."""
MAX_PEERS: Final = 64
"""Peers that are told apart; the refusals of others are not shown while these last."""


class RefusedPeers:
    """Peers that were refused lately. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._peers: dict[str, tuple[Versions, float, float]] = {}
        """Address -> its versions, the time of the last refusal, and of the last line."""

    def refuse(self, peer: str, theirs: Versions) -> None:
        """Record a refusal, and log it unless there was a line about the peer within the last minute."""
        now = self._clock()
        self._forget(now)
        if peer not in self._peers and len(self._peers) >= MAX_PEERS:
            return
        _, _, logged_at = self._peers.get(peer, (theirs, now, -math.inf))
        due = now - logged_at >= LOG_EVERY_S
        self._peers[peer] = theirs, now, now if due else logged_at
        if due:
            structlog.get_logger("links").error(remedy(theirs, peer))

    def status(self) -> dict[str, Any]:
        """Return the field ``protocol`` of ``/status``."""
        self._forget(self._clock())
        refused = {peer: theirs.announcement for peer, (theirs, _, _) in self._peers.items()}
        return {**OURS._asdict(), **({"refused": refused} if refused else {})}

    def _forget(self, now: float) -> None:
        for peer in [peer for peer, (_, refused_at, _) in self._peers.items() if now - refused_at > LOG_EVERY_S]:
            del self._peers[peer]


_OF_PROCESS: Final = RefusedPeers(time.monotonic)
refuse: Final = _OF_PROCESS.refuse
status: Final = _OF_PROCESS.status
