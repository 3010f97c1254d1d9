"""Readiness, liveness, status and metrics of the metadata service; separate from ``main``, which only wires."""

from collections.abc import Iterable
from typing import Any, Final

from diem.kafka.epochs import ServedMap
from diem.kafka.map_reader import MapReader
from diem.links.client_auth import ClientAuth
from diem.process import metrics
from diem.process.clock import Clock
from diem.process.lifecycle import Lifecycle
from metadata.api import LocateApi
from metadata.assignments import Assignments
from metadata.directory import Directory
from metadata.plans.migration_driver import MigrationDriver
from metadata.snapshot_feed import SnapshotFeed

STALE_AFTER_S: Final = 10.0
"""Time without an answer from Kafka after which the service is not live; it still answers requests."""


class MetadataStatus:
    """Readiness, status and metrics of this process."""

    def __init__(
        self,
        life: Lifecycle,
        clock: Clock,
        *,
        directory: Directory,
        map_reader: MapReader | ServedMap,
        driver: MigrationDriver,
        assignments: Assignments,
        api: LocateApi,
        auth: ClientAuth,
        snapshots: SnapshotFeed,
    ) -> None:
        self._life = life
        self._clock = clock
        self._directory = directory
        self._map_reader = map_reader
        self._driver = driver
        self._assignments = assignments
        self._api = api
        self._auth = auth
        self._snapshots = snapshots

    def why_not_ready(self) -> str | None:
        """Return the reason why the process is not ready; None if it is, even during an outage of Kafka."""
        return "draining" if self._life.stopping.is_set() else self._directory.why_not_ready()

    @property
    def live(self) -> bool:
        """True if answers are up to date with Kafka."""
        staleness = self._directory.staleness(self._clock.monotonic())
        return staleness is not None and staleness < STALE_AFTER_S

    def status(self) -> dict[str, Any]:
        """Return the metadata service's part of ``/status``."""
        directory = self._directory
        staleness = directory.staleness(self._clock.monotonic())
        head = directory.map.head if directory.map else None
        return {
            "ready": self.why_not_ready() is None,
            "live": self.live,
            "failure": self._assignments.failure or self._map_reader.why_not or directory.why_not_ready(),
            "epoch": head.epoch if head else None,
            "phase": head.phase if head else None,
            "partitions": head.partitions if head else None,
            "plan": head.plan if head else None,
            "moving": self._driver.moving,
            "waiting_for": self._driver.waiting_for(),
            "clones": {
                str(number): {
                    "state": group.clone.state,
                    "members": sorted(group.clone.members),
                    "owned": len(group.clone.owners),
                    "foreign": group.unknown_members,
                }
                for number, group in directory.groups.items()
            },
            "proxies": len(self._snapshots),
            **self._auth.status(),
            "kafka_silence_seconds": None if staleness is None else round(staleness, 1),
        }

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the metrics of the process."""
        directory = self._directory
        staleness = directory.staleness(self._clock.monotonic())
        if directory.map is not None:
            yield metrics.MAP_EPOCH.sample(directory.map.head.epoch)
            yield metrics.MAP_MOVING.sample(self._driver.moving)
        if staleness is not None:
            yield metrics.GROUPS_SILENCE.sample(staleness)
        yield metrics.GROUPS_FAILURES.sample(self._assignments.failures)
        for number, group in directory.groups.items():
            yield metrics.CLONE_MEMBERS.sample(len(group.clone.members), str(number))
            yield metrics.CLONE_FOREIGN.sample(group.unknown_members, str(number))
            yield metrics.CLONE_OWNED.sample(len(group.clone.owners), str(number))
            yield metrics.CLONE_STABLE.sample(group.is_stable, str(number))
        yield metrics.WATCHERS.sample(len(self._snapshots), "internal")
        yield from self._api.samples()
        yield from self._auth.samples_of_keys()
