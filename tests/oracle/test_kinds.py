"""What the oracle expects of documents, of what expires, of collections and of rights."""

from dataclasses import replace
from typing import Any

import pytest

from tests.oracle import Accepted, Event, Fault, History, Kind, Uncertain, judge
from tests.oracle.history import WIPE
from tests.oracle.values import LONG, NotPatchable, applied, condensed, fingerprint, patched

V = 1_700_000_000_000
"""Versions are milliseconds: that of second 2 is ``V + 2000``."""
FIRST = {"put": {"last": 1, "log": [1, 1]}}
MERGE = {"merge": {"parts": {"a": 2}}}
JSON = {"json": [{"op": "add", "path": "/log/-", "value": 3}, {"op": "remove", "path": "/log/0"}]}


def accepted(time: float, endpoint: str = "/g/1", **more: Any) -> Accepted:
    return Accepted(endpoint, V + round(time * 1000), time + 0.01, begun=time - 0.01, key=str(time), **more)


def held(time: float, stamp: int, endpoint: str = "/g/1", *, at: float | None = None) -> Event:
    """Return what a client holds of the version made at ``at``, by default shortly before."""
    return Event(time, Kind.HELD, endpoint, V + round((time - 0.1 if at is None else at) * 1000), stamp)


def subscribed(*endpoints: str) -> list[Event]:
    return [
        Event(1, Kind.OPEN),
        *(Event(1, kind, name) for name in endpoints for kind in (Kind.SUBSCRIBE, Kind.SUBSCRIBED)),
    ]


def broken(changes: list[Accepted], events: list[Event], **more: Any) -> set[str]:
    history = replace(History(changes, {"1": events}, 60.0), **more)
    return {type(violation).__name__ for violation in judge(history).violations}


def stamps(*changes: dict[str, Any]) -> list[int]:
    """Return the stamps of a document after each of its changes."""
    value, found = None, []
    for change in changes:
        value = applied(value, change)
        found.append(fingerprint(value))
    return found


def test_patches_apply_in_the_order_of_their_versions_whatever_order_the_answers_have() -> None:
    changes = [accepted(4, change=JSON), accepted(2, change=FIRST), accepted(3, change=MERGE)]
    first, second, third = stamps(FIRST, MERGE, JSON)
    events = [*subscribed("/g/1"), held(2.1, first), held(3.1, second), held(4.1, third)]
    assert broken(changes, events) == set()
    (_, other) = stamps(FIRST, JSON)
    assert broken(changes, [*events[:-1], held(4.1, other)]) == {"WrongData"}


def test_document_begins_anew_after_its_deletion() -> None:
    changes = [accepted(2, change=FIRST), accepted(3, gone=True), accepted(4, change=FIRST), accepted(5, change=MERGE)]
    first, merged = stamps(FIRST, MERGE)
    events = [held(2.1, first), held(3.1, 0), held(4.1, first), held(5.1, merged)]
    assert broken(changes, [*subscribed("/g/1"), *events]) == set()
    assert broken(changes, [*subscribed("/g/1"), *events[:1], held(3.1, first), *events[2:]]) == {"WrongData"}


def test_patch_without_an_answer_may_be_in_what_follows_but_no_other_one() -> None:
    changes = [accepted(2, change=FIRST), accepted(4, change=MERGE)]
    lost = Uncertain("/g/1", 2.9, 3.2, change=JSON)
    first, between, after = stamps(FIRST, JSON, MERGE)
    events = [*subscribed("/g/1"), held(2.1, first), held(3.1, between), held(4.1, after)]
    assert broken(changes, events, uncertain=[lost]) == set()
    assert broken(changes, events) == {"WrongData"}
    (_, without) = stamps(FIRST, MERGE)
    assert broken(changes, [*events[:2], held(4.1, without)], uncertain=[lost]) == set()
    assert "WrongData" in broken(changes, events, uncertain=[lost._replace(change={"merge": {"last": 9}})])


