import pytest

from diem.protocol import feed, update


def test_feed_control_messages_survive_the_wire() -> None:
    sent: list[feed.Control] = [
        feed.Resume(None, {}),
        feed.Resume("s", {"store": 12}),
        feed.Hello("s", ("store",)),
        feed.CaughtUp("store"),
        feed.Resync(("/a", "/b")),
        feed.Heartbeat(),
    ]
    assert [feed.decode(feed.encode(message)) for message in sent] == sent


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b"{}",
        b'{"type":"x"}',
        b'{"type":"resume","source":1,"positions":{}}',
        b'{"type":"hello","source":"s","names":[1]}',
        b'{"type":"resume","source":"s","positions":{"store":-1}}',
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
