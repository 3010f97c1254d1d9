"""A move from its first step to its last, with rollbacks at any time, as readers of the map's topic see it."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.partition_map import (
    HEAD_KEY,
    HOT,
    Entry,
    Head,
    MapBuilder,
    PartitionMap,
    Phase,
    encode_head,
    partition_of,
)
from metadata.plans.steps import BACK, MapStep, begin, moves, moving, proceed, reverse

NAMES = [f"/e/{n}".encode() for n in range(8)]
HOMES = st.dictionaries(st.sampled_from(NAMES), st.integers(HOT, 5))


class Topic:
    """The map's topic, read by somebody who sees everything and by somebody who sees only the newest of every key."""

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
        """What the publisher says when it acknowledges the map as it is."""
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
def test_a_plan_ends_with_every_endpoint_where_it_says_and_all_others_where_they_were(
    first: dict[bytes, int], homes: dict[bytes, int]
) -> None:
    topic = Topic(first)
    before = homes_of(topic.map)
    topic.run(homes, "p")
    assert homes_of(topic.map) == before | homes
    assert (topic.map.head.phase, topic.map.head.plan) == (Phase.STABLE, "p")
    assert not moving(topic.map)
    # What the hash says needs no entry.
    assert all(entry.home != partition_of(name, 4) for name, entry in topic.map.entries.items())


@given(HOMES, HOMES, st.integers(0, 3), st.integers(0, 2), st.booleans())
def test_a_rollback_in_any_phase_ends_where_everything_was(
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
    assert topic.map.head.plan == BACK + "p"
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


@given(HOMES)
def test_at_every_step_clients_are_sent_to_a_place_that_is_written_to(homes: dict[bytes, int]) -> None:
    topic = Topic({})
    step: MapStep | None = begin(topic.map, homes, "p")
    written = {name: {topic.map.home(name)} for name in NAMES}
    while step is not None:
        topic.write(step)
        now = {name: set(topic.map.written_to(name)) for name in NAMES}
        for name in NAMES:
            assert topic.map.home(name) in now[name]
            # From one step to the next there is always a place that goes on being written to.
            assert now[name] & written[name]
        written = now
        step = proceed(topic.map, topic.map.head.epoch, 30.0, 30.0)


def test_every_step_is_waited_for() -> None:
    moved = {b"/e/0": Entry(1, 2)}
    prepare, move, retire = (PartitionMap(Head(4, 7, phase, "p"), moved) for phase in list(Phase)[1:])
    assert proceed(prepare, 6, 99.0, 30.0) is None
    assert proceed(move, 7, 29.9, 30.0) is None
    assert proceed(retire, 6, 99.0, 30.0) is None
    assert proceed(PartitionMap(Head(4, 7), moved), 7, 99.0, 30.0) is None


def test_the_phases_follow_each_other_and_go_back_as_the_protocol_says() -> None:
    moved = {b"/e/0": Entry(1, 2)}
    after = {
        phase: (step.head.phase if (step := proceed(PartitionMap(Head(4, 1, phase), moved), 1, 30.0, 30.0)) else None)
        for phase in Phase
    }
    assert list(after.values()) == [None, Phase.MOVE, Phase.RETIRE, Phase.STABLE]
    back = {phase: reverse(PartitionMap(Head(4, 1, phase), moved)).head.phase for phase in list(Phase)[1:]}
    assert list(back.values()) == [Phase.RETIRE, Phase.MOVE, Phase.PREPARE]


def test_what_is_where_it_is_to_be_does_not_move() -> None:
    map_ = PartitionMap(Head(4, 1), {b"/e/0": Entry(HOT)})
    homes = {b"/e/0": HOT, b"/e/1": partition_of(b"/e/1", 4)}
    assert moves(map_, homes) == {}
    assert begin(map_, homes, "p").head == Head(4, 2, Phase.STABLE, "p")


@given(HOMES, HOMES, HOMES, st.sets(st.sampled_from(NAMES)))
def test_entries_of_names_that_nobody_has_published_go_with_the_next_plan(
    first: dict[bytes, int], homes: dict[bytes, int], others: dict[bytes, int], published: set[bytes]
) -> None:
    topic = Topic(first)
    before = homes_of(topic.map)
    # From now on the publisher has these only.
    topic.published = published
    topic.run(homes, "p")
    assert topic.map.entries.keys() <= published
    assert (topic.map.head.phase, topic.map.head.plan) == (Phase.STABLE, "p")
    expected = {name: (before | homes)[name] if name in published else partition_of(name, 4) for name in NAMES}
    assert homes_of(topic.map) == expected
    topic.run(others, "q")
    assert topic.map.entries.keys() <= published


@given(HOMES, HOMES, st.sets(st.sampled_from(NAMES)), st.integers(0, 3))
def test_a_rollback_makes_no_entries_of_names_that_nobody_has_published(
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


@given(HOMES, HOMES, st.sets(st.sampled_from(NAMES)))
def test_whoever_follows_a_name_that_nobody_had_published_has_a_place_that_is_written_to(
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
            # It may be published at any time.
            assert topic.map.home(name) in now[name]
            assert now[name] & written[name]
        written = now
        step = proceed(topic.map, topic.map.head.epoch, 30.0, 30.0, topic.unknown)


def test_what_was_acknowledged_of_an_epoch_before_cancels_nothing() -> None:
    moved = PartitionMap(Head(4, 7, Phase.PREPARE, "p"), {b"/e/0": Entry(1, 2)})
    cancelled = proceed(moved, 7, 0.0, 30.0, {b"/e/0"})
    assert cancelled is not None
    assert cancelled.records.keys() == {b"/e/0"}
    assert proceed(moved, 6, 99.0, 30.0, {b"/e/0"}) is None
