import pytest

from diem.protocol import feed, update


def test_feed_control_messages_survive_the_wire() -> None:
    sent: list[feed.Control] = [
        feed.Resume(None, {}),
        feed.Resume("s", {"store": 12}),
        feed.Resume("s", {}, data=True, traces=True),
        feed.Hello("s", ("store",)),
        feed.CaughtUp("store"),
        feed.Resync(("/a", "/b")),
        feed.Owners({"updates/0": "ws://a/ws"}),
        feed.Owners({}, left=True),
        feed.Leave(),
        feed.Traced("/a", 12, "00-" + 32 * "a" + "-" + 16 * "b" + "-01"),
        feed.Heartbeat(),
    ]
    assert [feed.decode(feed.encode(message)) for message in sent] == sent


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b"{}",
        b'{"type":1}',
        b'{"type":"resume","source":1,"positions":{}}',
        b'{"type":"hello","source":"s","names":[1]}',
        b'{"type":"resume","source":"s","positions":{"store":-1}}',
        b'{"type":"traced","endpoint":"/a","version":"1","traceparent":""}',
    ],
)
def test_a_bad_feed_message_is_one_error(data: bytes) -> None:
    with pytest.raises(feed.FeedError):
        feed.decode(data)


def test_a_batch_survives_the_wire_and_a_cut_one_is_one_error() -> None:
    changes = [update.Change(n + 1, b"/e%d" % n, 1700000000000 + n, n % 2, b"value" * n) for n in range(3)]
    data = feed.encode_batch("store", 4, changes)
    batch = feed.decode_batch(data)
    assert (batch.name, batch.next, list(batch.records)) == ("store", 4, changes)
    for length in range(len(data)):
        try:
            records = list(feed.decode_batch(data[:length]).records)
        except feed.FeedError:
            continue
        assert records == changes[: len(records)], "a prefix that is a batch must hold whole records only"


def change_of(size: int) -> update.Change:
    return update.Change(1, b"/a", 1, update.UPDATE, b"x" * size)


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([], []),
        ([1, 1, 1, 1, 1], [3, 2]),
        ([60, 60, 60], [1, 1, 1]),
        ([500, 1, 500], [1, 1, 1]),
        ([40, 60, 1, 1, 1, 1], [2, 3, 1]),
    ],
)
def test_changes_are_divided_by_number_and_by_bytes(sizes: list[int], runs: list[int]) -> None:
    changes = [change_of(size) for size in sizes]
    divided = list(feed.batches_of(changes, 3, 100))
    assert [len(run) for run in divided] == runs
    assert [change for run in divided for change in run] == changes


def test_a_reader_that_asks_for_data_says_so_and_an_old_one_does_not() -> None:
    asking = feed.Resume("s", {"store": 1}, data=True)
    assert feed.decode(feed.encode(asking)) == asking
    assert b"data" not in feed.encode(feed.Resume("s", {"store": 1}))
    assert feed.decode(b'{"type":"resume","source":null,"positions":{}}') == feed.Resume(None, {}, data=False)


@pytest.mark.parametrize(
    "message",
    [
        feed.Resume("s", {"store": 1}),
        feed.Hello("s", ("store",)),
        feed.CaughtUp("store"),
        feed.Resync(("/a",)),
        feed.Owners({"x": "ws://h"}),
        feed.Heartbeat(),
    ],
)
def test_fields_that_a_later_release_adds_are_ignored(message: feed.Control) -> None:
    assert feed.decode(feed.encode(message)[:-1] + b',"later":{"than":["this"]}}') == message


def test_a_message_of_a_later_release_is_no_error() -> None:
    assert feed.decode(b'{"type":"later","than":"this"}') == feed.UnknownMessage()
