"""Wires a bridge: topic watcher, feed endpoint, internal listener and, in a group, membership and partition map."""

import asyncio
import time

from bridge.feed_endpoint import FeedEndpoint
from bridge.group_member import Membership
from bridge.records import BadRecordLog, Records
from bridge.session import BridgeState, GroupState
from bridge.settings import Settings
from bridge.status import BridgeStatus
from bridge.topic_watcher import TopicWatcher
from diem.kafka.client import silence_library_log
from diem.kafka.map_reader import MapReader
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve the updates topics, or a group's share of them, to one server until asked to stop."""
    silence_library_log()
    key = SharedKey.load(settings.internal_key_file)
    bridge = _bridge_state(settings)
    endpoint = FeedEndpoint(bridge)
    status = BridgeStatus(settings, life, bridge, endpoint)
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=status.why_not_ready,
        status=status.status,
        ends={"/feed": endpoint},
        sockets=settings.internal_sockets,
    )
    unregister = metrics.register(status.samples)
    await internal.start()
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(bridge.watcher.run(endpoint.on_source_change))]
        tasks.create_task(endpoint.run())
        if group := bridge.group:
            background.append(tasks.create_task(group.map.run()))
            tasks.create_task(group.membership.run())
        await life.stopping.wait()
        if group:
            # First: until the group learns of it, no other bridge owns these partitions.
            group.membership.stop()
        endpoint.stop()
        for task in background:
            task.cancel()
    internal.stop()
    unregister()


def _bridge_state(settings: Settings) -> BridgeState:
    options = settings.kafka()
    # Faults of the TLS set-up end the process now; later they would look like an unreachable cluster.
    options.client_arguments()
    records = Records(BadRecordLog(time.monotonic))
    if settings.clone is None:
        return BridgeState(options, options.names.x_group(settings.number), TopicWatcher(options), records)
    membership = Membership(options, options.names.z_group(settings.clone), settings.owner)
    group = GroupState(membership, MapReader(options))
    return BridgeState(options, None, TopicWatcher(options, with_map=True), records, group)
