from typing import Any

import orjson
import pytest

from metadata.plans.plan import BadPlan, Plan, decode, encode, overfull

PLAN = Plan(epoch=3, partitions=8, homes={"/a": 7, "/hot": -1}, servers=(2, 4), created="2026-01-02T03:04:05Z")


def body(**changes: Any) -> bytes:
    return orjson.dumps({name: value for name, value in (orjson.loads(encode(PLAN)) | changes).items() if value != ...})


def test_decoding_inverts_encoding() -> None:
    assert decode(encode(PLAN)) == PLAN
    assert PLAN.id.startswith("p-20260102-030405-")


def test_a_plan_without_an_id_gets_that_of_its_content() -> None:
    assert decode(body(id=...)).id == PLAN.id


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "diem.plan/9"}, "diem.plan/1"),
        ({"epoch": -1}, '"epoch" is a whole number'),
        ({"partitions": True}, '"partitions" is a whole number'),
        ({"homes": []}, '"homes" is an object'),
        ({"homes": {"a": 1}}, "not an endpoint"),
        ({"homes": {"/a": 8}}, "the home of /a is 8"),
        ({"homes": {"/a": "1"}}, "the home of /a is '1'"),
        ({"homes": {"/a": 6, "/hot": -1}}, "it was changed"),
        ({"report": 3}, '"report" is an object'),
        ({"servers": 3}, '"servers" is a list of whole numbers'),
        ({"servers": "48"}, '"servers" is a list of whole numbers'),
        ({"servers": [[]]}, '"servers" is a list of whole numbers'),
    ],
)
def test_a_malformed_plan_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadPlan, match=reason):
        decode(body(**changes))


def test_a_plan_must_be_json() -> None:
    with pytest.raises(BadPlan, match="a plan is JSON"):
        decode(b"{")


def test_json_too_deep_to_be_encoded_again_is_refused() -> None:
    deep = b"[" * 400 + b"]" * 400
    with pytest.raises(BadPlan, match='"report" cannot be stored'):
        decode(body(report={}).replace(b'"report":{}', b'"report":{"x":' + deep + b"}"))


@pytest.mark.parametrize(
    ("servers", "fullest"),
    [
        ({"4": [12_000.0, 100.0, 100.0, 100.0]}, "server 1 of 4 would have 12,000 clients of 10,000: "),
        ({"2": [9_000.0, 10_001.0], "4": [1.0] * 4}, "server 2 of 2 would have 10,001 clients of 10,000: "),
        ({"2": [10_000.0, 1.0]}, None),
    ],
)
def test_a_server_with_more_clients_than_it_accepts_is_named(
    servers: dict[str, list[float]], fullest: str | None
) -> None:
    used = {count: {"clients": each, "MiB of memory": [60.0] * len(each)} for count, each in servers.items()}
    limits = {"clients": 10_000.0, "MiB of memory": 1024.0}
    why = overfull({"capacity": {"limits": limits, "servers": used, "enough": None}})
    assert (why or "").startswith(fullest or "")
    assert (why is None) == (fullest is None)


def test_the_limit_that_is_exceeded_by_most_is_named_with_the_servers_that_would_do() -> None:
    servers = {"2": {"clients": [10_100.0, 20.0], "MiB of memory": [900.0, 1200.0]}}
    limits = {"clients": 10_000.0, "MiB of memory": 1024.0}
    why = overfull({"capacity": {"limits": limits, "servers": servers, "enough": 3}}) or ""
    assert why.startswith("server 2 of 2 would have 1,200 MiB of memory of 1,024: ")
    assert " or for 3 --servers, or raise --capacity " in why


@pytest.mark.parametrize(
    "capacity",
    [None, 3, {}, {"limits": {"clients": 1}}, {"limits": {"clients": 1}, "servers": {"2": {"clients": ["?"]}}}],
)
def test_a_plan_that_does_not_say_what_servers_use_is_not_refused_for_it(capacity: object) -> None:
    assert overfull({"capacity": capacity}) is None
    assert overfull({}) is None
