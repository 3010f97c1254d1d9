"""A served topic under everything that may happen to it: readers end with the last value of every key."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diem.protocol.partitioners import Partitioner
from diem.protocol.served_topic import Epoch, Observed, encode_epoch, latest, next_epoch, version_of
from tests.walks import walk_settings

NOW = 1_700_000_000_000
PLACE = Partitioner.MURMUR2.place
KEYS = [b"%d" % number for number in range(4)]


class Log:
    """A partition: its records by offset, some of which are lost."""

    def __init__(self) -> None:
        self.begin = self.end = 0
        self.records: dict[int, tuple[bytes, int]] = {}

    def append(self, key: bytes, content: int) -> None:
        self.records[self.end] = (key, content)
        self.end += 1


class ServedTopic(RuleBasedStateMachine):
    """A topic under everything that may happen to it, and a reader that applies greater versions only.

    Each key has one producer, which hears of new partitions late. The topic is observed before each mishap.
    """

    def __init__(self) -> None:
        super().__init__()
        self.topic, self.logs = 0, [Log() for _ in range(2)]
        self.counts = dict.fromkeys(KEYS, 2)
        self.written: list[tuple[bytes, int]] = []
        self.epoch: Epoch | None = None
        self.before: tuple[int, ...] = ()
        self.retained: dict[bytes, tuple[int, int]] = {}
        self.observe()

    @property
    def observed(self) -> Observed:
        return Observed(str(self.topic), tuple(log.begin for log in self.logs), tuple(log.end for log in self.logs))

    def observe(self, *, cut: bool = False) -> None:
        observed = self.observed
        self.epoch = next_epoch(self.epoch, observed, NOW, before=self.before, cut=cut) or self.epoch
        self.before = observed.ends

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8), read=st.booleans())
    def write_all(self, keys: list[bytes], *, read: bool) -> None:
        for key in keys:
            self.write(key)
        if read:
            self.read()

    def write(self, key: bytes) -> None:
        self.written.append((key, len(self.written)))
        self.logs[PLACE(key, self.counts[key])].append(*self.written[-1])

    @rule(key=st.sampled_from(KEYS))
    def refresh(self, key: bytes) -> None:
        self.observe()
        self.counts[key] = len(self.logs)

    @rule(more=st.integers(1, 3))
    def add_partitions(self, more: int) -> None:
        if len(self.logs) < 12:
            self.observe()
            self.logs += [Log() for _ in range(more)]

    @rule(count=st.integers(1, 4))
    def make_again(self, count: int) -> None:
        self.topic += 1
        self.logs = [Log() for _ in range(count)]
        self.counts = dict.fromkeys(KEYS, count)
        self.before = ()

    @rule(which=st.integers(0, 11), lost=st.integers(1, 3), more=st.integers(0, 3))
    def lose_end(self, which: int, lost: int, more: int) -> None:
        log = self.logs[which % len(self.logs)]
        if log.end - lost < log.begin:
            return
        self.read()
        for offset in range(log.end - lost, log.end):
            log.records.pop(offset, None)
        log.end -= lost
        self.observe(cut=True)
        here = [key for key, count in self.counts.items() if self.logs[PLACE(key, count)] is log]
        for key in here[:more]:
            self.write(key)
        self.read()

    @rule(which=st.integers(0, 11), lost=st.integers(1, 3))
    def lose_beginning(self, which: int, lost: int) -> None:
        log = self.logs[which % len(self.logs)]
        log.begin = min(log.end, log.begin + lost)
        log.records = {offset: record for offset, record in log.records.items() if offset >= log.begin}

    @rule(which=st.integers(0, 11))
    def compact(self, which: int) -> None:
        log = self.logs[which % len(self.logs)]
        newest = {key: offset for offset, (key, _) in log.records.items()}
        log.records = {offset: record for offset, record in log.records.items() if newest[record[0]] == offset}

    @rule()
    def read(self) -> None:
        self.observe()
        epoch = self.epoch
        assert epoch is not None
        seen: set[bytes] = set()
        for number, log in enumerate(self.logs):
            for offset, (key, content) in log.records.items():
                version = version_of(epoch.ranks(key, number, Partitioner.MURMUR2), offset)
                known = self.retained.get(key)
                assert known is None or version != known[0] or content == known[1]
                if known is None or version > known[0]:
                    self.retained[key] = (version, content)
                seen.add(key)
        self.retained = {key: held for key, held in self.retained.items() if key in seen}
        there: dict[bytes, int] = {}
        for log in self.logs:
            for key, content in log.records.values():
                there[key] = max(content, there.get(key, -1))
        assert {key: content for key, (_, content) in self.retained.items()} == there

    @invariant()
    def epochs_survive_their_log(self) -> None:
        assert self.epoch is None or latest(iter([encode_epoch(replace(self.epoch, number=1))])) is not None


ServedTopic.TestCase.settings = walk_settings(examples=200, steps=40)
TestServedTopic = ServedTopic.TestCase
