"""Epochs that a bridge proposes and uses, from what it observes of a served topic."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bridge.served_watcher import ServedTopicWatcher
from bridge.topic_records import TopicRecords
from diem.kafka.config import KafkaOptions, ServedTopic
from diem.kafka.metadata import Cluster
from diem.protocol.keys import KeyTemplate
from diem.protocol.served_topic import Epoch, Observed, encode_epoch, latest

CLUSTER = Cluster("cluster", 1, {}, {})
NOTHING: Mapping[str, int] = MappingProxyType({})


class Epochs:
    """The topic of the epochs, in memory."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    async def agree(self, propose: Callable[[Epoch | None], Epoch | None]) -> Epoch:
        while True:
            current = latest(iter(self.values))
            proposed = propose(current)
            if proposed is None:
                assert current is not None
                return current
            self.values.append(encode_epoch(proposed))


class Bridge(ServedTopicWatcher):
    def __init__(self, epochs: Epochs) -> None:
        topic = ServedTopic("orders", KeyTemplate("/orders/{key}"))
        records = TopicRecords(topic, lambda _bad, _fault: None, partitioned=True)
        super().__init__(KafkaOptions("broker:9092", served=topic), topic, records, dict)
        self.epochs = epochs

    async def look(self, *ends: int, topic: str = "a", begin: int = 0, reached: Mapping[str, int] = NOTHING) -> bool:
        observed = Observed(topic, (begin,) * len(ends), ends)
        return await self._settle(CLUSTER, observed, self.epochs, reached)  # type: ignore[arg-type]  # in memory

    @property
    def in_force(self) -> Epoch:
        assert self.epoch is not None
        return self.epoch


async def test_bridges_use_one_epoch_and_its_map() -> None:
    epochs = Epochs()
    first, second = Bridge(epochs), Bridge(epochs)
    assert await first.look(5, 5)
    assert await second.look(6, 5)
    assert first.source == second.source
    assert len(epochs.values) == 1
    assert first.names == ("orders/0", "orders/1")
    assert first.map.map is not None
    assert (first.map.map.head.partitions, first.map.map.head.keys) == (2, "murmur2:/orders/{key}")
    assert not await first.look(9, 9)


async def test_lost_end_is_a_new_epoch_only_when_it_is_seen_twice_and_only_once() -> None:
    epochs = Epochs()
    first, second = Bridge(epochs), Bridge(epochs)
    for bridge in (first, second):
        await bridge.look(9, 9)
    before = first.in_force
    assert not await first.look(9, 4)
    assert not await first.look(9, 9)
    assert (first.in_force, len(epochs.values)) == (before, 1)
    assert not await first.look(9, 4)
    assert await first.look(9, 4)
    assert not await second.look(9, 4)
    assert await second.look(9, 4)
    assert first.in_force == second.in_force
    assert (first.in_force.base, len(epochs.values)) == (before.end, 2)
    assert not await first.look(9, 4)


async def test_log_that_ends_before_what_was_read_has_lost_its_end() -> None:
    bridge = Bridge(Epochs())
    await bridge.look(9, 9)
    before = bridge.in_force
    for _ in range(2):
        await bridge.look(9, 10, reached={"orders/1": 12})
    assert bridge.in_force.base == before.end


async def test_offsets_of_a_topic_before_are_not_those_of_the_one_made_again() -> None:
    epochs = Epochs()
    bridge = Bridge(epochs)
    await bridge.look(9, 9)
    assert await bridge.look(0, 0, topic="b")
    assert not await bridge.look(0, 0, topic="b")
    assert (bridge.in_force.topic, len(epochs.values)) == ("b", 2)


async def test_epoch_survives_the_loss_of_its_topic_while_a_bridge_knows_it() -> None:
    epochs = Epochs()
    bridge = Bridge(epochs)
    for number in range(5):
        await bridge.look(9, 9, topic=str(number))
    before = bridge.in_force
    epochs.values.clear()
    await bridge.look(9, 9, topic="4")
    assert (bridge.in_force.base, bridge.in_force.number) == (before.base, before.number + 1)
    other = Bridge(epochs)
    await other.look(9, 9, topic="4")
    assert other.in_force == bridge.in_force
