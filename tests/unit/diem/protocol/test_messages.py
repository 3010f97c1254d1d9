"""The client protocol: every literal frame of docs/protocol.md section 1 is a test vector."""

import orjson
import pytest

from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import Auth, MessageError, Subscribe, Unsubscribe


def test_requests_are_parsed() -> None:
    assert messages.parse(b'{"type":"auth","id":1,"token":"..."}') == Auth(1, "...")
    assert messages.parse(
        b'{"type":"subscribe","id":2,"endpoints":{"/dam/prices/GR":1700000000123,"/load/GR":null}}'
    ) == Subscribe(2, {"/dam/prices/GR": 1700000000123, "/load/GR": 0})
    assert messages.parse(b'{"type":"unsubscribe","id":3,"endpoints":["/load/GR"]}') == Unsubscribe(3, ["/load/GR"])


def test_a_subscribe_may_have_the_id_of_the_client() -> None:
    request = messages.parse(b'{"type":"subscribe","id":2,"endpoints":{"/a":5},"client":"a-Z_0123"}')
    assert request == Subscribe(2, {"/a": 5}, client="a-Z_0123")
    hello = messages.welcome(session="", server="", mode="", authenticated=False, subscriptions=1, traffic=True)
    assert orjson.loads(hello)["traffic"] is True


def test_a_welcome_has_the_window_of_fetches_where_there_is_one() -> None:
    for window_ms, found in ((0, None), (250, 250)):
        hello = messages.welcome(
            session="", server="", mode="", authenticated=False, subscriptions=1, fetch_window_ms=window_ms
        )
        assert orjson.loads(hello).get("fetch_window_ms") == found


@pytest.mark.parametrize("client", ["short", "x" * 65, "abc defgh", "abcdefgh\n", 12345678, ["abcdefgh"]])
def test_an_id_of_another_form_is_refused(client: object) -> None:
    with pytest.raises(MessageError) as caught:
        messages.parse(orjson.dumps({"type": "subscribe", "id": 2, "endpoints": {"/a": 5}, "client": client}))
    assert (caught.value.code, caught.value.request_id) == (ErrorCode.BAD_MESSAGE, 2)


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
