"""Wires a bridge: topic watcher, feed endpoint, internal listener and, in a group, membership and partition map."""

import asyncio
import time

from bridge.feed_endpoint import FeedEndpoint
from bridge.group_member import Membership
from bridge.records import BadRecordLog, Records
from bridge.served_watcher import ServedTopicWatcher
from bridge.session import BridgeState, GroupState
from bridge.settings import Settings
from bridge.status import BridgeStatus
from bridge.topic_records import TopicRecords
from bridge.topic_watcher import TopicWatcher
from diem.kafka.client import silence_library_log
from diem.kafka.config import KafkaOptions, ServedTopic
from diem.kafka.map_reader import MapReader
from diem.links.health import health_service
from diem.links.service import freeze_heap, internal_service, run_until
from diem.process.key_ring import KeyRing
from diem.process.lifecycle import Lifecycle


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve the updates topics, or a group's share of them, to one server until stopped."""
    silence_library_log()
    key = KeyRing.load(settings.internal_key_file)
    bridge = _bridge_state(settings)
    bridge.tracer = life.tracer
    endpoint = FeedEndpoint(bridge)
    status = BridgeStatus(life, bridge, endpoint, settings.clone)
    group = bridge.group

    async def drain() -> None:
        if group:
            # First: until the group learns of it, no other bridge owns these partitions.
            group.membership.stop()
        endpoint.stop()

    async with (
        internal_service(
            settings,
            key,
            on_reload=life.on_reload,
            ready=status.why_not_ready,
            status=status.status,
            samples=status.samples,
            channels={"/feed": endpoint},
        ),
        health_service(settings, status.why_not_ready),
    ):
        freeze_heap()
        async with asyncio.TaskGroup() as tasks:
            # Awaited, not cancelled: both return after ``drain``, the membership once it has left its group.
            tasks.create_task(endpoint.run())
            works = [bridge.watcher.run(endpoint.on_source_change)]
            if group:
                tasks.create_task(group.membership.run())
                if isinstance(group.map, MapReader):
                    works.append(group.map.run())
            await run_until(life.stopping, works, drain)


def _bridge_state(settings: Settings) -> BridgeState:
    options = settings.kafka()
    # Fail now on TLS errors; later they would look like an unreachable cluster.
    options.client_arguments()
    log = BadRecordLog(time.monotonic)
    if options.served is not None:
        return _serving(settings, options, options.served, log)
    records = Records(log)
    if settings.clone is None:
        return BridgeState(options, options.names.x_group(settings.number), TopicWatcher(options), records)
    membership = Membership(options, options.names.z_group(settings.clone), settings.owner)
    group = GroupState(membership, MapReader(options))
    return BridgeState(options, None, TopicWatcher(options, with_map=True), records, group)


def _serving(settings: Settings, options: KafkaOptions, topic: ServedTopic, log: BadRecordLog) -> BridgeState:
    """Return the state of a bridge of a topic that is served as it is."""
    records = TopicRecords(topic, log, partitioned=settings.clone is not None)
    watcher = ServedTopicWatcher(options, topic, records, lambda: bridge.partitions.reached_in(watcher.source))
    if settings.clone is None:
        bridge = BridgeState(options, options.names.x_group(settings.number), watcher, records)
        return bridge
    membership = Membership(options, options.names.z_group(settings.clone), settings.owner)
    bridge = BridgeState(options, None, watcher, records, GroupState(membership, watcher.map))
    return bridge
