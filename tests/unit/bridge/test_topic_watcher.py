from bridge.topic_watcher import TopicWatcher
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import Cluster, Partition, Topic


class Watched:
    """A watcher that counts changes of the source or the streams."""

    def __init__(self, *, with_map: bool = False) -> None:
        self.calls = 0
        self.watcher = TopicWatcher(KafkaOptions("nobody:1", topic_prefix="x."), with_map=with_map)

    def update(
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
        self.calls += self.watcher.update(Cluster("cluster", 1, {1: ("nobody", 1)}, topics))


def test_the_source_is_the_cluster_and_the_topics_ids_and_every_partition_has_a_name() -> None:
    watched = Watched()
    assert watched.watcher.why_not
    watched.update("one", partitions=11)
    assert watched.watcher.source == "cluster/one/hot"
    assert watched.watcher.names == (*(f"x.updates/{number}" for number in range(11)), "x.updates.hot/0")
    assert [watched.watcher.why_not, watched.calls, watched.watcher.partitions] == [None, 1, 11]
    watched.update("one", partitions=11)
    assert watched.calls == 1


def test_the_source_changes_when_any_of_the_topics_is_replaced() -> None:
    watched = Watched(with_map=True)
    watched.update("one")
    assert watched.watcher.why_not == "topic x.partition-map does not exist"
    for hot, map_ in (("hot", "map"), ("hot 2", "map"), ("hot 2", "map 2")):
        watched.update("one", hot=hot, map_=map_)
        assert watched.watcher.source == f"cluster/one/{hot}/{map_}"
    assert "x.partition-map/0" not in watched.watcher.names, "it is not read by what reads the updates"
    assert watched.calls == 3


def test_a_missing_topic_of_hot_updates_is_reported_at_once() -> None:
    watched = Watched()
    watched.update("one", hot=None)
    assert (watched.watcher.source, watched.watcher.why_not) == (None, "topic x.updates.hot does not exist")


def test_another_topic_of_the_same_name_is_another_source() -> None:
    watched = Watched()
    watched.update("one", partitions=4)
    watched.update("two", partitions=2)
    assert (watched.watcher.source, watched.watcher.partitions, watched.calls) == ("cluster/two/hot", 2, 2)


def test_partitions_are_added_and_never_removed() -> None:
    watched = Watched()
    watched.update("one", partitions=2)
    watched.update("one", partitions=4)
    watched.update("one", partitions=2)
    assert (watched.watcher.partitions, watched.calls) == (4, 2)


def test_a_topic_that_never_existed_is_reported_at_once() -> None:
    watched = Watched()
    watched.update(None)
    assert watched.watcher.why_not == "topic x.updates does not exist"
    assert watched.watcher.source is None


def test_a_topic_is_gone_when_it_is_missing_twice() -> None:
    watched = Watched()
    watched.update("one")
    watched.update(None)
    assert watched.watcher.source == "cluster/one/hot", "a broker that has just started may not know it yet"
    watched.update("one")
    watched.update(None)
    assert watched.watcher.source == "cluster/one/hot"
    watched.update(None)
    assert [watched.watcher.source, watched.watcher.names] == [None, ()]
    assert watched.watcher.why_not == "topic x.updates does not exist"
