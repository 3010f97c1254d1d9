"""Hub of one server: a feed's retained state and its fan-out, by the rules of docs/protocol.md section 1."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from diem.fanout.data_budget import DataBudget
from diem.fanout.fanout import Fanout, resyncs, variant_for
from diem.fanout.feed_state import FeedState
from diem.fanout.ownership import Ownership, Reconciler
from diem.fanout.session import Session
from diem.protocol import endpoints as names
from diem.protocol import messages
from diem.protocol.feed import Batch
from diem.protocol.messages import SUBSCRIPTIONS, Refusal
from diem.protocol.partition_map import Role


class Subscribed(NamedTuple):
    """The answer to a subscribe request."""

    endpoints: dict[str, int | None]
    """Accepted endpoints with their retained versions, None before the first."""
    rejected: dict[str, Refusal]
    """Rejected endpoints and the reasons."""
    replay: list[bytes]
    """Frames to send at once: retained updates newer than the client's versions, and ``resync`` of suspect ones."""


class FeedHub:
    """Retained state of a feed, and the fan-out of its changes.

    Args:
        limit: maximum number of subscriptions per session.
        everyone: see :class:`Fanout`.
        ownership: the endpoints that this server of a group serves; None: all.
        budget: bounds the retained data; None: updates carry none.
    """

    def __init__(
        self,
        *,
        limit: int = SUBSCRIPTIONS,
        everyone: bool = False,
        ownership: Ownership | None = None,
        budget: DataBudget | None = None,
    ) -> None:
        self.fanout = fanout = Fanout(everyone=everyone)
        self.publish = fanout.publish
        """The fan-out's own method, except while a traced update is expected: the others cost nothing more."""
        self.state = FeedState(budget)
        self._limit = limit
        self._ownership = ownership
        self._reconciler = None if ownership is None else Reconciler(ownership, fanout.registry, fanout.stats)

    def subscribe(self, session: Session, known: Mapping[str, int], *, with_data: bool = False) -> Subscribed:
        """Subscribe a session to endpoints, given its client's versions (0 = none)."""
        answer = Subscribed({}, {}, [])
        registry = self.fanout.registry
        variant = variant_for(session, with_data=with_data)
        before = len(session.endpoints)
        for name, version in known.items():
            if not names.is_valid(name):
                answer.rejected[name] = messages.BAD_NAME
                continue
            endpoint = name.encode()
            # Before the ownership, which needs the name's hash, slow in Python.
            if len(session.endpoints) >= self._limit and endpoint not in session.endpoints and not session.exempt:
                answer.rejected[name] = messages.over_limit(self._limit)
                continue
            if self._ownership is not None and self._ownership.role(endpoint) is not Role.SERVING:
                owner = self._ownership.owner(endpoint)
                answer.rejected[name] = messages.not_owner(owner)
                continue
            session.endpoints[registry.add(endpoint, session, variant)] = with_data
            retained, update = self.state.retained.get(endpoint, (None, b""))
            answer.endpoints[name] = retained
            if retained is not None and retained > version:
                answer.replay.append(self.fanout.replayed(session, endpoint, update, variant))
        if self.state.suspect:
            answer.replay.extend(resyncs(name for name in answer.endpoints if name.encode() in self.state.suspect))
        self.fanout.stats.offered += len(answer.replay)
        if session.trace is not None and len(session.endpoints) > before:
            new = list(islice(session.endpoints, before, None))
            session.trace.subscribed(new, [endpoint for endpoint in new if endpoint not in self.state.retained])
        return answer

    # Events of the feed

    def batch(self, *batches: Batch) -> None:
        """Apply batches of updates, and deliver the latest of each endpoint, with one write per client.

        Of several updates of an endpoint only the last one is sent, whatever the batches: a server with more to send
        than it can gets longer reads, and sends less often instead of ever later.
        """
        # A catch-up is not counted: it delivers the current versions, not every change.
        publish, counter, apply = self.publish, self.fanout.update_counter, self.state.apply
        fresh: dict[bytes, bytes] = {}
        try:
            for batch in batches:
                new = apply(batch)
                if not fresh:
                    fresh = new
                    continue
                if replaced := fresh.keys() & new.keys():
                    self.state.counts.stale += len(replaced)
                    if counter is not None:
                        counter.receive(replaced)
                fresh.update(new)
        finally:
            publish(fresh, counter)

    def hello(self, source: str, feed_names: Sequence[str]) -> None:
        """Set the source and streams of the feed; send the changes caused by lost streams."""
        changes = self.state.hello(source, feed_names, None if self._ownership is None else self._ownership.stream_of)
        self.reconcile()
        self.fanout.publish(changes.updated)
        self.fanout.resync(changes.dropped)

    def resync(self, endpoints: Sequence[bytes]) -> None:
        """Make subscribers fetch endpoints: the feed failed to deliver a change of each."""
        self.state.mark_suspect(endpoints)
        self.fanout.resync(endpoints)

    def reconcile(self) -> set[Session]:
        """Reconcile subscriptions after a change of the map or of ownership: see :meth:`Reconciler.reconcile`."""
        return set() if self._reconciler is None else self._reconciler.reconcile()

    def caught_up(self, name: str) -> None:
        """End the catch-up of a stream: send its changes to the subscribers.

        A client that subscribed during the catch-up gets them too, or was already sent them as retained state, which is
        updated while reading: only the fan-out waits.
        """
        changes = self.state.finish_catch_up(name)
        self.fanout.publish(changes.updated)
        # A proxy takes an update after a resync for a newer one: here it precedes what could not be read.
        self.fanout.resync([*changes.dropped, *(self.state.suspect & changes.updated.keys())])
