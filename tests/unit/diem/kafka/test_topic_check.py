"""A topic is as all brokers say that it is; one alone may not have heard yet how it was made or altered."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import NodeNotReadyError

from diem.kafka import topics
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import KafkaUnavailable, WrongTopic
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.kafka.topics import compare, specs

OPTIONS = KafkaOptions("k:9092")
GOOD: dict[str, str] = {}
BAD = {"cleanup.policy": "compact,delete"}
CLUSTER = Cluster(
    "c",
    1,
    {1: ("k", 1), 2: ("k", 2)},
    {
        spec.name: Topic(spec.name, "id", {n: Partition(1, (1, 2), (1, 2)) for n in range(spec.partitions)})
        for spec in specs(OPTIONS, 2)
    },
)


@dataclass
class Client:
    """Each broker gives its answers about the updates topic one after the other, and the last one for ever."""

    answers: dict[int, list[dict[str, str] | Exception | int]]
    asked: list[int] = field(default_factory=list)

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=node) for node in self.answers])

    async def send(self, node: int, _request: object) -> Any:
        self.asked.append(node)
        answers = self.answers[node]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return SimpleNamespace(resources=[(answer, None, 2, OPTIONS.names.updates, [])])
        config = {
            spec.name: {**spec.config, **(answer if spec.name == OPTIONS.names.updates else {})} for spec in SPECS
        }
        return SimpleNamespace(resources=[(0, None, 2, name, list(said.items())) for name, said in config.items()])


SPECS = specs(OPTIONS, 2)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "PAUSE_S", 0.0)


async def compared(**answers: list[dict[str, str] | Exception | int]) -> Client:
    client: Any = Client({int(name[1:]): given for name, given in answers.items()})
    await compare(client, OPTIONS, CLUSTER)
    assert isinstance(client, Client)
    return client


async def test_every_broker_is_asked() -> None:
    assert (await compared(b1=[GOOD], b2=[GOOD])).asked == [1, 2]


async def test_a_broker_that_has_not_heard_of_an_alteration_yet_is_asked_again_with_all() -> None:
    with pytest.raises(WrongTopic, match=r"cleanup\.policy is compact,delete"):
        await compared(b1=[GOOD, GOOD, BAD], b2=[BAD])
    assert (await compared(b1=[BAD, BAD, GOOD], b2=[GOOD])).asked == [1, 2] * 3


async def test_a_topic_that_one_broker_calls_wrong_for_long_is_wrong() -> None:
    with pytest.raises(WrongTopic, match=r"cleanup\.policy is compact,delete"):
        await compared(b1=[GOOD], b2=[BAD])


async def test_a_broker_that_is_away_is_passed_over_while_another_one_answers() -> None:
    await compared(b1=[NodeNotReadyError()], b2=[GOOD])
    with pytest.raises(WrongTopic):
        await compared(b1=[BAD], b2=[OSError("reset")])
    with pytest.raises(KafkaUnavailable, match="cannot be described: OSError reset"):
        await compared(b1=[NodeNotReadyError()], b2=[OSError("reset")])


async def test_a_broker_that_has_not_heard_yet_that_a_topic_was_made_is_asked_again() -> None:
    assert (await compared(b1=[GOOD], b2=[3, 3, GOOD])).asked == [1, 2] * 3
    with pytest.raises(KafkaUnavailable, match=r"broker 2: diem\.updates cannot be described: UnknownTopic"):
        await compared(b1=[GOOD], b2=[3])


async def test_a_topic_that_may_not_be_described_is_not_called_right() -> None:
    with pytest.raises(KafkaUnavailable, match=r"diem\.updates cannot be described: TopicAuthorization"):
        await compared(b1=[GOOD], b2=[29])
