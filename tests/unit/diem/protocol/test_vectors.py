"""Every literal frame of docs/protocol.md is a test vector."""

import orjson
import pytest

from diem.protocol import codes, endpoints, feed, messages, update
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import Auth, MessageError, Subscribe, Unsubscribe


def test_requests_are_parsed() -> None:
    assert messages.parse(b'{"type":"auth","id":1,"token":"..."}') == Auth(1, "...")
    assert messages.parse(
        b'{"type":"subscribe","id":2,"endpoints":{"/dam/prices/GR":1700000000123,"/load/GR":null}}'
    ) == Subscribe(2, {"/dam/prices/GR": 1700000000123, "/load/GR": 0})
    assert messages.parse(b'{"type":"unsubscribe","id":3,"endpoints":["/load/GR"]}') == Unsubscribe(3, ["/load/GR"])


def test_replies_are_the_documented_bytes() -> None:
    assert (
        messages.welcome(session="...", server="...", mode="x", authenticated=True, subscriptions=128)
        == b'{"type":"welcome","session":"...","server":"...","mode":"x","authenticated":true,'
        b'"limits":{"subscriptions":128,"message_bytes":32768}}'
    )
    assert (
        messages.subscribed(
            2, {"/dam/prices/GR": 1700000000123}, {"/load/GR": messages.Refusal(ErrorCode.FORBIDDEN, "...")}
        )
        == b'{"type":"subscribed","id":2,"endpoints":{"/dam/prices/GR":1700000000123},'
        b'"rejected":{"/load/GR":{"code":"forbidden","message":"..."}}}'
    )
    assert messages.unsubscribed(3, ["/load/GR"]) == b'{"type":"unsubscribed","id":3,"endpoints":["/load/GR"]}'
    assert (
        messages.status(live=True, since="...", endpoints=["..."])
        == b'{"type":"status","live":true,"since":"...","endpoints":["..."]}'
    )
    assert messages.resync(["..."]) == b'{"type":"resync","endpoints":["..."]}'
    assert messages.error(ErrorCode.BAD_NAME, "...", 2) == b'{"type":"error","id":2,"code":"bad_name","message":"..."}'


def test_an_update_is_the_documented_bytes() -> None:
    value = update.encode("/dam/prices/GR", 1700000000456, 1767225600456)
    assert (
        value
        == b'{"type":"update","endpoint":"/dam/prices/GR","version":1700000000456,"time":"2026-01-01T00:00:00.456Z"}'
    )
    gone = update.encode("/dam/prices/GR", 1700000000457, 1767225600456, gone=True)
    assert orjson.loads(gone)["gone"] is True
    assert update.version_of(b"/dam/prices/GR", value) == 1700000000456
    assert update.version_of(b"/dam/prices/GR", gone) == 1700000000457


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b'{"type":"update","endpoint":"/other","version":1700000000456}',
        b'{"type":"update","endpoint":"/e","version":17000}',
        b'{"type":"update","endpoint":"/e","version":-700000000456}',
        b'{"type":"update","endpoint":"/e","version":1700000000456' + b" " * 500,
    ],
)
def test_a_value_that_is_no_update_of_its_endpoint_has_no_version(value: bytes) -> None:
    assert update.version_of(b"/e", value) is None


@pytest.mark.parametrize(
    ("data", "code", "request_id"),
    [
        (b"{", ErrorCode.BAD_JSON, None),
        (b"\xff", ErrorCode.BAD_JSON, None),
        (b"[]", ErrorCode.BAD_MESSAGE, None),
        (b"{}", ErrorCode.BAD_MESSAGE, None),
        (b'{"type":"dance","id":1}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":["x"],"id":1}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"subscribe","id":-1,"endpoints":{}}', ErrorCode.BAD_MESSAGE, None),
        (b'{"type":"subscribe","id":true,"endpoints":{}}', ErrorCode.BAD_MESSAGE, None),
        (b'{"type":"subscribe","id":1}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"subscribe","id":1,"endpoints":["/a"]}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"subscribe","id":1,"endpoints":{"/a":"1"}}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"subscribe","id":1,"endpoints":{"/a":-1}}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"subscribe","id":1,"endpoints":{},"more":1}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"unsubscribe","id":1,"endpoints":{"/a":1}}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"unsubscribe","id":1,"endpoints":[1]}', ErrorCode.BAD_MESSAGE, 1),
        (b'{"type":"auth","id":1,"token":1}', ErrorCode.BAD_MESSAGE, 1),
        (
            orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {f"/{n}": None for n in range(101)}}),
            ErrorCode.TOO_MANY,
            1,
        ),
        (
            orjson.dumps({"type": "unsubscribe", "id": 1, "endpoints": [f"/{n}" for n in range(101)]}),
            ErrorCode.TOO_MANY,
            1,
        ),
    ],
)
def test_a_bad_request_has_its_stated_code(data: bytes, code: ErrorCode, request_id: int | None) -> None:
    with pytest.raises(MessageError) as caught:
        messages.parse(data)
    assert (caught.value.code, caught.value.request_id) == (code, request_id)


@pytest.mark.parametrize("name", ["/a", "/dam/prices/GR", "/A-z0.9_~!$'()*+,;=:@", "/" + "a" * 255, "/..a/b.."])
def test_names_within_the_rule_are_accepted(name: str) -> None:
    assert endpoints.check(name) == name


@pytest.mark.parametrize(
    "name", ["", "a", "/", "/a/", "//a", "/a b", '/a"', "/ä", "/a\n", "/a/../b", "/.", "/" + "a" * 256]
)
def test_names_outside_the_rule_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(endpoints.BadName, match="is not an endpoint name"):
        endpoints.check(name)


def test_versions_grow_even_when_the_clock_steps_back() -> None:
    assert update.next_version(0, 1700000000000) == 1700000000000
    assert update.next_version(1700000000000, 1600000000000) == 1700000000001


def test_clients_reconnect_below_4500_unless_they_were_at_fault() -> None:
    assert {code for code in codes.Close if codes.reconnects(code)} == {
        1001,
        1011,
        1012,
        1013,
        1014,
        4000,
        4001,
        4002,
        4003,
    }


def test_feed_control_messages_survive_the_wire() -> None:
    said: list[feed.Control] = [
        feed.Resume(None, {}),
        feed.Resume("s", {"store": 12}),
        feed.Hello("s", ("store",)),
        feed.CaughtUp("store"),
        feed.Resync(("/a", "/b")),
        feed.Heartbeat(),
    ]
    assert [feed.decode(feed.encode(message)) for message in said] == said


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