def test_conditional_write_comes_after_the_version_that_it_names() -> None:
    first, second = accepted(2, change=FIRST), accepted(3, change=MERGE)
    assert broken([first, second._replace(after=first.version)], []) == set()
    third = accepted(4, change=JSON, after=first.version)
    assert broken([first, second, third], []) == {"WrongBase"}


# What expires


def gone(time: float, endpoint: str = "/g/1") -> Event:
    return Event(time, Kind.UPDATE, endpoint, V + round((time - 0.1) * 1000))


EXPIRING = [*subscribed("/g/1"), Event(2.1, Kind.UPDATE, "/g/1", V + 2000)]


def test_expired_endpoint_is_gone_in_time_for_every_client() -> None:
    changes = [accepted(2, ttl=3.0, stamp=1)]
    assert broken(changes, [*EXPIRING, gone(5.2)]) == set()
    assert broken(changes, EXPIRING) == {"Behind", "NotConverged"}
    assert broken(changes, [*EXPIRING, gone(11)]) == {"Behind"}
    assert broken(changes, [*EXPIRING, gone(11)], faults=[Fault("kill-data", "data", 4, 9)]) == set()


def test_nothing_is_gone_before_it_expires_or_after_it_was_written_again() -> None:
    changes = [accepted(2, ttl=3.0, stamp=1)]
    assert "NotAccepted" in broken(changes, [*EXPIRING, gone(4.5), gone(5.2)])
    again = [*changes, accepted(4, stamp=2)]
    events = [*EXPIRING, Event(4.1, Kind.UPDATE, "/g/1", V + 4000)]
    assert broken(again, events) == set()
    assert broken(again, [*events, gone(5.2)]) == {"NotAccepted"}


def test_same_content_again_renews_the_time_and_a_patch_keeps_it() -> None:
    written = accepted(2, ttl=3.0, change=FIRST)
    renewed = written._replace(time=4.01, begun=3.99, key="again")
    assert broken([written, renewed], [*EXPIRING, gone(7.2)]) == set()
    assert "NotAccepted" in broken([written, renewed], [*EXPIRING, gone(5.2)])
    patched_ = [written, accepted(4, change=MERGE)]
    events = [*EXPIRING, Event(4.1, Kind.UPDATE, "/g/1", V + 4000)]
    assert broken(patched_, [*events, gone(5.2)]) == set()
    assert broken(patched_, events) == {"Behind", "NotConverged"}


def test_expired_endpoint_is_held_as_gone_and_as_nothing_else() -> None:
    changes = [accepted(2, ttl=3.0, stamp=1)]
    events = [*EXPIRING, held(2.2, 1, at=2), gone(5.2)]
    assert broken(changes, [*events, held(5.3, 0, at=5.1)]) == set()
    assert broken(changes, [*events, held(5.3, 1, at=5.1)]) == {"WrongData"}


def test_endpoint_that_is_still_in_the_store_after_its_time_has_not_expired() -> None:
    changes = [accepted(2, ttl=3.0, stamp=1)]
    assert broken(changes, [], final={"/g/1": V + 2000}) == {"StoreLost"}
    assert broken(changes, [], final={"/g/1": V + 5100}) == set()


# Collections


LISTS = {1: ["/g/1"], 2: ["/g/1", "/g/2"], 3: ["/g/2"], 4: ["/g/1", "/g/3"], 5: ["/g/"], 6: ["/g/", "/h/"]}
MADE = [accepted(2, "/g/1"), accepted(3, "/g/2"), accepted(4, "/g/1", stamp=7), accepted(5, "/g/1", gone=True)]
SEEN = [held(2.1, 1, "/g/"), held(3.1, 2, "/g/"), held(5.1, 3, "/g/")]


def seen(*events: Event) -> list[Event]:
    return [each for event in events for each in (event._replace(kind=Kind.UPDATE), event)]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("stamp", [0, 1, 2, 3, 4])
def test_collection_has_the_members_of_its_time(number: int, stamp: int) -> None:
    right = SEEN[number].code
    events = [*SEEN[:number], SEEN[number]._replace(code=stamp), *SEEN[number + 1 :]]
    found = broken(MADE, [*subscribed("/g/"), *seen(*events)], lists=LISTS)
    assert found == (set() if stamp == right else {"WrongMembers"})


