from bridge.topic_watcher import TopicWatcher
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Cluster, Partition, Topic


class Watched:
    """A watch, and how often it called."""

    def __init__(self, *, with_map: bool = False) -> None:
        self.calls = 0
        self.watch = TopicWatcher(KafkaOptions("nobody:1", topic_prefix="x."), self._changed, with_map=with_map)

    def _changed(self) -> None:
        self.calls += 1

    def learn(
        self, topic_id: str | None, partitions: int = 2, hot: str | None = "hot", map_: str | None = None
    ) -> None:
        part = Partition(1, (1,), (1,))
        named = {"x.updates": topic_id, "x.updates.hot": hot, "x.partition-map": map_}
        counts = {"x.updates": partitions}
        topics = {
            name: Topic(name, id_, dict.fromkeys(reversed(range(counts.get(name, 1))), part))
            for name, id_ in named.items()
            if id_ is not None
        }
        self.watch.learn(Cluster("cluster", 1, {1: ("nobody", 1)}, topics))


def test_the_source_is_the_cluster_and_the_topics_ids_and_every_partition_has_a_name() -> None:
    watched = Watched()
    assert watched.watch.why_not
    watched.learn("one", partitions=11)
    assert watched.watch.source == "cluster/one/hot"
    assert watched.watch.names == (*(f"x.updates/{number}" for number in range(11)), "x.updates.hot/0")
    assert [watched.watch.why_not, watched.calls, watched.watch.partitions] == [None, 1, 11]
    watched.learn("one", partitions=11)
    assert watched.calls == 1


def test_the_source_is_another_one_when_any_of_the_topics_is() -> None:
    watched = Watched(with_map=True)
    watched.learn("one")
    assert watched.watch.why_not == "topic x.partition-map does not exist"
    for hot, map_ in (("hot", "map"), ("hot 2", "map"), ("hot 2", "map 2")):
        watched.learn("one", hot=hot, map_=map_)
        assert watched.watch.source == f"cluster/one/{hot}/{map_}"
    assert "x.partition-map/0" not in watched.watch.names, "it is not read by what reads the updates"
    assert watched.calls == 3


def test_a_missing_topic_of_hot_updates_is_said_at_once() -> None:
    watched = Watched()
    watched.learn("one", hot=None)
    assert (watched.watch.source, watched.watch.why_not) == (None, "topic x.updates.hot does not exist")


def test_another_topic_of_the_same_name_is_another_source() -> None:
    watched = Watched()
    watched.learn("one", partitions=4)
    watched.learn("two", partitions=2)
    assert (watched.watch.source, watched.watch.partitions, watched.calls) == ("cluster/two/hot", 2, 2)


def test_partitions_are_added_and_never_taken_away() -> None:
    watched = Watched()
    watched.learn("one", partitions=2)
    watched.learn("one", partitions=4)
    watched.learn("one", partitions=2)
    assert (watched.watch.partitions, watched.calls) == (4, 2)


def test_a_topic_that_was_never_there_is_said_at_once() -> None:
    watched = Watched()
    watched.learn(None)
    assert watched.watch.why_not == "topic x.updates does not exist"
    assert watched.watch.source is None


def test_a_topic_is_gone_when_that_is_said_twice() -> None:
    watched = Watched()
    watched.learn("one")
    watched.learn(None)
    assert watched.watch.source == "cluster/one/hot", "a broker that has just started may not know it yet"
    watched.learn("one")
    watched.learn(None)
    assert watched.watch.source == "cluster/one/hot"
    watched.learn(None)
    assert [watched.watch.source, watched.watch.names] == [None, ()]
    assert watched.watch.why_not == "topic x.updates does not exist"
