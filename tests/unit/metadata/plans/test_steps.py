"""Migrations from the first step to the last, with rollbacks at any time, as readers of the map's topic see them."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.partition_map import HEAD_KEY, HOT, Entry, Head, MapBuilder, PartitionMap, Phase, encode_head
from diem.protocol.partitioners import partition_of
from metadata.plans.steps import ROLLBACK, MapStep, begin, moves, moving, proceed, reverse

NAMES = [f"/e/{n}".encode() for n in range(8)]
HOMES = st.dictionaries(st.sampled_from(NAMES), st.integers(HOT, 5))


class Topic:
    """The map's topic, with one reader of every record and one of the compacted topic, whose maps must be equal."""

    def __init__(self, homes: dict[bytes, int], published: Collection[bytes] = NAMES) -> None:
        self.published = published
        self.records: dict[bytes, bytes] = {}
        self.reader = MapBuilder()
        self.write(MapStep({}, Head(4, 0)))
        if homes:
            self.run(homes, "first")

    @property
    def map(self) -> PartitionMap:
        assert self.reader.map is not None
        return self.reader.map

    def write(self, step: MapStep) -> None:
        written = {key: value or b"" for key, value in step.records.items()} | {HEAD_KEY: encode_head(step.head)}
        for key, value in written.items():
            self.records.pop(key, None)
            self.records[key] = value
            self.reader.apply(key, value)
        late = MapBuilder()
        for key, value in self.records.items():
            late.apply(key, value)
        assert late.map == self.map

    @property
    def unknown(self) -> frozenset[bytes]:
        """Endpoints that the publisher names as unknown when it acknowledges the current map."""
        return frozenset(self.map.entries.keys() - set(self.published))

    def run(self, homes: dict[bytes, int], plan: str) -> None:
        self.write(begin(self.map, homes, plan, self.unknown))
        self.finish()

    def finish(self) -> None:
        while step := proceed(self.map, self.map.head.epoch, 30.0, 30.0, self.unknown):
            self.write(step)


def homes_of(map_: PartitionMap) -> dict[bytes, int]:
    return {name: map_.home(name) for name in NAMES}


@given(HOMES, HOMES)
def test_a_plan_moves_its_endpoints_to_their_homes_and_no_others(
    first: dict[bytes, int], homes: dict[bytes, int]
) -> None:
    topic = Topic(first)
    before = homes_of(topic.map)
    topic.run(homes, "p")
    assert homes_of(topic.map) == before | homes
    assert (topic.map.head.phase, topic.map.head.plan) == (Phase.STABLE, "p")
    assert not moving(topic.map)
    # In the partition of its hash an endpoint needs no entry.
    assert all(entry.home != partition_of(name, 4) for name, entry in topic.map.entries.items())


@given(HOMES, HOMES, st.integers(0, 3), st.integers(0, 2), st.booleans())
def test_a_rollback_in_any_phase_restores_all_homes(
    first: dict[bytes, int], homes: dict[bytes, int], steps: int, back_steps: int, twice: bool
) -> None:
    topic = Topic(first)
    before = homes_of(topic.map)
    topic.write(begin(topic.map, homes, "p"))
    for _ in range(steps):
        if step := proceed(topic.map, topic.map.head.epoch, 30.0, 30.0):
            topic.write(step)
    if topic.map.head.phase is Phase.STABLE:
        return
    topic.write(reverse(topic.map))
    assert topic.map.head.plan == ROLLBACK + "p"
    if twice:
        for _ in range(back_steps):
            if step := proceed(topic.map, topic.map.head.epoch, 30.0, 30.0):
                topic.write(step)
        if moving(topic.map):
            topic.write(reverse(topic.map))
            topic.finish()
            assert homes_of(topic.map) == before | homes
            assert topic.map.head.plan == "p"
            return
    topic.finish()
    assert homes_of(topic.map) == before


def test_no_step_is_taken_before_it_is_due() -> None:
    moved = {b"/e/0": Entry(1, 2)}
    prepare, move, retire = (PartitionMap(Head(4, 7, phase, "p"), moved) for phase in list(Phase)[1:])
    assert proceed(prepare, 6, 99.0, 30.0) is None
    assert proceed(move, 7, 29.9, 30.0) is None
    assert proceed(retire, 6, 99.0, 30.0) is None
    assert proceed(PartitionMap(Head(4, 7), moved), 7, 99.0, 30.0) is None


