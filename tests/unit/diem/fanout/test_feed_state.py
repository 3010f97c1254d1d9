from collections.abc import Iterator

import pytest

from diem.fanout.data_budget import DataBudget
from diem.fanout.feed_state import FeedState, Liveness, UnknownStream
from diem.protocol.feed import Batch, FeedError
from diem.protocol.update import FORGOTTEN, GONE, Change, encode

V = 1_700_000_000_000


def batch(name: str, next_: int, **versions: int) -> Batch:
    def records() -> Iterator[Change]:
        for endpoint, version in versions.items():
            yield Change(next_ - 1, b"/" + endpoint.encode(), version, 0, b"%d" % version)

    return Batch(name, next_, records())


def live_state(*names: str) -> FeedState:
    state = FeedState()
    state.resume()
    state.hello("s", names)
    for name in names:
        state.finish_catch_up(name)
    return state


def test_an_older_or_equal_version_changes_nothing_and_is_counted() -> None:
    state = live_state("p0", "p1")
    assert state.apply(batch("p0", 2, a=20)) == {b"/a": b"20"}
    assert state.apply(batch("p1", 2, a=10)) == {}
    assert state.apply(batch("p1", 3, a=20)) == {}
    assert state.retained[b"/a"][0] == 20
    assert (state.counts.consumed, state.counts.stale) == (3, 2)


def test_a_resumed_link_is_a_catch_up() -> None:
    state = live_state("store")
    state.apply(batch("store", 5, a=1))
    assert state.resume().positions == {"store": 5}
    assert not state.caught_up, "until then, heartbeats do not make the server live"
    state.hello("s", ["store"])
    assert state.apply(batch("store", 6, a=2)) == {}
    assert state.finish_catch_up("store").updated == {b"/a": b"2"}


def test_another_source_voids_positions_at_once() -> None:
    state = live_state("store")
    state.apply(batch("store", 50, a=1))
    state.hello("other", ["store"])
    resume = state.resume()
    assert (resume.source, resume.positions) == ("other", {"store": 0})


def test_what_was_seen_since_the_beginning_is_kept_over_lost_links() -> None:
    state = FeedState()
    state.resume()
    state.hello("s", ["store"])
    state.apply(batch("store", 2, a=1))
    state.resume()
    state.hello("s", ["store"])
    assert state.finish_catch_up("store").dropped == []
    assert b"/a" in state.retained


def test_an_endpoint_that_another_name_holds_is_not_dropped() -> None:
    state = live_state("p0", "p1")
    state.apply(batch("p0", 2, a=1))
    state.apply(batch("p1", 2, a=1, b=2))
    assert state.hello("s", ["p0"]).dropped == [b"/b"], "the lost name alone held /b"
    assert list(state.retained) == [b"/a"]
    assert "p1" not in state.positions


def test_an_endpoint_that_another_name_will_show_stays_as_new_as_it_was() -> None:
    state = live_state("p0", "p1")
    state.apply(batch("p1", 2, a=9, b=9))
    lost = state.hello("s", ["p0"], {b"/a": "p0"}.get)
    assert lost.dropped == [b"/b"], "no other name brings /b"
    assert state.apply(batch("p0", 1, a=2)) == {}, "older than what subscribers have got"
    assert state.apply(batch("p0", 2, a=10)) == {b"/a": b"10"}
    state.hello("other", ["p0"])
    assert state.finish_catch_up("p0").dropped == [b"/a"], "it is an endpoint of p0 now"


def test_what_a_name_brought_before_it_was_lost_is_announced_if_another_name_holds_the_endpoint() -> None:
    state = live_state("p0", "p1")
    state.apply(batch("p0", 2, a=1, b=1))
    state.apply(batch("p1", 2, a=1))
    state.resume()
    state.hello("s", ["p0", "p1"])
    state.apply(batch("p0", 4, a=2, b=2))
    assert state.apply(batch("p1", 3, a=2)) == {}, "it is known already"
    lost = state.hello("s", ["p1"])
    assert lost.updated == {b"/a": b"2"}
    assert lost.dropped == [b"/b"]
    assert state.finish_catch_up("p1").updated == {}
    assert state.counts.consumed == state.counts.stale + len(lost.updated) + 2, "each record is accounted for"


