"""Retained frames of a proxy in shared mode, and their fan-out to its clients. Pure."""

from collections.abc import Iterable, Mapping
from itertools import islice

from diem.fanout.fanout import Fanout
from diem.fanout.feed_hub import Subscribed
from diem.fanout.feed_state import FeedCounts, Retained
from diem.fanout.session import Session
from diem.protocol import messages
from proxy.frames import frames_of, read_update


class Relay:
    """The latest frame of every endpoint that a client here wants, and of no other.

    Only a greater version counts, as everywhere; so two servers that send the same endpoint are harmless.

    Args:
        limit: subscriptions that one session may hold.
    """

    def __init__(self, fanout: Fanout, *, limit: int) -> None:
        self.retained: dict[bytes, Retained] = {}
        self.counts = FeedCounts()
        self.conflated = 0
        """Updates that arrived in one chunk with a later one of the same endpoint."""
        self._fanout = fanout
        self._limit = limit
        self._wanted: set[bytes] = set()
        self._announced: set[bytes] = set()
        """Wanted endpoints of which a server has a version; its update follows."""

    def retain(self, names: Iterable[str]) -> None:
        """Retain these endpoints from now on."""
        self._wanted.update(name.encode() for name in names)

    def forget(self, names: Iterable[str]) -> None:
        """Drop endpoints that no client wants any more."""
        for name in names:
            endpoint = name.encode()
            self._wanted.discard(endpoint)
            self._announced.discard(endpoint)
            self.retained.pop(endpoint, None)

    def announce(self, versions: Mapping[str, int | None]) -> None:
        """Note which endpoints have a version at their server."""
        for name, version in versions.items():
            if version is not None and (endpoint := name.encode()) in self._wanted:
                self._announced.add(endpoint)

    def has_version(self, endpoint: bytes) -> bool:
        """Return whether there is an update of an endpoint, here or at its server."""
        return endpoint in self._announced or endpoint in self.retained

    def version(self, name: str) -> int | None:
        """Return the retained version, None without one."""
        retained = self.retained.get(name.encode())
        return None if retained is None else retained.version

    def subscribe(self, session: Session, known: Mapping[str, int]) -> Subscribed:
        """Register a session for endpoints, given the versions that its client holds (0 = none)."""
        answer = Subscribed({}, {}, [])
        registry = self._fanout.registry
        before = len(session.endpoints)
        for name, version in known.items():
            endpoint = name.encode()
            if len(session.endpoints) >= self._limit and endpoint not in session.endpoints:
                answer.rejected[name] = messages.over_limit(self._limit)
                continue
            session.endpoints[registry.add(endpoint, session)] = None
            retained = self.retained.get(endpoint)
            answer.endpoints[name] = retained.version if retained else None
            if retained and retained.version > version:
                answer.replay.append(retained.value)
        self._fanout.stats.offered += len(answer.replay)
        if session.visit is not None and len(session.endpoints) > before:
            new = list(islice(session.endpoints, before, None))
            session.visit.subscribed(new, [endpoint for endpoint in new if not self.has_version(endpoint)])
        return answer

    def apply(self, data: bytes, frames: int) -> None:
        """Retain and deliver ``frames`` update frames of one server: one batch, so one write for each client.

        Raises:
            BadFrame: one has no endpoint or version; those before it are delivered.
        """
        fresh: dict[bytes, bytes] = {}
        retained, wanted, counts = self.retained, self._wanted, self.counts
        counts.consumed += frames
        try:
            for frame in frames_of(data):
                endpoint, version, _ = read_update(frame)
                known = retained.get(endpoint)
                if known is not None and version <= known.version:
                    counts.stale += 1
                elif endpoint in wanted:
                    self.conflated += endpoint in fresh
                    retained[endpoint] = Retained(version, frame)
                    fresh[endpoint] = frame
                else:
                    self._fanout.not_subscribed += 1
        finally:
            self._fanout.publish_frames(fresh)
