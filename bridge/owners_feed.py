"""Side channel of the feed: which server of the group owns each partition, so that the reader can redirect clients."""

import asyncio
import contextlib
from typing import Final

import structlog

from bridge.link import BridgeLink
from bridge.member import Membership
from diem.kafka.assignment import read_assignment
from diem.kafka.client import administering
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.process.faults import ConfigurationError
from diem.protocol import feed
from diem.protocol.assignment import STABLE, Clone

EVERY: Final = 10.0
"""Seconds between two looks: a server that is there again may have another URL, and its group hears nothing of it."""
ODD_EVERY: Final = 2.0
"""Seconds between two looks while the group is not at rest, a partition has no owner, or Kafka does not say."""
ASK_WITHIN: Final = 5.0
ENDED_WITHIN: Final = 1.0

_looks: Final[set["asyncio.Task[Clone | None]"]] = set()
"""Looks under way: a task that nobody holds may vanish."""


class OwnersFeed:
    """One link's share of the assignment. ``changed()`` is to be called after the group has given out partitions."""

    def __init__(self, link: BridgeLink, options: KafkaOptions, membership: Membership) -> None:
        self._link = link
        self._options = options
        self._membership = membership
        self._sent: dict[str, str] | None = None
        self._woken = asyncio.Event()

    def changed(self) -> None:
        """Look now, and tell all of it: the server forgets the owners of what it gains and loses."""
        self._sent = None
        self._woken.set()

    async def run(self) -> None:
        """Look, and tell what has changed, until cancelled."""
        while True:
            self._woken.clear()
            look = asyncio.create_task(self._look())
            _looks.add(look)
            look.add_done_callback(_looks.discard)
            try:
                clone = await asyncio.shield(look)
            finally:
                # To its end when the link's comes first: a client that is cut short leaves its connection open.
                await asyncio.wait([look], timeout=ENDED_WITHIN)
            at_rest = clone is not None and clone.state == STABLE and self._tell(clone)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY if at_rest else ODD_EVERY):
                    await self._woken.wait()

    async def _look(self) -> Clone | None:
        try:
            async with administering(self._options, ASK_WITHIN) as admin:
                return await read_assignment(admin, self._membership.group, self._options.names.updates)
        except (KafkaUnavailable, ConfigurationError):
            return None
        except Exception:  # noqa: BLE001  # the client library fails in more ways than its own errors
            structlog.get_logger("bridge").exception("the group cannot be described")
            return None

    def _tell(self, clone: Clone) -> bool:
        """Whether every partition that this bridge was given is its own there, too."""
        topic, mine = self._options.names.updates, self._membership
        if clone.members.get(mine.owner.server, mine.owner) != mine.owner:
            # Kafka keeps what a static member said of itself first, also when it is back with other URLs.
            mine.begin_again()
            return False
        owners = {f"{topic}/{number}": clone.members[server].public for number, server in clone.owners.items()}
        if owners and owners != self._sent:
            self._sent = owners
            self._link.say(feed.Owners(owners))
        return all(clone.owners.get(number) == mine.owner.server for number in mine.assigned or ())
