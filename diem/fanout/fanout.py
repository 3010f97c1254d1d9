"""Fan-out: the registry of subscriptions, and the delivery of frames to subscribed sessions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import chain
from typing import Generic, TypeVar

from diem.fanout.compressed_frames import CompressedFrames
from diem.fanout.read_meter import UNMETERED, Metered, ReadMeter
from diem.fanout.session import DeliveryStats, Session
from diem.protocol import messages
from diem.protocol.deflate import deflated_frame
from diem.protocol.frames import frame_has_data, frame_without_data, payload_offset, text_frame
from diem.protocol.update import has_data, without_data

S = TypeVar("S", bound=Metered)


class UpdateCounter:
    """Counts of one interval by endpoint: updates received here, and frames delivered for them."""

    def __init__(self) -> None:
        self._received: dict[bytes, int] = {}
        self._delivered: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._received)

    def receive(self, endpoints: Iterable[bytes]) -> None:
        """Count one update of each. Hot path: one lookup and one addition per endpoint."""
        received = self._received
        known = received.get
        for endpoint in endpoints:
            received[endpoint] = known(endpoint, 0) + 1

    def deliver(self, endpoint: bytes, sessions: int) -> None:
        """Count the delivery of an update to ``sessions`` sessions."""
        self._delivered[endpoint] = self._delivered.get(endpoint, 0) + sessions

    def swap(self) -> "UpdateCounter":
        """Return the counts so far as another counter, and reset this one."""
        done = UpdateCounter()
        done._received, self._received = self._received, {}
        done._delivered, self._delivered = self._delivered, {}
        return done

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        """Iterate over endpoint, updates received, frames delivered."""
        for endpoint, number in self._received.items():
            yield endpoint, number, self._delivered.get(endpoint, 0)


class _Subscribers(set[S]):
    """One endpoint's subscribers without data, those with data, and their shared copy of its name."""

    __slots__ = ("compressed", "endpoint", "meters", "with_data")
    endpoint: bytes
    with_data: "set[S] | None"
    """None instead of an empty set."""
    compressed: "set[S] | None"
    """Like ``with_data``."""
    meters: dict[ReadMeter, int] | None
    """Subscribers with data, compressed or not, by meter. None instead of an empty map."""


class Variant(IntEnum):
    """Variant of an update for a subscriber."""

    WITHOUT_DATA = 0
    WITH_DATA = 1
    COMPRESSED = 2
    """With data, compressed."""


def variant_for(session: Session, *, with_data: bool) -> Variant:
    """Return the variant for a session that subscribes with or without data; without if its quota is used up."""
    if not with_data or session.meter.used_up:
        return Variant.WITHOUT_DATA
    return Variant.COMPRESSED if session.compressed else Variant.WITH_DATA


