"""The length of a reply is at most a small multiple of its request: no amplification."""

from collections.abc import Mapping

import orjson
import pytest

from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.fanout.session import Session
from diem.protocol import messages
from diem.protocol.messages import MAX_NAMES, Refusal, parse
from diem.protocol.partition_map import Head, PartitionMap

PER_NAME = 80
"""Bytes of a reply for each name, besides the name and the URL of its owner (docs/protocol.md section 1)."""
HEAD = 100
OWNER = "wss://server-17.diem.example:8117/ws"


def names(form: str) -> list[str]:
    return [form.format(number) for number in range(MAX_NAMES)]


def hub(*, owned: bool, limit: int) -> FeedHub:
    ownership = Ownership()
    ownership.set_map(PartitionMap(Head(1, 0), {}))
    ownership.set_names(["diem.updates/0"] if owned else [])
    ownership.set_owners({"diem.updates/0": OWNER})
    return FeedHub(limit=limit, ownership=ownership)


def answered(of: FeedHub, wanted: list[str]) -> tuple[bytes, Mapping[str, Refusal]]:
    sent = orjson.dumps({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(wanted, 0)})
    request = parse(sent)
    assert isinstance(request, messages.Subscribe)
    session = Session(lambda _: None, lambda _: None, of.fanout.stats)
    answer = of.subscribe(session, request.endpoints)
    return messages.subscribed(1, answer.endpoints, answer.rejected), answer.rejected


@pytest.mark.parametrize("form", ["{}", "/{}", "/" + "x" * 200 + "/{}", "\u07ff" * 100 + "{}", "/" + "x" * 253 + "{}"])
@pytest.mark.parametrize("limit", [0, 128, 8192])
@pytest.mark.parametrize("owned", [True, False])
def test_reply_to_100_names_is_bounded_whatever_is_wrong_with_them(form: str, limit: int, owned: bool) -> None:
    wanted = names(form)
    reply, rejected = answered(hub(owned=owned, limit=limit), wanted)
    own = sum(len(orjson.dumps(name)) for name in wanted)
    owners = sum(len(each.owner or "") for each in rejected.values())
    assert len(reply) <= HEAD + own + owners + PER_NAME * len(wanted)
    assert len(reply) < 40_000


@pytest.mark.parametrize("name", ["a", "/" + "x" * 256, "/a/..", ""])
def test_bad_name_is_refused_with_one_short_text(name: str) -> None:
    _, rejected = answered(hub(owned=True, limit=128), [name])
    assert rejected == {name: messages.BAD_NAME}


def test_errors_cite_little_of_a_request() -> None:
    request = orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {}, **{f"\u2028{n}": 0 for n in range(3000)}})
    with pytest.raises(messages.MessageError) as raised:
        parse(request)
    assert len(messages.error(raised.value.code, raised.value.message, 1)) < 500
