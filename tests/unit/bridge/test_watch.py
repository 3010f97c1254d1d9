from bridge.watch import Watch
from diem.kafka.metadata import Cluster, Partition, Topic
from diem.kafka.options import KafkaOptions


class Watched:
    """A watch, and how often it called."""

    def __init__(self) -> None:
        self.calls = 0
        self.watch = Watch(KafkaOptions("nobody:1", topic_prefix="x."), self._changed)

    def _changed(self) -> None:
        self.calls += 1

    def learn(self, topic_id: str | None, partitions: int = 2) -> None:
        part = Partition(1, (1,), (1,))
        topics = {}
        if topic_id is not None:
            topics["x.updates"] = Topic("x.updates", topic_id, dict.fromkeys(reversed(range(partitions)), part))
        self.watch.learn(Cluster("cluster", 1, {1: ("nobody", 1)}, topics))


def test_the_source_is_the_cluster_and_the_topics_id_and_every_partition_has_a_name() -> None:
    watched = Watched()
    assert watched.watch.why_not
    watched.learn("one", partitions=11)
    assert watched.watch.source == "cluster/one"
    assert watched.watch.names == tuple(f"x.updates/{number}" for number in range(11))
    assert [watched.watch.why_not, watched.calls] == [None, 1]
    watched.learn("one", partitions=11)
    assert watched.calls == 1


def test_another_topic_of_the_same_name_is_another_source() -> None:
    watched = Watched()
    watched.learn("one", partitions=4)
    watched.learn("two", partitions=2)
    assert (watched.watch.source, len(watched.watch.names), watched.calls) == ("cluster/two", 2, 2)


def test_partitions_are_added_and_never_taken_away() -> None:
    watched = Watched()
    watched.learn("one", partitions=2)
    watched.learn("one", partitions=4)
    watched.learn("one", partitions=2)
    assert (len(watched.watch.names), watched.calls) == (4, 2)


def test_a_topic_that_was_never_there_is_said_at_once() -> None:
    watched = Watched()
    watched.learn(None)
    assert watched.watch.why_not == "topic x.updates does not exist"
    assert watched.watch.source is None


def test_a_topic_is_gone_when_that_is_said_twice() -> None:
    watched = Watched()
    watched.learn("one")
    watched.learn(None)
    assert watched.watch.source == "cluster/one", "a broker that has just started may not know it yet"
    watched.learn("one")
    watched.learn(None)
    assert watched.watch.source == "cluster/one"
    watched.learn(None)
    assert [watched.watch.source, watched.watch.names] == [None, ()]
    assert watched.watch.why_not == "topic x.updates does not exist"
