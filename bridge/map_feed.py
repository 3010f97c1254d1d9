"""Hands the partition map on to the reader: all of it when the link begins, then what is new."""

import asyncio
from typing import Final

from bridge.link import BridgeLink
from diem.kafka.map_reader import MapReader, MapRecord
from diem.protocol import endpoints, feed
from diem.protocol.partition_map import HEAD_KEY, START_KEY
from diem.protocol.update import UPDATE, Change

MAX_RECORDS: Final = 1000
"""Records in one batch: less than a reader's limit even if all have the longest keys and values."""
MAX_VALUE: Final = 512
"""Bytes: the longest entry or head has less than a hundred."""


class MapFeed:
    """One link's share of the map. ``changed()`` is to be called after the map's reader has taken something."""

    def __init__(self, link: BridgeLink, name: str, reader: MapReader) -> None:
        self.caught_up = False
        """Whether the reader of the link was told everything once."""
        self._link = link
        self._name = name
        self._reader = reader
        self._sent: int | None = None
        self._woken = asyncio.Event()
        self._woken.set()

    def changed(self) -> None:
        """There is something new, or the map is read from its start again."""
        if self._sent is not None and self._reader.next < self._sent:
            self._sent = None
        self._woken.set()

    @property
    def may_beat(self) -> bool:
        """Whether the reader of the link knows the map as it is: by an old one it would wait where nothing comes."""
        return self.caught_up and self._reader.is_current()

    async def run(self) -> None:
        """Write to the link until cancelled."""
        while True:
            await self._woken.wait()
            await self._link.writable()
            self._woken.clear()
            if self._reader.caught_up:
                self._send()

    def _send(self) -> None:
        begin, next_ = self._sent or 0, self._reader.next
        records = self._reader.records.items()
        fresh = [(key, record) for key, record in records if record.offset >= begin and _is_of_the_map(key, record)]
        # The head says that what is before it is all.
        fresh.sort(key=lambda item: (item[0] == HEAD_KEY, item[1].offset))
        changes = [Change(record.offset, key, 0, UPDATE, record.value or b"") for key, record in fresh]
        if self._sent is None:
            changes.insert(0, Change(0, START_KEY, 0, UPDATE, b""))
        self._sent = next_
        for start in range(0, len(changes), MAX_RECORDS):
            part = changes[start : start + MAX_RECORDS]
            self._link.connection.send_binary(feed.encode_batch(self._name, next_, part))
        if not self.caught_up:
            self.caught_up = True
            self._link.say(feed.CaughtUp(self._name))


def _is_of_the_map(key: bytes, record: MapRecord) -> bool:
    """Whether a server can take it, and needs it: anything may have been written to the topic."""
    if len(record.value or b"") > MAX_VALUE:
        return False
    return key == HEAD_KEY or endpoints.is_valid(key.decode("ascii", "replace"))
