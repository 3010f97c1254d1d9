from typing import Any

import orjson
import pytest

from metadata.plans.plan import BadPlan, Plan, decode, encode

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