def test_a_name_that_catches_up_does_not_announce_what_another_name_has_superseded() -> None:
    state = live_state("p0", "p1")
    state.resume()
    state.hello("s", ["p0", "p1"])
    state.finish_catch_up("p1")
    assert state.apply(batch("p0", 2, a=2, b=2)) == {}
    assert state.apply(batch("p1", 2, a=3)) == {b"/a": b"3"}
    assert state.finish_catch_up("p0").updated == {b"/b": b"2"}
    assert state.counts.consumed == 3
    assert state.counts.stale == 1, "what is announced to nobody"


def test_a_name_that_was_not_announced_is_an_error() -> None:
    state = live_state("store")
    with pytest.raises(UnknownStream, match="'other'"):
        state.apply(batch("other", 2, a=1))


def test_live_ends_10_s_after_the_last_beat_and_begins_with_the_next() -> None:
    liveness = Liveness()
    assert not liveness.check(0.0)
    liveness.heartbeat(1.0)
    assert liveness.check(1.0)
    assert liveness.live
    assert not liveness.check(10.9)
    assert liveness.check(11.0)
    assert not liveness.live
    liveness.heartbeat(12.0)
    assert liveness.check(12.0)
    assert liveness.silence(13.5) == 1.5


def test_records_before_the_truncation_of_a_batch_are_sent_after_the_next_catch_up() -> None:
    def cut() -> Iterator[Change]:
        yield Change(1, b"/a", 7, 0, b"7")
        raise FeedError("a record is cut short")

    state = live_state("store")
    with pytest.raises(FeedError):
        state.apply(Batch("store", 9, cut()))
    assert state.resume().positions == {"store": 0}, "the position is the one before the batch"
    state.hello("s", ["store"])
    state.apply(batch("store", 2, a=7))
    assert state.finish_catch_up("store").updated == {b"/a": b"7"}


def with_data(name: str, version: int, size: int) -> Change:
    data = b'{"version":%d,"x":"%b"}' % (version, b"x" * size)
    return Change(version, name.encode(), version, 0, encode(name, version, version, data=data))


def test_beyond_the_budget_the_update_retained_for_longest_loses_its_data() -> None:
    state = FeedState(DataBudget(2000))
    assert state.resume().data, "it is asked for"
    state.hello("s", ["store"])
    changes = [with_data(name, V + number, 700) for number, name in enumerate(("/a", "/b", "/c"))]
    state.apply(Batch("store", 4, iter(changes)))
    plain = encode("/a", V, V)
    assert [value for _, value in state.retained.values()] == [plain, changes[1].value, changes[2].value]
    assert state.finish_catch_up("store").updated == {b"/a": plain, b"/b": changes[1].value, b"/c": changes[2].value}
    assert state.budget is not None
    assert state.budget.evicted == 1


def test_a_newer_update_of_the_same_batch_is_not_the_one_that_loses_its_data() -> None:
    state = FeedState(DataBudget(2000))
    state.hello("s", ["store"])
    state.apply(Batch("store", 2, iter([with_data("/a", V, 900)])))
    newer = with_data("/a", V + 2, 900)
    state.apply(Batch("store", 4, iter([with_data("/b", V + 1, 900), newer])))
    assert state.retained[b"/a"][1] == newer.value


def test_a_dropped_endpoint_frees_its_place() -> None:
    state = FeedState(DataBudget(2000))
    state.hello("s", ["store"])
    state.apply(Batch("store", 2, iter([with_data("/a", V, 900)])))
    state.finish_catch_up("store")
    state.hello("other", ["store"])
    assert state.finish_catch_up("store").dropped == [b"/a"]
    assert state.budget is not None
    assert state.budget.bytes == 0


