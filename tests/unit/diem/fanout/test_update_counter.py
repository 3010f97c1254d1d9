"""Counts by endpoint: each update once, with as many frames as there were sessions."""

from diem.fanout.update_counter import UpdateCounter


def test_updates_and_frames_are_counted_apart() -> None:
    tally = UpdateCounter()
    tally.take([b"/a", b"/b"])
    tally.deliver(b"/a", 3)
    tally.take([b"/a"])
    tally.deliver(b"/a", 2)
    assert sorted(tally) == [(b"/a", 2, 5), (b"/b", 1, 0)]


def test_what_is_taken_out_is_counted_no_more() -> None:
    tally = UpdateCounter()
    tally.take([b"/a"])
    tally.deliver(b"/a", 1)
    done = tally.swap()
    tally.take([b"/b"])
    assert (list(done), list(tally)) == ([(b"/a", 1, 1)], [(b"/b", 1, 0)])
    assert (len(done), len(tally)) == (1, 1)
