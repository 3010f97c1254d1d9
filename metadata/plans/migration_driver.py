"""Drives a migration in the map's topic, whichever instance began it; several may do so at once."""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable
from typing import Final

import structlog

from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions
from diem.kafka.epochs import ServedMap
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import MapReader
from diem.kafka.map_writer import change_map
from diem.process.backoff import Backoff, wait
from diem.process.clock import Clock
from diem.protocol.partition_map import PUBLISHER_ACK, Head, PartitionMap, Phase, parse_ack, parse_unknown
from metadata.plans.steps import MapStep, moving, proceed

RETRY_BASE_S: Final = 0.5
RETRY_CAP_S: Final = 5.0
POLL_INTERVAL_S: Final = 0.5
OTHERS_WAIT_S: Final = 3.0
"""Head start per step of the instance that began the migration."""


class MigrationDriver:
    """Writes each step of a migration as soon as it is due. Call :meth:`changed` after a change of the map.

    Its only state is the time when it first saw the current epoch. A step is written only if the map has not changed
    since the step was computed, so a crash or a second instance is only a delay.

    Args:
        options: the cluster with the map.
        reader: reads the map.
        clock: measures how long a phase has lasted.
        move_s: seconds that MOVE lasts.
        unassigned: describes the targets without an owner; None if each has one.
    """

    def __init__(
        self,
        options: KafkaOptions,
        reader: MapReader | ServedMap,
        clock: Clock,
        move_s: float,
        unassigned: Callable[[PartitionMap], str | None] = lambda _map: None,
    ) -> None:
        self._options = options
        self._reader = reader
        self._unassigned = unassigned
        self._clock = clock
        self._move_s = move_s
        self._head: Head | None = None
        self._since = clock.monotonic()
        self._began_ms: int | None = None
        self._own_plans: set[str] = set()
        """Plans of which this instance has begun or continued the migration."""
        self._changed = asyncio.Event()
        self.failure: str | None = None
        self._log = structlog.get_logger("plans")

    @property
    def map(self) -> PartitionMap | None:
        """The map; None until all of it has been read."""
        return self._reader.map if self._reader.caught_up else None

    def changed(self) -> None:
        """Handle new records of the map's topic."""
        if self.map is not None and self.map.head != self._head:
            # A phase found on the first read of the map began at an unknown time.
            self._began_ms = None if self._head is None else self._clock.wall_ms()
            self._head, self._since = self.map.head, self._clock.monotonic()
        self._changed.set()

    async def write(self, expected: Head, step: MapStep) -> bool:
        """Write a step computed from ``expected``; return False if the map has changed since.

        Raises:
            KafkaUnavailable: it was not written, or the outcome is unknown.
        """
        self._own_plans.add(step.head.plan)
        return await change_map(self._options, expected, step.records, step.head)

    async def run(self) -> None:
        """Drive until cancelled, through outages of Kafka."""
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        while True:
            # Before reading the map, so as not to miss a change while a step is computed.
            self._changed.clear()
            try:
                await self._drive()
                self.failure = None
                backoff.reset()
            except (KafkaUnavailable, ConfigurationError) as error:
                # The TLS files were valid at the start, so they are being replaced.
                if self.failure is None:
                    self._log.warning("the migration cannot proceed", reason=str(error))
                self.failure = str(error)
                await asyncio.sleep(backoff.next_delay())
            await wait(self._changed, POLL_INTERVAL_S if self.busy else math.inf)

    async def _drive(self) -> None:
        map_ = self.map
        step = None if map_ is None else await self._next_step(map_)
        if map_ is None or step is None:
            return
        if step.head.phase is Phase.MOVE and self._unassigned(map_):
            # New partitions without an owner: clients would have no server to go to.
            return
        if await self.write(map_.head, step):
            self._log.info("phase", **step.head._asdict())
        # The step is read back before the next one: the topic is the only state.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                while self.map is not None and self.map.head == map_.head:
                    self._changed.clear()
                    await self._changed.wait()

    async def _next_step(self, map_: PartitionMap) -> MapStep | None:
        # Endpoints unknown in an earlier epoch may have been published since.
        unknown = self.unknown if self.acknowledged == map_.head.epoch else frozenset[bytes]()
        # In a thread: a step with a million endpoints takes many seconds, in which the event loop must not wait.
        elapsed_s = self._elapsed_s(map_.head)
        return await asyncio.to_thread(proceed, map_, self.acknowledged, elapsed_s, self._move_s, unknown)

    def _elapsed_s(self, head: Head) -> float:
        elapsed_s = self._clock.monotonic() - self._since
        if head.plan in self._own_plans:
            return elapsed_s
        # Spread out, so that instances do not fence each other's transactions.
        return elapsed_s - OTHERS_WAIT_S * random.uniform(0.5, 1.0)  # noqa: S311  # jitter is no secret

    # Status

    @property
    def acknowledged(self) -> int:
        """Last epoch acknowledged by the publisher; -1 before the first."""
        record = self._reader.records.get(PUBLISHER_ACK)
        return -1 if record is None else parse_ack(record.value)

    @property
    def unknown(self) -> frozenset[bytes]:
        """Endpoints with entries unknown to the publisher at its last acknowledgement."""
        record = self._reader.records.get(PUBLISHER_ACK)
        return frozenset() if record is None else parse_unknown(record.value)

    def began_ms(self, head: Head) -> int | None:
        """Return the Unix time in ms when this process saw ``head``; None if it did not, or saw a later one."""
        return self._began_ms if head == self._head else None

    @property
    def busy(self) -> bool:
        """True while endpoints move."""
        return self.map is not None and self.map.head.phase is not Phase.STABLE

    @property
    def moving(self) -> int:
        """Number of moving endpoints."""
        return 0 if self.map is None else len(moving(self.map))

    def waiting_for(self) -> str | None:
        """Return a description of the event that the migration waits for; None when nothing moves."""
        if self.map is None or not self.busy:
            return None
        if self.failure is not None:
            return self.failure
        if self.map.head.phase is Phase.MOVE:
            left = max(0.0, self._move_s - (self._clock.monotonic() - self._since))
            return f"clients to move: {left:.0f} s"
        if self.map.head.phase is Phase.PREPARE and self.acknowledged >= self.map.head.epoch:
            return self._unassigned(self.map)
        return "the Data Service's publisher to acknowledge that the log has it"
