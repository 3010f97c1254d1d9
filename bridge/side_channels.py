"""Side channels of a group's feed: the partition map, and the owner of every partition.

Tasks started by the session: they write to its link, and share none of its state.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from bridge.group_member import Membership
from bridge.link import BridgeLink
from diem.errors import ConfigurationError
from diem.kafka.assignment import read_assignment
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import MapRecord
from diem.process.backoff import wait
from diem.protocol import endpoints, feed
from diem.protocol.assignment import STABLE, Clone
from diem.protocol.partition_map import HEAD_KEY, START_KEY, PartitionMap
from diem.protocol.update import UPDATE, Change

MAX_RECORDS: Final = 1000
"""Records in one batch: within a reader's limit even if all have the longest keys and values."""
MAX_VALUE_BYTES: Final = 512
"""The longest entry or head is under a hundred."""


class MapSource(Protocol):
    """The records of the partition map: of its topic, or the one that follows from the epoch of a served topic."""

    on_changed: Callable[[], None]
    records: dict[bytes, MapRecord]
    next: int
    caught_up: bool

    @property
    def map(self) -> PartitionMap | None:
        """The map; None until it is known."""
        ...

    def is_current(self) -> bool:
        """Return whether the map is not outdated."""
        ...


class MapFeed:
    """Sends the partition map to one reader: in full at the start, then its changes. ``name`` is its stream."""

    def __init__(self, link: BridgeLink, name: str, reader: MapSource) -> None:
        self.name = name
        self.caught_up = False
        """The whole map has been sent once."""
        self._link = link
        self._reader = reader
        self._sent: int | None = None
        self._changed = asyncio.Event()
        self._changed.set()

    @property
    def is_current(self) -> bool:
        """True if the reader has the current map; with an old one it would wait for updates in the wrong places."""
        return self.caught_up and self._reader.is_current()

    def on_change(self) -> None:
        """Handle new records, or a reread of the map from its beginning."""
        if self._sent is not None and self._reader.next < self._sent:
            self._sent = None
        self._changed.set()

    async def run(self) -> None:
        """Write to the link until cancelled."""
        self._reader.on_changed = self.on_change
        while True:
            await self._changed.wait()
            await self._link.wait_writable()
            self._changed.clear()
            if self._reader.caught_up:
                self._send()

    def _send(self) -> None:
        begin, next_ = self._sent or 0, self._reader.next
        records = self._reader.records.items()
        changed = [(key, record) for key, record in records if record.offset >= begin and _is_forwarded(key, record)]
        # The head completes the entries before it.
        changed.sort(key=lambda item: (item[0] == HEAD_KEY, item[1].offset))
        changes = [Change(record.offset, key, 0, UPDATE, record.value or b"") for key, record in changed]
        if self._sent is None:
            changes.insert(0, Change(0, START_KEY, 0, UPDATE, b""))
        self._sent = next_
        for start in range(0, len(changes), MAX_RECORDS):
            part = changes[start : start + MAX_RECORDS]
            self._link.connection.send_binary(feed.encode_batch(self.name, next_, part))
        if not self.caught_up:
            self.caught_up = True
            self._link.send(feed.CaughtUp(self.name))


def _is_forwarded(key: bytes, record: MapRecord) -> bool:
    """Return whether the record is for servers and decodable: the topic may contain anything."""
    if len(record.value or b"") > MAX_VALUE_BYTES:
        return False
    return key == HEAD_KEY or endpoints.is_valid(key.decode("ascii", "replace"))


POLL_S: Final = 10.0
"""A restarted server may return with a different URL without triggering a rebalance."""
UNSTABLE_POLL_S: Final = 2.0
"""While the group rebalances, a partition lacks an owner, or Kafka does not answer."""
LEAVING_POLL_S: Final = 0.25
"""While others take over from a server about to stop, whose clients are redirected afterwards."""
DESCRIBE_TIMEOUT_S: Final = 5.0
CANCEL_TIMEOUT_S: Final = 1.0

_requests: Final[set["asyncio.Task[Clone | None]"]] = set()
"""Requests in flight: an unreferenced task may be garbage collected."""


class OwnersFeed:
    """Sends the owner of every partition to one reader, for redirecting its clients."""

    def __init__(self, link: BridgeLink, options: KafkaOptions, membership: Membership) -> None:
        self._link = link
        self._options = options
        self._membership = membership
        self._sent: dict[str, str] | None = None
        self._left: frozenset[int] | None = None
        """Partitions that others are to take, once the reader is about to stop."""
        self._wake = asyncio.Event()

    def on_leave(self) -> None:
        """Send the owners once others own all partitions assigned here until now, or there are no others."""
        self._left = self._membership.assigned or frozenset()
        self._wake.set()

    def on_assignment(self) -> None:
        """Read and send all owners again: the server drops those of partitions gained and lost."""
        self._sent = None
        self._wake.set()

    async def run(self) -> None:
        """Poll the group's assignment and send its changes until cancelled."""
        while True:
            self._wake.clear()
            group = await self._read_group()
            is_stable = False
            if self._left is not None:
                is_stable = group is not None and self._send_left(group, self._left)
            elif group is not None and group.state == STABLE:
                if self._has_stale_urls(group):
                    self._membership.rejoin()
                else:
                    self._send(group)
                    is_stable = self._owns_assigned(group)
            unstable_s = UNSTABLE_POLL_S if self._left is None else LEAVING_POLL_S
            await wait(self._wake, POLL_S if is_stable else unstable_s)

    async def _read_group(self) -> Clone | None:
        request = asyncio.create_task(self._describe())
        _requests.add(request)
        request.add_done_callback(_requests.discard)
        try:
            return await asyncio.shield(request)
        finally:
            # Not cancelled with the link: an interrupted client leaks its connection.
            await asyncio.wait([request], timeout=CANCEL_TIMEOUT_S)

    async def _describe(self) -> Clone | None:
        """Return the group as its coordinator describes it, None if it cannot now."""
        try:
            async with admin_client(self._options, DESCRIBE_TIMEOUT_S) as admin:
                return await read_assignment(admin, self._membership.group, self._options.names.updates)
        except (KafkaUnavailable, ConfigurationError):
            return None
        except Exception:  # noqa: BLE001  # the client library fails in more ways than its own errors
            structlog.get_logger("bridge").exception("the group cannot be described")
            return None

    def _has_stale_urls(self, group: Clone) -> bool:
        """Return whether the group has outdated URLs of this server: Kafka keeps those first registered."""
        owner = self._membership.owner
        return group.members.get(owner.server, owner) != owner

    def _owns_assigned(self, group: Clone) -> bool:
        """Return whether, in the group too, this server owns all partitions assigned to it."""
        server = self._membership.owner.server
        return all(group.owners.get(number) == server for number in self._membership.assigned or ())

    def _send_left(self, group: Clone, left: frozenset[int]) -> bool:
        """Send the owners if others own all this server had, or nobody is left; return whether sent."""
        server = self._membership.owner.server
        if group.members and any(group.owners.get(number, server) == server for number in left):
            return False
        self._link.send(feed.Owners(self._urls(group), left=True))
        return True

    def _urls(self, group: Clone) -> dict[str, str]:
        topic = self._options.names.updates
        return {f"{topic}/{number}": group.members[server].public for number, server in group.owners.items()}

    def _send(self, group: Clone) -> None:
        owners = self._urls(group)
        if owners and owners != self._sent:
            self._sent = owners
            self._link.send(feed.Owners(owners))
