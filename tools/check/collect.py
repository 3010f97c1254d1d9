"""Collects the facts of a running cluster: brokers, topics, and the settings in force.

All I/O of the audit is here; the rules are pure.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeConfigsRequest

from bridge.consumer import CONSUMER
from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from diem.kafka.topic_config import INTERNAL
from diem.kafka.topics import updates_spec
from services.data.publisher.log import PRODUCER
from tools.check.facts import Facts, Settings

CONNECT_TIMEOUT_S: Final = 8.0
ANSWER_TIMEOUT_S: Final = 5.0


class CheckInput(NamedTuple):
    """Parameters of the audit: lost brokers, cluster sizes, and the brokers and options of a local ``diem up``."""

    tolerate: int
    planned: tuple[int, ...]
    started: frozenset[int]
    restart: tuple[str, ...] = ("--mode", "x")


async def collect(options: KafkaOptions, plans: CheckInput) -> Facts:
    """Read everything the rules evaluate, except facts hidden from this user.

    Raises:
        KafkaUnavailable: no broker answers.
        ConfigurationError: the options cannot be used.
    """
    async with connected_client(options, within=CONNECT_TIMEOUT_S) as client:
        cluster = await describe(client)
        updates, *side_topics = options.names.topics
        traffic = options.names.traffic
        numbers, known = sorted(cluster.brokers), (updates, *side_topics, traffic, *INTERNAL)
        brokers = await asyncio.gather(*(broker_settings(client, number) for number in numbers))
        answered = [number for number, settings in zip(numbers, brokers, strict=True) if settings is not None]
        topics = await _topic_settings(client, [name for name in known if name in cluster.topics], answered)
    return Facts(
        bootstrap_servers=options.bootstrap_servers,
        security_protocol=options.security_protocol,
        cluster=cluster,
        updates=updates,
        wanted=updates_spec(options, len(cluster.brokers)).config,
        topics=topics,
        brokers={number: settings for number, settings in zip(numbers, brokers, strict=True) if settings},
        producer=PRODUCER,
        consumer=CONSUMER,
        started=plans.started,
        silent=frozenset(numbers) - frozenset(answered),
        tolerate=plans.tolerate,
        planned=plans.planned,
        restart=plans.restart,
        side_topics=tuple(side_topics),
        traffic=traffic,
    )


async def broker_settings(client: AIOKafkaClient, number: int) -> Settings | None:
    """Return a broker's settings, empty if hidden; None without an answer."""
    answer = await _describe_configs(client, number, [(ConfigResourceType.BROKER, str(number), None)])
    return None if answer is None else answer.get(str(number), {})


async def _topic_settings(client: AIOKafkaClient, names: Iterable[str], brokers: Iterable[int]) -> dict[str, Settings]:
    resources = [(ConfigResourceType.TOPIC, name, None) for name in names]
    for number in brokers if resources else ():
        answer = await _describe_configs(client, number, resources)
        if answer is not None:
            return answer
    return {}


async def _describe_configs(
    client: AIOKafkaClient, number: int, resources: list[tuple[ConfigResourceType, str, None]]
) -> dict[str, Settings] | None:
    # Not via the admin client: one hung broker would cost the answers of all others.
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            answer = await client.send(number, DescribeConfigsRequest(resources))
    except (KafkaError, OSError, TimeoutError):
        return None
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for code, _message, _kind, name, entries in answer.resources
        if code == 0
    }
