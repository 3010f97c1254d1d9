"""The fan-out: takes what a feed says and what clients ask, and gives every session the frames that it is owed."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from diem.fanout.frames import text_frame
from diem.fanout.ownership import Ownership, Reconciler
from diem.fanout.registry import Registry
from diem.fanout.session import DeliveryStats, Session
from diem.fanout.state import FeedState
from diem.fanout.update_counter import UpdateCounter
from diem.protocol import endpoints as names
from diem.protocol import messages
from diem.protocol.feed import Batch
from diem.protocol.messages import Refusal
from diem.protocol.partition_map import Role


class Subscribed(NamedTuple):
    """The answer to a subscribe request."""

    endpoints: dict[str, int | None]
    """Registered: the retained version of each, None when there is none yet."""
    rejected: dict[str, Refusal]
    """Not registered, and why."""
    replay: list[bytes]
    """Frames that follow at once: the retained updates that the client does not hold yet."""


class Hub:
    """Registry, retained state and sessions of one server, joined by the delivery rules of docs/protocol.md section 1.

    Args:
        limit: subscriptions that one session may hold.
        everyone: the baseline mode ``all-to-all``: every update goes to every session, subscribed or not.
        ownership: what this server has, where a group of servers shares out the endpoints; None: it has all.
    """

    def __init__(self, *, limit: int = 128, everyone: bool = False, ownership: Ownership | None = None) -> None:
        self.state = FeedState()
        self.registry: Registry[Session] = Registry()
        self.sessions: set[Session] = set()
        self.accounts = DeliveryStats()
        self.not_subscribed = 0
        """Fresh updates that nobody here had subscribed to."""
        self.fanned_out = 0
        """Fresh updates delivered to at least one session."""
        self.tally: UpdateCounter | None = None
        """Counts updates by endpoint, where traffic is recorded."""
        self._limit = limit
        self._everyone = everyone
        self._ownership = ownership
        self._departures = None if ownership is None else Reconciler(ownership, self.registry, self.accounts)

    # What clients ask

    def join(self, session: Session) -> None:
        """A client has connected."""
        self.sessions.add(session)

    def leave(self, session: Session) -> None:
        """A client is gone: nothing of it stays behind."""
        self.sessions.discard(session)
        for endpoint in session.endpoints:
            self.registry.discard(endpoint, session)
        session.endpoints.clear()
        session.close()

    def subscribe(self, session: Session, known: Mapping[str, int]) -> Subscribed:
        """Register a session for endpoints, given the versions that its client holds (0 = none)."""
        answer = Subscribed({}, {}, [])
        before = len(session.endpoints)
        for name, version in known.items():
            if not names.is_valid(name):
                answer.rejected[name] = messages.BAD_NAME
                continue
            endpoint = name.encode()
            # First what is cheap: the hash of a name takes long in Python.
            if len(session.endpoints) >= self._limit and endpoint not in session.endpoints and not session.exempt:
                answer.rejected[name] = messages.over_limit(self._limit)
                continue
            if self._ownership is not None and self._ownership.standing(endpoint) is not Role.SERVES:
                owner = self._ownership.owner(endpoint)
                answer.rejected[name] = messages.not_owner(owner)
                continue
            session.endpoints[self.registry.add(endpoint, session)] = None
            retained = self.state.retained.get(endpoint)
            answer.endpoints[name] = retained.version if retained else None
            if retained and retained.version > version:
                answer.replay.append(text_frame(retained.value))
        self.accounts.offered += len(answer.replay)
        if session.visit is not None and len(session.endpoints) > before:
            new = list(islice(session.endpoints, before, None))
            session.visit.subscribed(new, [endpoint for endpoint in new if not self.has_version(endpoint)])
        return answer

    def has_version(self, endpoint: bytes) -> bool:
        """Whether there is an update of an endpoint, as far as is known here."""
        return endpoint in self.state.retained

    def unsubscribe(self, session: Session, unwanted: Iterable[str]) -> None:
        """Take a session off endpoints; nothing follows for them, not even what was held back."""
        leaving = dict.fromkeys(name.encode(errors="replace") for name in unwanted)
        if session.visit is not None and (held := [each for each in leaving if each in session.endpoints]):
            session.visit.unsubscribed(held)
        for endpoint in leaving:
            session.endpoints.pop(endpoint, None)
            self.registry.discard(endpoint, session)
            session.forget(endpoint)

    # What the feed says

    def batch(self, batch: Batch) -> None:
        """Take a batch of updates and fan out what is new."""
        # What a catch-up brings is not counted: it says what is, and not how often it became so.
        self._tell(self.state.apply(batch), self.tally)

    def hello(self, source: str, feed_names: list[str]) -> None:
        """Take the source and names of the feed; what was lost with names is announced."""
        told = self.state.hello(source, feed_names, None if self._ownership is None else self._ownership.name_of)
        self.settle()
        self._tell(told.grown)
        self.resync(told.dropped)

    def settle(self) -> set[Session]:
        """The map or what this server owns may have changed: see :meth:`Reconciler.settle`."""
        return set() if self._departures is None else self._departures.settle()

    def caught_up(self, name: str) -> None:
        """A name has caught up: tell every subscriber what the catch-up changed.

        Whoever subscribed meanwhile is among them, or was given what was retained when he did: retained state changes
        as records are read, only its fan-out waits.
        """
        told = self.state.caught_up_with(name)
        self._tell(told.grown)
        self.resync(told.dropped)

    def broadcast(self, frame: bytes) -> None:
        """A frame to every session that takes data; one that is blocked learns it when it is unblocked."""
        for session in self.sessions:
            if not session.blocked:
                self.accounts.offered += 1
                session.send(frame)

    # How it is delivered

    def _tell(self, fresh: Mapping[bytes, bytes], tally: UpdateCounter | None = None) -> None:
        """Endpoint -> value to whom it concerns; what concerns nobody here costs a look, and no frame."""
        everything: Collection[bytes] = fresh if self.sessions else ()
        wanted = everything if self._everyone else self.registry.wanted(fresh)
        self.fanned_out += len(wanted)
        self.not_subscribed += len(fresh) - len(wanted)
        if tally is not None:
            self._count(tally, fresh, wanted)
        if wanted:
            self._deliver({endpoint: text_frame(fresh[endpoint]) for endpoint in wanted})

    def _count(self, tally: UpdateCounter, fresh: Iterable[bytes], wanted: Iterable[bytes]) -> None:
        tally.take(fresh)
        for endpoint in wanted:
            tally.deliver(endpoint, len(self.sessions if self._everyone else self.registry.subscribers(endpoint)))

    def _deliver(self, frames: dict[bytes, bytes]) -> None:
        """Endpoint -> frame to the subscribers: one call per session, however many frames it gets."""
        if self._everyone:
            self._deliver_to_all(list(frames.values()))
            return
        with self.registry.iterating():
            if len(frames) == 1:
                for endpoint, frame in frames.items():
                    subscribers = self.registry.subscribers(endpoint)
                    self.accounts.offered += len(subscribers)
                    for session in subscribers:
                        # Two steps: called in one, the slot would be looked up as a method, without a fast path.
                        send = session.send
                        send(frame)
                return
            outboxes: dict[Session, list[bytes]] = {}
            find = outboxes.get
            for endpoint, frame in frames.items():
                subscribers = self.registry.subscribers(endpoint)
                self.accounts.offered += len(subscribers)
                for session in subscribers:
                    outbox = find(session)
                    if outbox is None:
                        outboxes[session] = [frame]
                    else:
                        outbox.append(frame)
            for session, outbox in outboxes.items():
                session.send_many(outbox)

    def _deliver_to_all(self, frames: list[bytes]) -> None:
        if frames:
            self.accounts.offered += len(frames) * len(self.sessions)
            for session in self.sessions:
                session.send_many(frames)

    def resync(self, endpoints: list[bytes]) -> None:
        """Have the subscribers of endpoints fetch them again, whatever version they hold."""
        # One frame per endpoint, so that conflation can replace it by a later one of the same endpoint.
        self._deliver({e: text_frame(messages.resync([e.decode()])) for e in endpoints if e in self.registry})
