"""Wires a bridge: the watch over its topics, its place in a group if it has one, its serving end and its listener."""

import asyncio
import time

from bridge.feed_endpoint import FeedEndpoint
from bridge.member import Membership
from bridge.records import BadLog, Records
from bridge.settings import Settings
from bridge.state import BridgeState, GroupState
from bridge.status import BridgeStatus
from bridge.topic_watcher import TopicWatcher
from diem.kafka.client import quieten
from diem.kafka.map_reader import MapReader
from diem.links.internal import InternalListener
from diem.process import metrics
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle


async def main(settings: Settings, life: Lifecycle) -> None:
    """Serve the updates topics, or a group's share of them, to one server until asked to stop."""
    quieten()
    key = SharedKey.load(settings.internal_key_file)
    shared = _shared(settings)
    serving = FeedEndpoint(shared)
    shared.watch.on_changed = serving.source_changed
    telling = BridgeStatus(settings, life, shared, serving)
    internal = InternalListener(
        settings.internal_host,
        settings.internal_port,
        key=key,
        ready=telling.why_not_ready,
        status=telling.status,
        ends={"/feed": serving},
        sockets=settings.internal_sockets,
    )
    forget = metrics.register(telling.samples)
    await internal.start()
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(shared.watch.run())]
        tasks.create_task(serving.run())
        if group := shared.group:
            group.membership.on_changed, group.map.on_changed = serving.assigned, serving.map_changed
            following.append(tasks.create_task(group.map.run()))
            tasks.create_task(group.membership.run())
        await life.stopping.wait()
        if group:
            # First of all: until the group hears of it, nobody else owns what this bridge read.
            group.membership.stop()
        serving.stop()
        for each in following:
            each.cancel()
    internal.stop()
    forget()


def _shared(settings: Settings) -> BridgeState:
    options = settings.kafka()
    # Faults of the TLS set-up end the process now; later they would look like a cluster that is away.
    options.client_arguments()
    records = Records(BadLog(time.monotonic))
    if settings.clone is None:
        return BridgeState(options, options.names.x_group(settings.number), TopicWatcher(options), records)
    membership = Membership(options, options.names.z_group(settings.clone), settings.owner)
    return BridgeState(
        options, None, TopicWatcher(options, with_map=True), records, GroupState(membership, MapReader(options))
    )
