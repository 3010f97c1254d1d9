"""Our topics held against how they must be, by the word of every broker (docs/protocol.md section 3)."""

import asyncio
from typing import Final

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import DescribeConfigsRequest

from diem.kafka.connecting import REQUEST_TIMEOUT_MS
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.metadata import Cluster
from diem.kafka.options import KafkaOptions
from diem.kafka.topic_specs import differences, specs

Settings = dict[str, dict[str, str]]
"""Topic -> name of a setting -> its value."""
ATTEMPTS: Final = 10
PAUSE_S: Final = 0.5
"""Brokers learn of a change one by one, as a rule within milliseconds: they are given 5 s to agree."""


class UnknownToBroker(KafkaUnavailable):
    """A broker has not heard of a topic which is there: it was made a moment ago."""


async def compare(client: AIOKafkaClient, options: KafkaOptions, cluster: Cluster) -> None:
    """See that all of our topics, which are in ``cluster``, are as they must be.

    A broker may not have heard yet how a topic was made or altered, so that one alone proves nothing. All are asked,
    and asked again while they differ; what any of them still says then counts.

    Raises:
        KafkaUnavailable: no broker answers, or one may not or cannot say.
        WrongTopic: a topic is not as it must be.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            said = await settings_in_force(client, *cluster.topics)
        except UnknownToBroker:
            if not left:
                raise
        else:
            found = [_faults(options, cluster, settings) for settings in said]
            if not left or all(each == found[0] for each in found):
                break
        await asyncio.sleep(PAUSE_S)
    for spec in specs(options, len(cluster.brokers)):
        if lines := dict.fromkeys(line for each in found for line in each[spec.name]):
            raise WrongTopic(spec.name, lines)


def _faults(options: KafkaOptions, cluster: Cluster, settings: Settings) -> dict[str, list[str]]:
    """The faults of each topic, by the word of one broker."""
    return {
        spec.name: list(differences(spec, options, cluster.topics[spec.name], settings[spec.name]))
        for spec in specs(options, len(cluster.brokers))
    }


async def settings_in_force(client: AIOKafkaClient, *topics: str) -> list[Settings]:
    """The settings of topics, as each broker that answers has them. Takes up to 3 s.

    Raises:
        UnknownToBroker: one does not know a topic.
        KafkaUnavailable: no broker answers, or one may not or cannot say.
    """
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    answers = await asyncio.gather(*(_ask(client, node, topics) for node in nodes), return_exceptions=True)
    found: list[Settings] = []
    fault: BaseException = KafkaUnavailable("the cluster", "no broker is known")
    for answer in answers:
        if isinstance(answer, dict):
            found.append(answer)
        elif isinstance(answer, (KafkaError, OSError, TimeoutError)):
            # One that is away, or hangs, is asked the next time.
            fault = answer
        else:
            raise answer
    if not found:
        said = f"its topics cannot be described: {type(fault).__name__} {fault}".strip()
        raise KafkaUnavailable("the cluster", said) from fault
    return found


async def _ask(client: AIOKafkaClient, node: int, topics: tuple[str, ...]) -> Settings:
    request = DescribeConfigsRequest([(ConfigResourceType.TOPIC, name, None) for name in topics])
    async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
        answer = await client.send(node, request)
    found: Settings = {}
    for code, said, _kind, name, entries in answer.resources:
        if code:
            kind = UnknownToBroker if code == UnknownTopicOrPartitionError.errno else KafkaUnavailable
            reason = f"{name} cannot be described: {said or for_code(code).__name__}"
            raise kind(f"broker {node}", reason)
        found[name] = {entry[0]: entry[1] for entry in entries}
    return found
