"""The topics that are published to, and the partition map to begin with: made, compared, or known from before."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import structlog

from diem.kafka.client import connected
from diem.kafka.config import KafkaOptions
from diem.kafka.map_writer import begin_map
from diem.kafka.metadata import Cluster, describe
from diem.kafka.topics import check_room, ensure, used_partitions
from diem.protocol.partition_map import HOT, PartitionMap
from services.data.publisher.state import PublisherState


class Topics(NamedTuple):
    """What there is to publish to."""

    cluster: Cluster
    partitions: int
    """Of the updates topic."""
    source: str
    """Cluster and topics that positions belong to."""
    map_source: str
    map: PartitionMap


async def find(options: KafkaOptions, hot: Collection[str], before: PublisherState | None) -> Topics:
    """Find the topics and the map: the one that stands, else the one that was followed, else epoch 0 with ``hot``.

    Raises:
        KafkaUnavailable: the cluster does not answer, or does not let us.
        WrongTopic: a topic is there, and not as it must be; or it has fewer partitions than the map uses.
    """
    names = options.names
    cluster = await _cluster(options, before)
    partitions = len(cluster.topics[names.updates].partitions)
    source, map_source = str(cluster.source(*names.log)), str(cluster.source(names.partition_map))
    if before is not None and before.map == map_source:
        # What is newer there is followed while publishing.
        map_ = before.backlog.map
    else:
        map_ = await begin_map(options, partitions, hot, before.backlog.map if before else None)
    check_room(names.updates, partitions, map_)
    return Topics(cluster, partitions, source, map_source, map_)


async def _cluster(options: KafkaOptions, before: PublisherState | None) -> Cluster:
    """The cluster with our topics, which are made or compared unless they are those that were published to before."""
    names = options.names
    if before is None:
        return await ensure(options)
    async with connected(options) as client:
        cluster = await describe(client, *names.topics)
    if (cluster.source(*names.log), cluster.source(names.partition_map)) == (before.source, before.map):
        return cluster
    # What is configured was compared at the start; plans may have given the topic more since.
    return await ensure(replace(options, partitions=None), used_partitions(before.backlog.map))


def warn(options: KafkaOptions, hot: Collection[str], topics: Topics) -> None:
    """Say in the log where the map that is there is another one than the settings and the topic would make."""
    logger, map_ = structlog.get_logger("publisher"), topics.map
    configured = {name.encode() for name in hot}
    marked = {name for name, entry in map_.entries.items() if HOT in entry}
    if configured and marked != configured:
        logger.warning(
            "other endpoints are hot than configured: DIEM_DATA_HOT counts when the partition map is first made",
            not_hot=sorted(name.decode() for name in configured - marked),
            not_configured=sorted(name.decode() for name in marked - configured),
        )
    if topics.partitions > (used := used_partitions(map_)):
        logger.warning(
            "the topic has more partitions than the partition map: the others are empty until a plan uses them",
            topic=options.names.updates,
            partitions=topics.partitions,
            used=used,
        )
