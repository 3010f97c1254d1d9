"""A load: clients and their subscriptions, updates and their batching."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class Data(StrEnum):
    """Delivery of an update's data to clients."""

    NONE = "none"
    """None: only the notification."""
    INLINE = "inline"
    """With the update."""
    GET = "get"
    """By one GET per received update."""


USUAL_BATCH: Final = 10.0
"""Default number of updates written together."""
FRAME_BYTES: Final = 110.0
"""An update without data as a frame (``make bench-display``)."""
COMPRESSED: Final = 0.2
"""Size of a series' data in frames to browsers, of its own (``make bench-display``)."""


@dataclass(frozen=True, slots=True)
class Load:
    """Means over time; rates are per second.

    Subscriptions are spread over the endpoints by ``frames_per_update``: where popular endpoints change more often,
    it is greater than the mean number of subscribers.
    """

    clients: float
    endpoints: float
    updates: float
    """Accepted updates a second."""
    subscriptions: float = 10.0
    """Of a client."""
    batch: float = USUAL_BATCH
    """Number of updates written together."""
    subscribers: float | None = None
    """Number of clients sent an update; None: an endpoint's mean number of subscribers."""
    data: Data = Data.INLINE
    data_bytes: float = 3500.0
    """Data of an update, not compressed: a series of 70 points."""

    @property
    def frames_per_update(self) -> float:
        """Number of clients sent an update."""
        if self.subscribers is not None:
            return self.subscribers
        return self.clients * self.subscriptions / self.endpoints if self.endpoints else 0.0

    @property
    def frame_bytes(self) -> float:
        """Bytes of a frame to a client, with the data that it carries."""
        return FRAME_BYTES + (self.data_bytes * COMPRESSED if self.data is Data.INLINE else 0.0)

    @property
    def frames(self) -> float:
        """Frames to clients a second."""
        return self.updates * self.frames_per_update

    @property
    def writes(self) -> float:
        """Requests to the Data Service a second."""
        return self.updates / self.batch

    @property
    def watched(self) -> float:
        """Share of the updates that any client is subscribed to, if subscriptions are independent."""
        return -math.expm1(-self.frames_per_update)

    @property
    def subscribed(self) -> float:
        """Share of the clients that are sent an update."""
        return self.frames_per_update / self.clients if self.clients else 0.0

    def sends(self, pieces: float = 1.0) -> float:
        """Return the sends to clients a second: frames of updates that arrive together share one.

        Args:
            pieces: parts in which the updates of a write arrive, by partitions of Kafka; at most one for each update.
        """
        parts = min(max(1.0, pieces), max(1.0, self.batch))
        return self.writes * parts * self.clients * any_of(self.subscribed, max(1.0, self.batch) / parts)

    def sends_of(self, met: float) -> float:
        """Return the sends to clients a second where those of each come in ``met`` parts, on average."""
        written = min(1.0, max(1.0, self.batch) * self.subscribed / self.subscriptions) if self.subscriptions else 0.0
        return self.writes * self.clients * met * any_of(written, self.subscriptions / met)

    def merged_sends(self, pieces: float, apart: float) -> float:
        """Return the sends of a process that passes on what it is sent in pieces (:meth:`sends`).

        Args:
            pieces: as for :meth:`sends`.
            apart: share of the pieces of a write for one client, after its first, that come too late to be passed on
                with the one before.
        """
        first = self.sends()
        return first + apart * max(0.0, self.sends(pieces) - first)

    def grown(self, factor: float) -> "Load":
        """Return this load with more clients, endpoints and updates: as many subscribers of each endpoint."""
        more = replace(self, clients=self.clients * factor, endpoints=self.endpoints * factor)
        return replace(more, updates=self.updates * factor)

    def scaled(self, clients: float, updates: float) -> "Load":
        """Return this load with these numbers of clients and updates; subscribers of an endpoint follow the clients."""
        factor = clients / self.clients if self.clients else 1.0
        subscribers = None if self.subscribers is None else self.subscribers * factor
        return replace(self, clients=clients, updates=updates, subscribers=subscribers)


MAX_VALUE: Final = 1e9
"""Greatest number of anything in a load."""


def any_of(probability: float, draws: float) -> float:
    """Return the probability of at least one of ``draws`` independent events."""
    return 1.0 if probability >= 1 else -math.expm1(draws * math.log1p(-probability))


def touched(parts: float, draws: float) -> float:
    """Return the expected number of ``parts`` that independent ``draws`` hit at least once."""
    if parts <= 1:
        return min(1.0, draws)
    return parts * any_of(1 / parts, draws)