def test_collection_has_a_version_when_a_member_comes_or_goes_and_at_no_other_time() -> None:
    events = [*subscribed("/g/"), *seen(*SEEN)]
    assert broken(MADE, events, lists=LISTS) == set()
    assert broken(MADE, events[:-2], lists=LISTS) == {"Behind", "NotConverged"}
    spurious = Event(4.1, Kind.UPDATE, "/g/", V + 4000)
    assert broken(MADE, [*events[:-2], spurious, *events[-2:]], lists=LISTS) == {"NotAccepted"}
    assert broken(MADE, [], final={"/g/": V + 3000, "/g/1": V + 5000, "/g/2": V + 3000}) == {"StoreLost"}


def test_collection_has_the_time_of_a_deletion_as_its_version_though_that_of_the_member_is_ahead() -> None:
    made = [accepted(2, "/g/1"), accepted(3, "/g/2")]
    many = [
        accepted(4, "/g/2", stamp=number, gone=number == 4)._replace(version=V + 4000 + number, key=f"many-{number}")
        for number in range(5)
    ]
    events = [*subscribed("/g/"), *seen(*SEEN[:2], held(4.1, 1, "/g/", at=4))]
    assert broken([*made, *many], events, lists=LISTS) == set()
    assert broken([*made, *many], [*events[:-1], events[-1]._replace(code=2)], lists=LISTS) == {"WrongMembers"}
    assert broken([*made, many[-1]], events, lists=LISTS) >= {"NotAccepted"}


def test_collection_whose_last_member_has_gone_is_gone() -> None:
    changes = [*MADE, accepted(6, "/g/2", gone=True)]
    events = [*subscribed("/g/"), *seen(*SEEN, held(6.1, 0, "/g/"))]
    assert broken(changes, events, lists=LISTS) == set()
    assert broken(changes, [*events[:-1], held(6.1, 3, "/g/")], lists=LISTS) == {"WrongMembers"}


def test_members_of_one_moment_may_be_in_the_list_or_not_until_the_end() -> None:
    together = [accepted(2, "/g/1"), accepted(3, "/g/2"), accepted(3, "/g/3")]
    lists = {**LISTS, 7: ["/g/1", "/g/2", "/g/3"]}
    events = [*subscribed("/g/"), *seen(held(2.1, 1, "/g/"), held(3.1, 2, "/g/", at=3))]
    last = seen(held(3.2, 7, "/g/", at=3.001))
    assert broken(together, [*events, *last], lists=lists) == set()
    final = {"/g/": V + 3001, "/g/1": V + 2000, "/g/2": V + 3000, "/g/3": V + 3000}
    assert broken(together, [*events, *last], lists=lists, final=final) == set()
    missed = [last[0], last[1]._replace(code=2)]
    assert broken(together, [*events, *missed], lists=lists, final=final) == {"WrongMembers"}


def test_collections_are_members_of_the_one_above() -> None:
    changes = [accepted(2, "/x/g/1"), accepted(3, "/x/h/1"), accepted(4, "/x/g/2"), accepted(5, "/x/h/1", gone=True)]
    lists = {5: ["/x/g/"], 6: ["/x/g/", "/x/h/"]}
    events = seen(held(2.1, 5, "/x/"), held(3.1, 6, "/x/"), held(5.1, 5, "/x/"))
    assert broken(changes, [*subscribed("/x/"), *events], lists=lists) == set()
    assert broken(changes, [*subscribed("/x/"), *events[:3], events[3]._replace(code=5)], lists=lists) >= {
        "WrongMembers"
    }


def test_member_that_expires_leaves_the_collection() -> None:
    changes = [accepted(2, "/g/1"), accepted(3, "/g/2", ttl=2.0)]
    events = [*subscribed("/g/"), *seen(held(2.1, 1, "/g/"), held(3.1, 2, "/g/"))]
    assert broken(changes, [*events, *seen(held(5.2, 1, "/g/"))], lists=LISTS) == set()
    assert broken(changes, events, lists=LISTS) == {"Behind", "NotConverged"}
    assert broken(changes, [*events, *seen(held(5.2, 2, "/g/"))], lists=LISTS, final={"/g/": V + 5100}) >= {
        "WrongMembers"
    }


