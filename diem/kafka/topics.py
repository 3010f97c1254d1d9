"""Our topics in a cluster: made when they are missing, compared when they are there."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from aiokafka.admin import NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAlreadyExistsError, for_code

from diem.kafka.admin import administering
from diem.kafka.connecting import connected
from diem.kafka.errors import KafkaUnavailable
from diem.kafka.map_reader import read_map
from diem.kafka.metadata import Cluster, describe
from diem.kafka.options import KafkaOptions
from diem.kafka.topic_check import compare
from diem.kafka.topic_specs import TopicSpec, specs, traffic_spec, used_partitions


async def ensure(options: KafkaOptions, partitions: int | None = None) -> Cluster:
    """Make the topics that are missing, and compare the others; returns the cluster with them.

    Args:
        options: where the topics are, and what is configured of them.
        partitions: that an updates topic is made with; without it, as many as a partition map that is there uses.

    Raises:
        KafkaUnavailable: the cluster does not answer, or does not let us.
        WrongTopic: a topic is there, and not as it must be.
    """
    names = options.names.topics
    async with connected(options) as client:
        cluster = await describe(client, *names)
        if missing := [name for name in names if name not in cluster.topics]:
            if options.names.updates in missing and options.names.partition_map not in missing and partitions is None:
                # Another number would be another home for every endpoint, and no room for some.
                map_ = await read_map(options)
                partitions = used_partitions(map_) if map_ else None
            wanted = specs(options, len(cluster.brokers), partitions)
            await create(options, *(spec for spec in wanted if spec.name in missing))
            cluster = await _until_there(client, names)
        if await _has_grown(options, len(cluster.topics[options.names.updates].partitions)):
            options = replace(options, partitions=None)
        await compare(client, options, cluster)
        return cluster


async def _has_grown(options: KafkaOptions, count: int) -> bool:
    """Whether plans have given the updates topic more partitions than are configured, which the hash counts with."""
    if options.partitions is None or count <= options.partitions:
        return False
    map_ = await read_map(options)
    return map_ is not None and map_.head.partitions == options.partitions


async def ensure_traffic(options: KafkaOptions) -> list[int]:
    """Make the topic of recorded traffic if it is missing; returns its partitions. However it is, it will do.

    Raises:
        KafkaUnavailable: the cluster does not answer, or does not let us.
    """
    name = options.names.traffic
    async with connected(options) as client:
        cluster = await describe(client, name)
        if name not in cluster.topics:
            await create(options, traffic_spec(options, len(cluster.brokers)))
            cluster = await _until_there(client, [name])
        return sorted(cluster.topics[name].partitions)


async def create(options: KafkaOptions, *wanted: TopicSpec) -> None:
    """Make topics; one that somebody else has just made is as good.

    Raises:
        KafkaUnavailable: one could not be made.
    """
    new = [NewTopic(spec.name, spec.partitions, spec.replication, topic_configs=dict(spec.config)) for spec in wanted]
    async with administering(options) as admin:
        answer = await admin.create_topics(new)
    said = {topic: (code, rest[0] if rest else "") for topic, code, *rest in answer.topic_errors}
    for spec in wanted:
        code, reason = said[spec.name]
        kind = for_code(code)
        if code and kind is not TopicAlreadyExistsError:
            why = f"topic {spec.name} was not made: {reason or kind.__name__}"
            raise KafkaUnavailable(options.bootstrap_servers, why)


async def _until_there(client: AIOKafkaClient, names: Sequence[str]) -> Cluster:
    for _ in range(50):
        cluster = await describe(client, *names)
        there = [cluster.topics[name] for name in names if name in cluster.topics]
        if len(there) == len(names) and all(part.leader >= 0 for topic in there for part in topic.partitions.values()):
            return cluster
        await asyncio.sleep(0.1)
    raise KafkaUnavailable("the cluster", f"the topics {', '.join(names)} were made, and do not all appear")
