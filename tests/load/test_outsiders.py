"""Outsiders detect what they must not be sent, and find nothing wrong in a refusal."""

import orjson
import pytest

from tests.load import mix
from tests.load.outsiders import PERMITTED, Outsider, Outsiders, Rights

NAMES = mix.names_of(100)
RIGHTS = Rights.of([*NAMES, *mix.collections_of(NAMES)])
OTHER = RIGHTS.others[0]
(OWN,) = [name for name in RIGHTS.permitted if name.endswith("/")]
FORBIDDEN = {"code": "forbidden", "message": "not covered by the token"}


def limited() -> Outsider:
    return Outsider("limited", RIGHTS)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "update", "endpoint": OTHER, "version": 1},
        {"type": "subscribed", "id": 1, "endpoints": {OTHER: None}},
        {"type": "subscribed", "id": 1, "endpoints": {OTHER: None}, "rejected": {OTHER: FORBIDDEN}},
        {"type": "subscribed", "id": 1, "endpoints": {}, "rejected": {OTHER: {"code": "not_owner", "owner": "ws://a"}}},
        {"type": "resync", "endpoints": [OTHER]},
        {"type": "moved", "endpoints": [RIGHTS.permitted[0], OTHER]},
        {"type": "status", "live": False, "endpoints": [OTHER]},
        {"clone": 1, "endpoints": {OTHER: {"owner": "ws://127.0.0.1:1/ws"}}},
        {"type": "update", "endpoint": OWN, "version": 1, "data": {"members": [f"{OWN}1", OTHER]}},
        {"type": "update", "endpoint": mix.ROOT, "version": 1},
    ],
    ids=lambda message: "-".join(sorted(message)),
)
def test_message_that_names_an_endpoint_without_the_right_is_a_leak(message: dict[str, object]) -> None:
    outsider = limited()
    outsider.check(orjson.dumps(message).decode())
    assert (outsider.leaked, outsider.refused) == (1, 0)
    leak, *_ = Outsiders([outsider]).goals()
    assert not leak.reached
    assert OTHER in leak.name or f'"{mix.ROOT}"' in leak.name


def test_refusal_is_no_leak_and_permitted_updates_are_counted() -> None:
    outsider = limited()
    for message in (
        {"type": "subscribed", "id": 1, "endpoints": {RIGHTS.permitted[0]: 1}, "rejected": {OTHER: FORBIDDEN}},
        {"type": "error", "id": 1, "code": "unauthorised", "message": "a token is needed"},
        {"type": "update", "endpoint": RIGHTS.permitted[0], "version": 1},
        {"type": "update", "endpoint": OWN, "version": 1, "data": {"members": [f"{OWN}1"], "text": f'"{OTHER}"'}},
    ):
        outsider.check(orjson.dumps(message).decode())
    assert (outsider.leaked, outsider.refused, outsider.updates) == (0, 2, 2)
    assert all(goal.reached for goal in Outsiders([outsider]).goals())


def test_outsiders_that_were_never_refused_prove_nothing() -> None:
    assert not all(goal.reached for goal in Outsiders([limited()]).goals())


def test_stranger_with_an_update_of_any_endpoint_is_found() -> None:
    stranger = Outsider("stranger at nginx", None)
    stranger.check('{"type":"update","endpoint":"/elsewhere","version":1}')
    assert [goal.measured for goal in Outsiders([stranger]).goals()][1] == 1


def test_permitted_and_other_endpoints_are_different_ones() -> None:
    assert all(map(RIGHTS.covers, RIGHTS.permitted))
    assert not any(map(RIGHTS.covers, RIGHTS.others))
    assert len([name for name in RIGHTS.others if name.endswith("/")]) > 2
    assert 2 * PERMITTED > len(RIGHTS.permitted) > PERMITTED
    assert len(RIGHTS.permitted) + len(RIGHTS.others) <= 100