def test_without_a_budget_no_data_is_asked_for() -> None:
    assert not FeedState().resume().data


def test_an_update_before_one_that_could_not_be_read_has_its_version_but_no_data() -> None:
    state = FeedState(DataBudget(2000))
    state.hello("s", ["store"])
    state.apply(Batch("store", 2, iter([with_data("/a", V, 900)])))
    state.mark_suspect([b"/a", b"/unknown"])
    assert state.retained == {b"/a": (V, encode("/a", V, V))}
    assert state.budget is not None
    assert state.budget.bytes == 0


@pytest.mark.parametrize(("version", "suspect"), [(19, {b"/a", b"/b"}), (20, {b"/a", b"/b"}), (21, {b"/b"})])
def test_endpoint_is_suspect_until_a_newer_update_arrives(version: int, suspect: set[bytes]) -> None:
    state = live_state("p0")
    state.apply(batch("p0", 2, a=20))
    state.mark_suspect([b"/a", b"/b"])
    state.apply(batch("p0", 4, a=version))
    assert state.suspect == suspect


def test_suspect_endpoints_survive_the_loss_of_a_link_and_end_with_the_source() -> None:
    state = live_state("p0")
    state.mark_suspect([b"/a"])
    state.resume()
    state.hello("s", ["p0"])
    state.finish_catch_up("p0")
    assert state.suspect == {b"/a"}
    state.hello("other", ["p0"])
    assert not state.suspect, "its log is read from the start"


def test_suspect_endpoints_outlive_the_loss_of_a_stream() -> None:
    state = live_state("p0", "p1")
    state.mark_suspect([b"/a", b"/b"])
    state.hello("s", ["p1"], {b"/a": "p0", b"/b": "p1"}.get)
    assert state.suspect == {b"/a", b"/b"}, "/a may be moving to p1, which has the record that is no update, too"


def forgotten(name: str, next_: int, endpoint: str, version: int, kind: int = FORGOTTEN) -> Batch:
    change = Change(next_ - 1, endpoint.encode(), version, kind, encode(endpoint, version, version, gone=True))
    return Batch(name, next_, iter([change]))


def test_a_forgotten_endpoint_is_dropped_and_its_deletion_delivered_once() -> None:
    state = live_state("p0")
    state.apply(batch("p0", 2, a=V, b=V))
    assert state.apply(forgotten("p0", 3, "/b", V + 1, GONE)).keys() == {b"/b"}
    assert state.apply(forgotten("p0", 4, "/a", V + 1)).keys() == {b"/a"}
    assert state.apply(forgotten("p0", 5, "/b", V + 1)) == {}
    assert state.retained == {}
    assert state.apply(batch("p0", 6, a=V + 2)).keys() == {b"/a"}
    assert state.apply(forgotten("p0", 7, "/a", V + 1)) == {}
    assert state.retained[b"/a"][0] == V + 2


def test_while_a_stream_catches_up_no_forgotten_endpoint_is_dropped() -> None:
    """It may have older records of an endpoint that has moved."""
    state = live_state("p0", "p1")
    state.apply(batch("p0", 2, a=V))
    state.resume()
    state.hello("s", ["p0", "p1"])
    state.apply(forgotten("p0", 3, "/a", V + 1))
    assert state.finish_catch_up("p0").updated.keys() == {b"/a"}
    state.apply(batch("p1", 2, a=V - 1))
    assert state.retained[b"/a"][0] == V + 1
    assert state.finish_catch_up("p1").updated == {}
    assert state.retained == {}


def test_a_stream_that_is_read_from_its_beginning_drops_what_it_has_lost() -> None:
    state = live_state("p0")
    state.apply(batch("p0", 0, a=V, b=V))
    assert state.resume().positions == {"p0": 0}
    state.hello("s", ["p0"])
    state.apply(batch("p0", 5, b=V))
    assert state.finish_catch_up("p0").dropped == [b"/a"]
