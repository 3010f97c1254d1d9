"""Polls the groups in Kafka over one connection: Kafka does not announce changes of groups."""

import asyncio
from typing import Final

import structlog
from aiokafka.admin import AIOKafkaAdminClient

from diem.errors import ConfigurationError, DiemError
from diem.kafka.assignment import GroupDescription, list_clones, read_group
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable
from diem.process.clock import Clock
from metadata.directory import Directory

POLL_INTERVAL_S: Final = 1.0
REBALANCING_INTERVAL_S: Final = 0.5
"""Interval while a group has no stable assignment."""
MAX_FAILURES: Final = 3
"""Consecutive failures after which the client is replaced: its broker metadata may be wrong."""


class Assignments:
    """Keeps the groups of a directory up to date with Kafka."""

    def __init__(self, options: KafkaOptions, directory: Directory, clock: Clock) -> None:
        self._options = options
        self._directory = directory
        self._clock = clock
        self._failed_in_a_row = 0
        self._log = structlog.get_logger("metadata")
        self.failures = 0
        """Number of failed polls."""
        self.failure: str | None = None
        """Why the last poll failed; None if it did not."""

    async def run(self) -> None:
        """Poll until cancelled, through outages of Kafka."""
        while True:
            self._failed_in_a_row = 0
            try:
                async with admin_client(self._options, within=None) as admin:
                    while self._failed_in_a_row < MAX_FAILURES:
                        await self._read_all(admin)
                        await asyncio.sleep(POLL_INTERVAL_S if self._is_stable() else REBALANCING_INTERVAL_S)
            except (KafkaUnavailable, ConfigurationError) as error:
                # The TLS files were valid at the start, so they are being replaced.
                self._failed(error)
                await asyncio.sleep(REBALANCING_INTERVAL_S)

    def _is_stable(self) -> bool:
        stable = all(group.is_stable for group in self._directory.groups.values())
        return self.failure is None and stable and self._directory.preparing is None

    async def _read_all(self, admin: AIOKafkaAdminClient) -> None:
        results = await asyncio.gather(*(self._read(admin, number) for number in self._directory.groups))
        # One group's coordinator may be unavailable while others answer.
        faults = [fault for fault in results if fault is not None]
        if self._directory.preparing is not None:
            try:
                await self._read_others(admin, self._directory.preparing)
            except KafkaUnavailable as error:
                faults.append(error)
        if faults:
            self._failed(faults[0])
        elif self.failure is not None:
            self._log.info("Kafka answers again")
            self.failure = None
        self._failed_in_a_row = self._failed_in_a_row + 1 if faults else 0

    async def _read(self, admin: AIOKafkaAdminClient, number: int) -> KafkaUnavailable | None:
        """Read the group of one clone; return the reason of a failure, else None."""
        names = self._options.names
        try:
            clone, unknown_members = await read_group(admin, names.z_group(number), names.updates)
        except KafkaUnavailable as error:
            return error
        before = self._directory.groups[number].clone
        self._directory.update_group(number, clone, unknown_members, self._clock.monotonic())
        if clone.state != before.state:
            self._log.info("group", clone=number, state=clone.state, members=sorted(clone.members))
        return None

    async def _read_others(self, admin: AIOKafkaAdminClient, epoch: int) -> None:
        """Read the groups of all clones that other instances serve.

        Raises:
            KafkaUnavailable: the groups cannot be listed, or one cannot be read.
        """
        names = self._options.names
        numbers = await list_clones(admin, names) - self._directory.groups.keys()
        groups: dict[int, GroupDescription] = {}
        for number in sorted(numbers):
            groups[number] = await read_group(admin, names.z_group(number), names.updates)
        self._directory.update_others(groups, epoch, self._clock.monotonic())

    def _failed(self, error: DiemError) -> None:
        self.failures += 1
        if self.failure is None:
            self._log.warning("the groups cannot be read, answering from the last known assignments", reason=str(error))
        self.failure = str(error)