def test_member_outlives_its_time_only_until_the_store_has_answered_what_came_later() -> None:
    changes = [accepted(2, "/g/1"), accepted(3, "/g/2", ttl=2.0), accepted(6, "/g/2", stamp=3)]
    events = [*subscribed("/g/"), *seen(held(2.1, 1, "/g/"), held(3.1, 2, "/g/"))]
    # Written again before a store with much to do came to its deletion: never gone.
    assert broken(changes, events, lists=LISTS) == set()
    proof = [accepted(5.3, "/h"), accepted(5.5, "/h", stamp=1)]
    assert broken([*changes, *proof], events, lists=LISTS) == {"Behind", "NotConverged"}
    both = [*events, *seen(held(5.3, 1, "/g/"), held(6.1, 2, "/g/"))]
    assert broken([*changes, *proof], both, lists=LISTS) == set()


def test_collection_with_a_new_member_before_the_expired_one_is_deleted_is_never_gone() -> None:
    changes = [accepted(2, "/x/g/1", ttl=2.0), accepted(4.5, "/x/g/2"), accepted(5, "/h"), accepted(5.2, "/h", stamp=1)]
    events, lists = [*subscribed("/x/"), *seen(held(2.1, 5, "/x/"))], {5: ["/x/g/"]}
    assert broken(changes, events, lists=lists) == set()
    alone = [change for change in changes if change.endpoint != "/x/g/2"]
    assert broken(alone, events, lists=lists) == {"Behind", "NotConverged"}


def test_wiped_store_has_no_members_until_they_are_written_again() -> None:
    changes = [accepted(2, "/g/1"), accepted(3, "/g/2"), accepted(9, "/g/2")]
    events = [*subscribed("/g/"), *seen(held(2.1, 1, "/g/"), held(3.1, 2, "/g/"), held(9.1, 3, "/g/"))]
    assert "WrongMembers" in broken(changes, events, lists=LISTS)
    assert broken(changes, events, lists=LISTS, faults=[Fault(WIPE, "data", 5, 8)]) == set()


# Rights


def test_client_is_delivered_nothing_that_its_token_does_not_cover() -> None:
    changes = [accepted(2, "/g/1"), accepted(2, "/gh/1")]
    events = [*subscribed("/g/1", "/g/"), Event(2.1, Kind.UPDATE, "/g/1", V + 2000), *seen(held(2.1, 1, "/g/", at=2))]
    assert broken(changes, events, lists=LISTS, rights={"1": ["/g"]}) == set()
    assert broken(changes, events, lists=LISTS, rights={"1": ["/g/1"]}) == {"Forbidden"}
    other = [*subscribed("/gh/1"), Event(2.1, Kind.UPDATE, "/gh/1", V + 2000)]
    assert broken(changes, other, rights={"1": ["/g"]}) == {"Forbidden"}
    assert broken(changes, other) == set()
    refused = [Event(1, Kind.SUBSCRIBE, "/gh/1"), Event(1.1, Kind.REJECTED, "/gh/1")]
    assert broken(changes, [*events, *refused], lists=LISTS, rights={"1": ["/g"]}) == set()


# Values


def test_condensed_values_have_the_fingerprint_of_the_whole_ones() -> None:
    long = {"b": ["x" * (LONG + 1), {"c": "y" * LONG}], "a": 1}
    assert condensed(long) != long
    assert fingerprint(condensed(long)) == fingerprint(long) == fingerprint({"a": 1, "b": long["b"]})
    assert fingerprint(long) != fingerprint({**long, "b": ["x" * (LONG + 2), {"c": "y" * LONG}]})


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "copy", "from": "/b/0", "path": "/c"}],
    ],
)
def test_patch_that_does_not_fit_is_none(operations: list[dict[str, Any]]) -> None:
    with pytest.raises(NotPatchable):
        patched({"a": 1}, operations)
    with pytest.raises(NotPatchable):
        applied(None, {"json": operations})
