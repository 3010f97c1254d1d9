"""Pure: the hub of a proxy in shared mode: the server's own fan-out, of frames that come ready made."""

from diem.fanout.hub import Hub
from diem.fanout.state import Retained
from proxy.frames import frames_of, read_update


class Relay(Hub):
    """Retains the latest frame of every endpoint that somebody here wants, and of no other.

    Only a greater version counts, as everywhere; so two servers that send the same endpoint are harmless.
    """

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._wanted: set[bytes] = set()
        self._announced: set[bytes] = set()
        """Of these, those that a server has answered for with a version; its update follows."""
        self.conflated = 0
        """Updates that a later one of the same endpoint came along with."""

    def want(self, name: str) -> None:
        """Retain an endpoint from now on."""
        self._wanted.add(name.encode())

    def forget(self, name: str) -> None:
        """Nobody wants it any more."""
        endpoint = name.encode()
        self._wanted.discard(endpoint)
        self._announced.discard(endpoint)
        self.state.retained.pop(endpoint, None)

    def announce(self, name: str) -> None:
        """A server has a version of an endpoint."""
        if (endpoint := name.encode()) in self._wanted:
            self._announced.add(endpoint)

    def has_version(self, endpoint: bytes) -> bool:
        """Whether there is an update of an endpoint, here or at its server."""
        return endpoint in self._announced or super().has_version(endpoint)

    def retained(self, name: str) -> int | None:
        """The version that is retained, None without one."""
        retained = self.state.retained.get(name.encode())
        return None if retained is None else retained.version

    def updates(self, data: bytes, frames: int) -> None:
        """Take so many frames of one server: one batch, so one write for each client.

        Raises:
            BadFrame: one has no endpoint or version; those before it are delivered.
        """
        fresh: dict[bytes, bytes] = {}
        retained, wanted, counts = self.state.retained, self._wanted, self.state.counts
        counts.consumed += frames
        try:
            for frame in frames_of(data):
                endpoint, version, start = read_update(frame)
                known = retained.get(endpoint)
                if known is not None and version <= known.version:
                    counts.stale += 1
                elif endpoint in wanted:
                    self.conflated += endpoint in fresh
                    retained[endpoint] = Retained(version, frame[start:])
                    fresh[endpoint] = frame
                else:
                    self.not_subscribed += 1
        finally:
            self._fan_out(fresh)

    def _fan_out(self, fresh: dict[bytes, bytes]) -> None:
        frames = {endpoint: fresh[endpoint] for endpoint in self.registry.wanted(fresh)}
        self.fanned_out += len(frames)
        self.not_subscribed += len(fresh) - len(frames)
        if self.tally is not None:
            self._count(self.tally, fresh, frames)
        if frames:
            self._deliver(frames)
