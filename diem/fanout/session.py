"""One client's side of the fan-out: its endpoints, and conflation while blocked."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from diem.fanout.read_meter import UNMETERED, ReadMeter
from diem.protocol.frames import conflation_key, conflation_keys, frame_has_data, frames_of, is_older_update


@dataclass(slots=True)
class DeliveryStats:
    """Counts over all sessions of a process (invariant I14): offered = sent + conflated + dropped + still held."""

    offered: int = 0
    conflated: int = 0
    dropped: int = 0
    held: int = 0
    replies_without_data: int = 0
    """Retained updates sent without their data because the client's allowance was used up."""

    @property
    def sent(self) -> int:
        """Frames passed to a transport."""
        return self.offered - self.conflated - self.dropped - self.held


class ClientTrace(Protocol):
    """Records the subscriptions of one client."""

    def identified(self, client: str) -> None:
        """Set the client's self-chosen id, before its first subscription; later ones are ignored."""
        ...

    def subscribed(self, endpoints: Sequence[bytes], unknown: Collection[bytes] = ()) -> None:
        """Record new subscriptions; this server has no version of the ``unknown`` ones."""
        ...

    def unsubscribed(self, endpoints: Sequence[bytes]) -> None:
        """Record the end of subscriptions."""
        ...

    def ended(self) -> None:
        """Record the end of the client, and of all its subscriptions."""
        ...


class Session:
    """One client's endpoints, and the outbox of its connection.

    ``send(frame)`` and ``send_many(frames)`` are the fan-out path: while the connection accepts data they *are* the
    transport's own methods, so that a delivery is one call. :meth:`block` replaces them by conflation, which holds the
    update with the greatest version, the latest ``resync`` and the latest ``moved`` of each endpoint, at most three
    frames, until :meth:`unblock` sends them.

    ``exempt``: the session is a proxy's, which subscribes for many clients; the limits of one client do not apply.
    ``compressed``: the client reads compressed frames.
    """

    __slots__ = (
        "_held",
        "_stats",
        "_write",
        "_writelines",
        "admit_data",
        "compressed",
        "endpoints",
        "exempt",
        "meter",
        "recently_sent",
        "send",
        "send_many",
        "trace",
    )

    def __init__(
        self,
        write: Callable[[bytes], None],
        writelines: Callable[[Iterable[bytes]], None],
        stats: DeliveryStats,
        *,
        exempt: bool = False,
        compressed: bool = False,
    ) -> None:
        self.exempt = exempt
        self.compressed = compressed
        self._stats = stats
        self._held: dict[bytes, bytes] | None = None
        self._write = self.send = write
        self._writelines = self.send_many = writelines
        self.endpoints: dict[bytes, bool] = {}
        """Subscribed endpoints, and whether the client asked for their data."""
        self.meter: ReadMeter = UNMETERED
        """Counts the data that it is sent; changed by :meth:`~diem.fanout.fanout.Fanout.set_meter` only."""
        self.admit_data: Callable[[int], bool] | None = None
        """Return whether a reply to the client may have so many more bytes of data; None: without a bound."""
        self.recently_sent = False
        """A frame was sent since a heartbeat last cleared this; not every path sets it."""
        self.trace: ClientTrace | None = None
        """None unless traffic is recorded, and for proxies, which record their clients themselves."""

    @property
    def blocked(self) -> bool:
        """True while frames are held."""
        return self._held is not None

    @property
    def held(self) -> int:
        """Number of held frames, at most three per endpoint."""
        return len(self._held) if self._held is not None else 0

    def block(self) -> None:
        """Hold and conflate frames from now on; idempotent."""
        if self._held is None:
            self._held = {}
            # The bound methods refer to the session: a reference cycle until unblock or close.
            self.send = self._hold
            self.send_many = self._hold_many

    def unblock(self) -> None:
        """Send the held frames, oldest change first, and return to direct delivery."""
        if self._held is not None:
            held, self._held = self._held, None
            self._stats.held -= len(held)
            self._correct(held.values(), held=-1)
            self.send, self.send_many = self._write, self._writelines
            if held:
                self.send_many(held.values())

    def holds(self, endpoint: bytes) -> bool:
        """Return whether a frame of an endpoint is held."""
        held = self._held
        return held is not None and any(key in held for key in conflation_keys(endpoint))

    def forget(self, endpoint: bytes) -> None:
        """Drop the held frames of an unsubscribed endpoint."""
        if not self._held:
            return
        dropped = [held for key in conflation_keys(endpoint) if (held := self._held.pop(key, None)) is not None]
        self._stats.held -= len(dropped)
        self._stats.dropped += len(dropped)
        self._correct(dropped, reads=-1, held=-1)

    def drop(self, frames: Collection[bytes]) -> None:
        """Drop offered frames whose data was counted."""
        _drop(self._stats, self.meter, frames)

    def count_held(self, times: int) -> None:
        """Count the data of the held frames at the meter; with -1, undo that."""
        if self._held:
            self._correct(self._held.values(), reads=times, held=times)

    def close(self) -> None:
        """Drop the held frames and all further ones: the connection is gone."""
        if self._held:
            self._stats.held -= len(self._held)
            self._stats.dropped += len(self._held)
            self.count_held(-1)
        self._held = None
        self.admit_data = None
        # No methods of the session: they would be a reference cycle for the life of every closed one.
        self.send = partial(_drop_run, self._stats, self.meter)
        self.send_many = partial(_drop, self._stats, self.meter)
        self._write, self._writelines = self.send, self.send_many

    def _hold(self, frame: bytes) -> None:
        held = self._held
        assert held is not None  # noqa: S101 - _hold is only ever bound while _held is a map
        key = conflation_key(frame)
        before = held.get(key)
        if before is None:
            self._stats.held += 1
            self._correct((frame,), held=1)
        else:
            self._stats.conflated += 1
            # While an endpoint moves, two servers send it, one lagging. Updates of equal length, both compressed or
            # neither, are equal up to the version, so comparing the frames decides most cases.
            alike = len(frame) == len(before) and frame[0] == before[0]
            older = (frame < before or not alike) and is_older_update(frame, before)
            # Both were counted on arrival at this session, and one will not be sent.
            if older:
                self._correct((frame,), reads=-1)
                return
            self._correct((before,), reads=-1, held=-1)
            self._correct((frame,), held=1)
            # Removed first, to keep the map ordered by latest change.
            del held[key]
        held[key] = frame

    def _hold_many(self, frames: Iterable[bytes]) -> None:
        hold = self._hold
        for frame in frames:
            hold(frame)

    def _correct(self, frames: Iterable[bytes], *, reads: int = 0, held: int = 0) -> None:
        _correct(self.meter, frames, reads=reads, held=held)


def _drop_run(stats: DeliveryStats, meter: ReadMeter, run: bytes) -> None:
    _drop(stats, meter, frames_of(run))


def _drop(stats: DeliveryStats, meter: ReadMeter, frames: Iterable[bytes]) -> None:
    dropped = [*frames]
    stats.dropped += len(dropped)
    _correct(meter, dropped, reads=-1)


def _correct(meter: ReadMeter, frames: Iterable[bytes], *, reads: int = 0, held: int = 0) -> None:
    """Count the data of these frames at a meter, this many times."""
    if meter.parts:
        datasets = sum(map(frame_has_data, frames))
        meter.add(reads * datasets, held=held * datasets)
