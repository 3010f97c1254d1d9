"""The AsyncAPI document is valid, and describes what the protocol sends."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import orjson
import pytest

from diem.protocol import endpoints, messages, update
from diem.protocol.codes import Close, ErrorCode
from diem.protocol.messages import MAX_NAMES, MAX_VERSION, Refusal
from diem.protocol.update import GREATEST_VERSION
from services.data.api.page import asyncapi
from services.data.kinds import Body, Representation, kind_of
from services.data.store import StoredVersion
from tests.support.required import unavailable

ROOT: Final = Path(__file__).parents[5]
SPECIFICATION: Final = ROOT / "client" / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"
"""The official schema, of the npm package."""
SERVERS: Final[list[dict[str, Any]]] = [{"port": 8101, "path": "/ws"}, {"url": "wss://edge.example:8443/a/ws"}]
DOCUMENT: Final = asyncapi(SERVERS)
NAME: Final = "/game/42"
VERSION: Final = 1_700_000_000_456
CASES: Final = ("server_messages", "subscription_set")
"""Shared cases with messages."""


def schema_of(message: str) -> dict[str, Any]:
    """Return the schema of a message, as JSON Schema with the other schemas beside it."""
    payload = DOCUMENT["components"]["messages"][message]["payload"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "components": {"schemas": DOCUMENT["components"]["schemas"]},
        "allOf": [payload],
    }


VALIDATORS: Final = {name: jsonschema_rs.validator_for(schema_of(name)) for name in DOCUMENT["components"]["messages"]}


def fits(message: dict[str, Any]) -> bool:
    return VALIDATORS[message["type"]].is_valid(message)


def check(message: dict[str, Any]) -> None:
    VALIDATORS[message["type"]].validate(message)


def test_document_is_valid_by_the_official_schema() -> None:
    try:
        schema = json.loads(SPECIFICATION.read_bytes())
    except OSError as error:
        unavailable("the schema of AsyncAPI (make client/node_modules/.package-lock.json)", error)
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(DOCUMENT)
    assert not validator.is_valid({**DOCUMENT, "asyncapi": "2.0.0"})
    assert not validator.is_valid({**DOCUMENT, "channels": {"updates": {"messages": []}}})


def test_every_reference_resolves() -> None:
    for reference in re.findall(r"'\$ref': '#/([^']+)'", str(DOCUMENT)):
        found: Any = DOCUMENT
        for part in reference.split("/"):
            found = found[part]


def test_servers_are_those_of_the_configuration() -> None:
    first, second = DOCUMENT["servers"].values()
    assert (first["host"], first["pathname"], first["protocol"]) == ("{host}:8101", "/ws", "ws")
    assert (second["host"], second["pathname"], second["protocol"]) == ("edge.example:8443", "/a/ws", "wss")


def examples() -> Iterator[dict[str, Any]]:
    """Yield the messages that docs/protocol.md section 1.1 shows."""
    text = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    section = text.partition("### 1.1")[2].partition("### 1.2")[0]
    for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL):
        yield from map(json.loads, block.splitlines())


def test_examples_of_the_documentation_fit() -> None:
    shown = [*examples()]
    assert {message["type"] for message in shown} == VALIDATORS.keys()
    for message in shown:
        check(message)


def test_examples_of_the_document_fit() -> None:
    for name, message in DOCUMENT["components"]["messages"].items():
        for example in message["examples"]:
            assert example["payload"]["type"] == name
            check(example["payload"])


def test_messages_of_the_shared_cases_fit() -> None:
    cases = {name: json.loads((ROOT / f"tests/cases/{name}.json").read_bytes()) for name in CASES}
    sent = [json.loads(each["text"]) for each in cases["server_messages"]["frames"]]
    for case in cases["subscription_set"]["cases"]:
        sent += [step["message"] for step in case["steps"] if step.get("message")]
    for message in sent:
        check(message)
    for text in cases["server_messages"]["ignored"]:
        assert json.loads(text)["type"] not in VALIDATORS


def made(media_type: str, content: bytes, **query: str) -> Representation:
    return kind_of(media_type).parse(NAME, Body(content, media_type, query))


@pytest.mark.parametrize(
    "content",
    [
        made("text/csv", b"time,value\n2026-01-01T00:00:00Z,\n", unit="MW", resolution="PT1H"),
        made("application/json", b"null"),
        made("application/geo+json", b'{"type":"Point"}'),
        made("text/plain;charset=utf-8", b"text"),
        made("image/png", b"\x89PNG"),
        made("application/vnd.diem.notice+json", b""),
        made("application/vnd.diem.notice+json", b"", url="https://shop.example/42"),
        Representation(NAME, "application/vnd.diem.collection+json", b'{"members":["/game/42/a"]}', b""),
    ],
    ids=lambda content: content.media_type,
)
def test_update_with_data_of_every_kind_fits(content: Representation) -> None:
    stored = StoredVersion(VERSION, VERSION, update.UPDATE, content.media_type, content.content)
    data = kind_of(content.media_type).inline(NAME, stored)
    check(orjson.loads(update.encode(NAME, VERSION, VERSION, data=data)))
    check(orjson.loads(update.encode(NAME, VERSION, VERSION)))
    check(orjson.loads(update.encode(NAME, VERSION, VERSION, gone=True)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "a"},
        {"version": 0},
        {"data": {}},
        {"media_type": "application/json"},
        {"data": 1, "media_type": "text/plain"},
        {"data": "x", "encoding": "base64"},
        {"data": {"members": []}, "media_type": "application/vnd.diem.collection+json"},
        {"data": 1, "media_type": "application/json", "gone": True},
    ],
)
def test_update_of_another_form_does_not_fit(wrong: dict[str, Any]) -> None:
    whole = {"type": "update", "endpoint": NAME, "version": VERSION, "time": "2026-01-01T00:00:00.456Z"}
    assert fits(whole)
    assert not fits({**whole, **wrong})


def test_messages_of_servers_fit() -> None:
    refusal = {"/a": messages.FORBIDDEN, "/b": Refusal(ErrorCode.NOT_OWNER, "", "wss://b.example/ws")}
    welcome = partial(messages.welcome, session="s", server="n", mode="x", subscriptions=1)
    for sent in (
        welcome(authenticated=True),
        welcome(authenticated=False, traffic=True, data=True, fetch_window_ms=1, heartbeat_ms=1),
        messages.authenticated(1, 2),
        messages.subscribed(MAX_VERSION, {"/a": None, "/a/": GREATEST_VERSION}, refusal),
        messages.unsubscribed(0, ["/a"]),
        messages.status(live=True, since="2026-01-01T00:00:00.000Z"),
        messages.status(live=False, since="2026-01-01T00:00:00.000Z", endpoints=[]),
        messages.moved(["/a"], None),
        messages.resync(["/a"]),
        *(messages.error(code, "why") for code in ErrorCode),
    ):
        check(orjson.loads(sent))


@pytest.mark.parametrize(
    ("message", "is_valid"),
    [
        ({"type": "auth", "id": 1, "token": "a.b.c"}, True),
        ({"type": "auth", "id": 1}, False),
        ({"type": "subscribe", "id": 0, "endpoints": {"/a": None, "bad name": 5}, "data": True}, True),
        ({"type": "subscribe", "id": -1, "endpoints": {}}, False),
        ({"type": "subscribe", "id": 1, "endpoints": {"/a": -1}}, False),
        ({"type": "subscribe", "id": 1, "endpoints": {}, "client": "short"}, False),
        ({"type": "subscribe", "id": 1, "endpoints": {}, "more": 1}, False),
        ({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(map(str, range(MAX_NAMES + 1)))}, False),
        ({"type": "unsubscribe", "id": 1, "endpoints": ["/a"]}, True),
        ({"type": "unsubscribe", "id": 1, "endpoints": [1]}, False),
    ],
)
def test_requests_fit_if_servers_accept_them(message: dict[str, Any], *, is_valid: bool) -> None:
    assert fits(message) == is_valid
    try:
        messages.parse(orjson.dumps(message))
    except messages.MessageError:
        assert not is_valid
    else:
        assert is_valid


def test_document_states_the_limits_and_codes_of_the_code() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Name"]["pattern"] == f"^{endpoints.PATTERN.replace('(?:', '(')}$"
    assert schemas["Name"]["maxLength"] == endpoints.MAX_NAME_BYTES
    assert schemas["Version"]["maximum"] == GREATEST_VERSION
    assert schemas["RequestId"]["maximum"] == MAX_VERSION
    assert schemas["Subscribe"]["properties"]["endpoints"]["maxProperties"] == MAX_NAMES
    assert schemas["ErrorCode"]["enum"] == [*ErrorCode]
    assert [int(code) for code in DOCUMENT["channels"]["updates"]["x-close-codes"]] == [*Close]