def test_phases_follow_and_reverse_in_the_order_of_the_protocol() -> None:
    moved = {b"/e/0": Entry(1, 2)}
    after = {
        phase: (step.head.phase if (step := proceed(PartitionMap(Head(4, 1, phase), moved), 1, 30.0, 30.0)) else None)
        for phase in Phase
    }
    assert list(after.values()) == [None, Phase.MOVE, Phase.RETIRE, Phase.STABLE]
    back = {phase: reverse(PartitionMap(Head(4, 1, phase), moved)).head.phase for phase in list(Phase)[1:]}
    assert list(back.values()) == [Phase.RETIRE, Phase.MOVE, Phase.PREPARE]


def test_endpoints_already_at_home_do_not_move() -> None:
    map_ = PartitionMap(Head(4, 1), {b"/e/0": Entry(HOT)})
    homes = {b"/e/0": HOT, b"/e/1": partition_of(b"/e/1", 4)}
    assert moves(map_, homes) == {}
    assert begin(map_, homes, "p").head == Head(4, 2, Phase.STABLE, "p")


@given(HOMES, HOMES, HOMES, st.sets(st.sampled_from(NAMES)))
def test_the_next_plan_removes_entries_of_unpublished_names(
    first: dict[bytes, int], homes: dict[bytes, int], others: dict[bytes, int], published: set[bytes]
) -> None:
    topic = Topic(first)
    before = homes_of(topic.map)
    # From now on the publisher has only these.
    topic.published = published
    topic.run(homes, "p")
    assert topic.map.entries.keys() <= published
    assert (topic.map.head.phase, topic.map.head.plan) == (Phase.STABLE, "p")
    expected = {name: (before | homes)[name] if name in published else partition_of(name, 4) for name in NAMES}
    assert homes_of(topic.map) == expected
    topic.run(others, "q")
    assert topic.map.entries.keys() <= published


@given(HOMES, HOMES, st.sets(st.sampled_from(NAMES)), st.integers(0, 3))
def test_a_rollback_adds_no_entries_of_unpublished_names(
    first: dict[bytes, int], homes: dict[bytes, int], published: set[bytes], steps: int
) -> None:
    topic = Topic({name: home for name, home in first.items() if name in published}, published)
    before = homes_of(topic.map)
    topic.write(begin(topic.map, homes, "p"))
    for _ in range(steps):
        if step := proceed(topic.map, topic.map.head.epoch, 30.0, 30.0, topic.unknown):
            topic.write(step)
    if topic.map.head.phase is not Phase.STABLE:
        topic.write(reverse(topic.map))
        topic.finish()
        assert homes_of(topic.map) == before
    assert topic.map.entries.keys() <= published


@given(HOMES, HOMES, st.sets(st.sampled_from(NAMES)) | st.just(set(NAMES)))
def test_in_every_phase_clients_are_sent_to_a_partition_that_is_written_to(
    first: dict[bytes, int], homes: dict[bytes, int], published: set[bytes]
) -> None:
    topic = Topic(first)
    topic.published = published
    step: MapStep | None = begin(topic.map, homes, "p", topic.unknown)
    written = {name: {topic.map.home(name)} for name in NAMES}
    while step is not None:
        topic.write(step)
        now = {name: set(topic.map.written_to(name)) for name in NAMES}
        for name in NAMES:
            # The name may be published at any time.
            assert topic.map.home(name) in now[name]
            assert now[name] & written[name]
        written = now
        step = proceed(topic.map, topic.map.head.epoch, 30.0, 30.0, topic.unknown)


def test_an_acknowledgement_of_an_earlier_epoch_cancels_nothing() -> None:
    moved = PartitionMap(Head(4, 7, Phase.PREPARE, "p"), {b"/e/0": Entry(1, 2)})
    cancelled = proceed(moved, 7, 0.0, 30.0, {b"/e/0"})
    assert cancelled is not None
    assert cancelled.records.keys() == {b"/e/0"}
    assert proceed(moved, 6, 99.0, 30.0, {b"/e/0"}) is None