class Registry(Generic[S]):
    """Subscriptions as a compact map endpoint -> set of subscribers, which may change at any time.

    Fan-out iterates over the sets without copying: :meth:`iterating` defers changes to its end, so a disconnect during
    the loop is harmless. One loop causes at most one deferred change per subscriber and endpoint.
    """

    def __init__(self) -> None:
        self._subscribers: dict[bytes, _Subscribers[S]] = {}
        self._iterating = False
        self._deferred: list[tuple[Variant | None, bytes, S]] = []
        """Variant None: the end of a subscription."""
        self.entries = 0
        """Number of subscriptions: the sum of the subscribers of all endpoints."""
        self.metered = 0
        """Number of those whose data is counted."""
        self.on_change: Callable[[bytes], None] | None = None
        """Called with an endpoint that is about to have its first subscriber, or has lost its last."""

    def __len__(self) -> int:
        return len(self._subscribers)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over a copy of the endpoints with subscribers: the registry may change meanwhile."""
        return iter(list(self._subscribers))

    def __contains__(self, endpoint: bytes) -> bool:
        return endpoint in self._subscribers

    def subscribers(self, endpoint: bytes) -> Collection[S]:
        """Return the subscribers of an endpoint, possibly the live set: iterate over it within :meth:`iterating`."""
        found = self._subscribers.get(endpoint)
        if found is None:
            return ()
        if found.with_data is None and found.compressed is None:
            return found
        return [*found, *(found.with_data or ()), *(found.compressed or ())]

    def by_variant(self, endpoint: bytes) -> tuple[Collection[S], Collection[S], Collection[S]]:
        """Return the subscribers of each :class:`Variant`, in its order, as :meth:`subscribers` returns all."""
        found = self._subscribers.get(endpoint)
        return ((), (), ()) if found is None else (found, found.with_data or (), found.compressed or ())

    def subscribed(self, endpoints: Iterable[bytes]) -> list[bytes]:
        """Return those of ``endpoints`` that have subscribers, in the same order."""
        held = self._subscribers
        return [endpoint for endpoint in endpoints if endpoint in held]

    def add(self, endpoint: bytes, subscriber: S, variant: Variant = Variant.WITHOUT_DATA) -> bytes:
        """Subscribe; a repeat only sets the variant. Return the shared copy of the name, to be kept."""
        if self._iterating:
            self._deferred.append((variant, endpoint, subscriber))
            return endpoint
        found = self._subscribers.get(endpoint)
        if found is None:
            found = self._subscribers[endpoint] = _Subscribers()
            found.endpoint, found.with_data, found.compressed, found.meters = endpoint, None, None, None
            if self.on_change is not None:
                self.on_change(endpoint)
        self.entries += 1 - self._remove(found, subscriber)
        if variant == Variant.WITHOUT_DATA:
            found.add(subscriber)
            return found.endpoint
        self._count(found, subscriber.meter, 1)
        if variant == Variant.WITH_DATA:
            found.with_data = found.with_data or set()
            found.with_data.add(subscriber)
        else:
            found.compressed = found.compressed or set()
            found.compressed.add(subscriber)
        return found.endpoint

    def discard(self, endpoint: bytes, subscriber: S) -> None:
        """Unsubscribe; a no-op if not subscribed. The last subscriber removes the endpoint."""
        if self._iterating:
            self._deferred.append((None, endpoint, subscriber))
            return
        found = self._subscribers.get(endpoint)
        if found is None:
            return
        self.entries -= self._remove(found, subscriber)
        if not found and found.with_data is None and found.compressed is None:
            del self._subscribers[endpoint]
            if self.on_change is not None:
                self.on_change(endpoint)

    def _remove(self, found: _Subscribers[S], subscriber: S) -> bool:
        """Remove a subscriber from its set; return whether it was in one."""
        if subscriber in found:
            found.discard(subscriber)
            return True
        if found.with_data is not None and subscriber in found.with_data:
            found.with_data.discard(subscriber)
            found.with_data = found.with_data or None
        elif found.compressed is not None and subscriber in found.compressed:
            found.compressed.discard(subscriber)
            found.compressed = found.compressed or None
        else:
            return False
        self._count(found, subscriber.meter, -1)
        return True

    def _count(self, found: _Subscribers[S], meter: ReadMeter, change: int) -> None:
        if meter is not UNMETERED:
            meters = found.meters or {}
            for part in meter.parts:
                part.subscriptions += change
                meters[part] = meters.get(part, 0) + change
                if not meters[part]:
                    del meters[part]
            found.meters = meters or None
            self.metered += change

    def meters(self, endpoint: bytes) -> Mapping[ReadMeter, int] | None:
        """Return the number of subscribers with data by meter; None if nothing is metered."""
        found = self._subscribers.get(endpoint)
        return None if found is None else found.meters

    def set_meter(self, subscriber: S, endpoints: Iterable[bytes], meter: ReadMeter) -> None:
        """Count the data of a subscriber with another meter from now on; ``endpoints`` are its subscriptions."""
        before, subscriber.meter = subscriber.meter, meter
        for endpoint in endpoints:
            found = self._subscribers.get(endpoint)
            if found is not None and subscriber not in found:
                self._count(found, before, -1)
                self._count(found, meter, 1)

    @contextmanager
    def iterating(self) -> Iterator[None]:
        """Freeze the sets during the block; its changes are applied in order at the end."""
        self._iterating = True
        try:
            yield
        finally:
            self._iterating = False
            deferred, self._deferred = self._deferred, []
            for variant, endpoint, subscriber in deferred:
                if variant is None:
                    self.discard(endpoint, subscriber)
                else:
                    self.add(endpoint, subscriber, variant)


Delivery = tuple[bytes, Collection[Session]]
"""A frame and its receivers."""


class UpdateFrames:
    """Builds the frames of updates; :meth:`get` returns the one for a :class:`Variant`.

    Args:
        framed: updates are frames already, as a proxy receives them.
    """

    def __init__(self, *, framed: bool = False) -> None:
        self.without_data: Callable[[bytes, bytes], bytes]
        self.with_data: Callable[[bytes, bytes], bytes]
        self.has_data: Callable[[bytes, bytes], bool]
        if framed:
            self.has_data = lambda _, frame: frame_has_data(frame)
            self.without_data = frame_without_data
            self.with_data = lambda _, frame: frame
            self.cache = CompressedFrames(
                lambda endpoint, frame: deflated_frame(endpoint, frame[payload_offset(frame) :])
            )
        else:
            self.has_data = has_data
            self.without_data = lambda endpoint, update: text_frame(without_data(endpoint, update))
            self.with_data = lambda _, update: text_frame(update)
            self.cache = CompressedFrames(deflated_frame)
        self.compressed = self.cache.get

    def get(self, endpoint: bytes, update: bytes, variant: Variant) -> bytes:
        """Return the frame of an ``update`` of ``endpoint``."""
        if variant == Variant.WITHOUT_DATA:
            return self.without_data(endpoint, update)
        return (self.with_data if variant == Variant.WITH_DATA else self.compressed)(endpoint, update)


def resyncs(names: Iterable[str]) -> list[bytes]:
    """Return one frame of ``resync`` for each endpoint, so that a later one of the same endpoint conflates it."""
    return [text_frame(messages.resync([name])) for name in names]


class Fanout:
    """Sessions, their subscriptions, and delivery; the state of endpoints is in ``feed_hub`` and the proxy.

    Args:
        everyone: send every update to every session, subscribed or not (the baseline mode ``all-to-all``), except to
            restricted sessions.
        framed: updates are frames already, as a proxy receives them.
    """

    def __init__(self, *, everyone: bool = False, framed: bool = False) -> None:
        self.registry: Registry[Session] = Registry()
        self.sessions: set[Session] = set()
        self.stats = DeliveryStats()
        self.not_subscribed = 0
        """Fresh updates without subscribers."""
        self.delivered = 0
        """Fresh updates delivered to at least one session."""
        self.frames = UpdateFrames(framed=framed)
        self.update_counter: UpdateCounter | None = None
        """Counts updates by endpoint; None unless traffic is recorded."""
        self._everyone = everyone
        self._restricted: set[Session] = set()
        """With ``everyone``: sessions that are sent only what they are subscribed to."""
        self._metered: dict[ReadMeter, set[Session]] = {}
        """Sessions by each meter that counts their data."""
        self._used_up: set[ReadMeter] = set()
        """Accounts whose lease was used up, and whose clients are still in the registry as those who are sent data."""

    def join(self, session: Session) -> None:
        """Add the session of a newly connected client."""
        self.sessions.add(session)

    def restrict(self, session: Session, *, restricted: bool) -> None:
        """Restrict a session to its subscriptions because it may not read everything, or lift that."""
        if not restricted:
            self._restricted.discard(session)
        elif self._everyone:
            self._restricted.add(session)

    def set_meter(self, session: Session, meter: ReadMeter) -> None:
        """Count the data of a session with another meter from now on."""
        if meter is not session.meter:
            session.count_held(-1)
            self._leave_meter(session)
            self.registry.set_meter(session, session.endpoints, meter)
            for part in meter.parts:
                self._metered.setdefault(part, set()).add(session)
                part.clients += 1
            session.count_held(1)
            self.apply_quota(session)

    def _leave_meter(self, session: Session) -> None:
        for part in session.meter.parts:
            sessions = self._metered.get(part, set())
            if session in sessions:
                sessions.discard(session)
                part.clients -= 1
            if not sessions:
                self._metered.pop(part, None)

    def apply_quotas(self, meters: Iterable[ReadMeter]) -> None:
        """Send the clients of some accounts the data they requested, or none where a lease is used up."""
        for meter in meters:
            for session in self._metered.get(meter, ()):
                self.apply_quota(session)

    def apply_quota(self, session: Session) -> None:
        """Send a session the data it requested from now on, or none if its meter's lease is used up."""
        for endpoint, with_data in session.endpoints.items():
            if with_data:
                self.registry.add(endpoint, session, variant_for(session, with_data=True))

    def replayed(self, session: Session, endpoint: bytes, update: bytes, variant: Variant) -> bytes:
        """Return the frame of a retained update for a new subscriber, and count its data.

        It has none once the client's allowance is used up.
        """
        if variant != Variant.WITHOUT_DATA and self.frames.has_data(endpoint, update):
            if not session.meter.spend(1):
                self._used_up.update(part for part in session.meter.parts if part.exhausted)
                variant = Variant.WITHOUT_DATA
            elif session.admit_data is not None and not session.admit_data(len(update)):
                session.meter.add(-1, held=0)
                self.stats.replies_without_data += 1
                variant = Variant.WITHOUT_DATA
        return self.frames.get(endpoint, update, variant)

    def leave(self, session: Session) -> None:
        """Remove a session with all of its subscriptions."""
        self.sessions.discard(session)
        self._restricted.discard(session)
        self._leave_meter(session)
        for endpoint in session.endpoints:
            self.registry.discard(endpoint, session)
        session.endpoints.clear()
        session.close()

    def unsubscribe_refused(self, session: Session, allows: Callable[[str], bool]) -> list[str]:
        """Remove a session from the endpoints that ``allows`` refuses, and return them."""
        refused = [name for endpoint in session.endpoints if not allows(name := endpoint.decode())]
        self.unsubscribe(session, refused)
        return refused

    def unsubscribe(self, session: Session, names: Iterable[str]) -> None:
        """Remove a session from endpoints, including its held frames for them."""
        leaving = dict.fromkeys(name.encode(errors="replace") for name in names)
        if session.trace is not None and (subscribed := [each for each in leaving if each in session.endpoints]):
            session.trace.unsubscribed(subscribed)
        for endpoint in leaving:
            session.endpoints.pop(endpoint, None)
            self.registry.discard(endpoint, session)
            session.forget(endpoint)

    def broadcast(self, frame: bytes) -> None:
        """Send a frame to every unblocked session; blocked ones are sent the state on unblocking."""
        for session in self.sessions:
            if not session.blocked:
                self.stats.offered += 1
                session.send(frame)
                session.recently_sent = True

    def publish(self, fresh: Mapping[bytes, bytes], counter: UpdateCounter | None = None) -> None:
        """Deliver endpoint -> update; an update without subscribers costs one lookup."""
        to_all = self._everyone and len(self.sessions) > len(self._restricted)
        wanted: Collection[bytes] = fresh if to_all else self.registry.subscribed(fresh)
        self.delivered += len(wanted)
        self.not_subscribed += len(fresh) - len(wanted)
        if counter is not None:
            self._count(counter, fresh, wanted)
        frames = self.frames
        if self._everyone:
            self._deliver_to_all({e: frames.without_data(e, fresh[e]) for e in wanted}, fresh)
            self._end_data()
            return
        metered = self.registry.metered > 0
        deliveries: list[Delivery] = []
        for endpoint in wanted:
            update = fresh[endpoint]
            others, with_data, compressed = self.registry.by_variant(endpoint)
            if metered and (with_data or compressed):
                others, with_data, compressed = self._charge(endpoint, update)
            if others:
                deliveries.append((frames.without_data(endpoint, update), others))
            if with_data:
                deliveries.append((frames.with_data(endpoint, update), with_data))
            if compressed:
                deliveries.append((frames.compressed(endpoint, update), compressed))
        self._deliver(deliveries)
        self._end_data()

    def _charge(self, endpoint: bytes, update: bytes) -> tuple[Collection[Session], ...]:
        """Count the data of an update before sending it: one addition per account, not per receiver.

        Return the receivers of each :class:`Variant`, in its order; those with a used-up lease are among those without
        data.
        """
        variants, meters = self.registry.by_variant(endpoint), self.registry.meters(endpoint)
        if meters is None or not self.frames.has_data(endpoint, update):
            return variants
        short = [meter for meter, receivers in meters.items() if not meter.admits(receivers)]
        if not short:
            for meter, receivers in meters.items():
                meter.reads += receivers
            return variants
        # Moved in the registry after the delivery, which iterates over its sets.
        self._used_up.update(short)
        others, *with_data = variants
        refused = [session for variant in with_data for session in variant if session.meter.used_up]
        admitted = [[session for session in variant if not session.meter.used_up] for variant in with_data]
        for session in chain.from_iterable(admitted):
            for part in session.meter.parts:
                part.reads += 1
        return ([*others, *refused], *admitted)

    def _end_data(self) -> None:
        """Stop sending data to the clients of accounts with a used-up lease."""
        used_up, self._used_up = self._used_up, set()
        self.apply_quotas(used_up)

    def resync(self, endpoints: Iterable[bytes]) -> None:
        """Send ``resync``, so that subscribers fetch these endpoints whatever version they hold."""
        subscribed = self.registry.subscribed(endpoints)
        frames = dict(zip(subscribed, resyncs(each.decode() for each in subscribed), strict=True))
        if self._everyone:
            self._deliver_to_all(frames, {})
            return
        parts = self.registry.by_variant
        self._deliver([(frame, part) for e, frame in frames.items() for part in parts(e) if part])

    def _count(self, counter: UpdateCounter, fresh: Iterable[bytes], wanted: Iterable[bytes]) -> None:
        counter.receive(fresh)
        for endpoint in wanted:
            counter.deliver(endpoint, self.receivers(endpoint))

    def receivers(self, endpoint: bytes) -> int:
        """Return the number of sessions that an update of an endpoint is sent to."""
        subscribers = self.registry.subscribers(endpoint)
        if not self._everyone:
            return len(subscribers)
        return len(self.sessions) - sum(session not in subscribers for session in self._restricted)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Send frames to their receivers, in one call per session."""
        if not deliveries:
            return
        with self.registry.iterating():
            if len(deliveries) == 1:
                for frame, receivers in deliveries:
                    self.stats.offered += len(receivers)
                    for session in receivers:
                        # Two steps: in one, the interpreter would look the slot up as a method, which is slower.
                        send = session.send
                        send(frame)
                        session.recently_sent = True
                return
            outboxes: dict[Session, list[bytes]] = {}
            find = outboxes.get
            for frame, receivers in deliveries:
                self.stats.offered += len(receivers)
                for session in receivers:
                    outbox = find(session)
                    if outbox is None:
                        outboxes[session] = [frame]
                    else:
                        outbox.append(frame)
            for session, outbox in outboxes.items():
                session.send_many(outbox)
                session.recently_sent = True

    def _deliver_to_all(self, frames: Mapping[bytes, bytes], updates: Mapping[bytes, bytes]) -> None:
        """Send endpoint -> frame to every session, with the data of ``updates`` where subscribed with data."""
        if not frames:
            return
        everything, restricted = list(frames.values()), self._restricted
        others: dict[Session, dict[bytes, bytes]] = {}
        """Session -> endpoint -> frame with data."""
        for endpoint, update in updates.items():
            for variant, receivers in zip(Variant, self._charge(endpoint, update), strict=True):
                if receivers and variant != Variant.WITHOUT_DATA:
                    frame = self.frames.get(endpoint, update, variant)
                    for session in receivers:
                        others.setdefault(session, {})[endpoint] = frame
        for session in self.sessions:
            own = everything
            if session in restricted or session in others:
                wanted = others.get(session, {})
                own = [
                    wanted.get(endpoint, frame)
                    for endpoint, frame in frames.items()
                    if session not in restricted or endpoint in session.endpoints
                ]
            if own:
                self.stats.offered += len(own)
                session.send_many(own)
