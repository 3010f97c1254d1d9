"""Checkpoints of sources: stored with the changes up to there, or not at all; on SQLite and PostgreSQL."""

from collections.abc import Sequence

import pytest

from diem.protocol.media_types import MERGE_PATCH
from services.data.errors import ChangeRefused, CheckpointMoved, EndpointDeleted, WrongKind
from services.data.kinds import DOCUMENT, Body, Representation, seal
from services.data.store import Change, Checkpoint, Deletion, Patch, Write
from services.data.store.store import Store
from tests.support.databases import Databases

KEPT = ("orders/0", "7")


def document(endpoint: str, text: str = "1") -> Representation:
    return seal(endpoint, DOCUMENT, text.encode())


async def apply(store: Store, changes: Sequence[Change], before: str | None, after: str) -> list[tuple[str, bool]]:
    """Store changes of one source; return endpoint and whether it has changed, of each."""
    write = Write(changes, "orders", checkpoint=Checkpoint(KEPT[0], before, after))
    return [(each.endpoint, each.changed) for each in await store.writer.submit(write)]


async def test_a_position_is_stored_with_its_changes_and_survives_a_restart(databases: Databases) -> None:
    async with (await Store.open(databases.url())).serving() as store:
        assert await store.reader.positions("orders") == {}
        assert await apply(store, [document("/a"), document("/b")], None, "2") == [("/a", True), ("/b", True)]
        assert await apply(store, [], "2", "7") == []
    async with (await Store.open(databases.url())).serving() as store:
        assert await store.reader.positions("orders") == dict([KEPT])
        assert await store.reader.positions("others") == {}
        assert store.index.names == ["/a", "/b"]


async def test_changes_elsewhere_than_at_the_stored_position_are_refused(databases: Databases) -> None:
    async with (await Store.open(databases.url())).serving() as store:
        await apply(store, [document("/a")], None, "1")
        for before in (None, "0", "2"):
            with pytest.raises(CheckpointMoved, match="is at 1 in orders/0"):
                await apply(store, [document("/a", "2")], before, "2")
        assert (await store.reader.current("/a")).content == b"1"
        other = Checkpoint("orders/1", None, "5")
        await store.writer.submit(Write([document("/a", "3")], "orders", checkpoint=other))
        assert await store.reader.positions("orders") == {"orders/0": "1", "orders/1": "5"}


async def test_changes_that_wait_in_one_group_follow_each_other(databases: Databases) -> None:
    async with (await Store.open(databases.url())).serving() as store:
        writes = [
            Write([document("/a", str(number))], "orders", checkpoint=Checkpoint("0", before, str(number)))
            for number, before in enumerate([None, "0", "1", "1", "3"])
        ]
        answers = [store.writer.enqueue(write) for write in writes]
        assert [len(await answer) for answer in answers[:3]] == [1, 1, 1]
        for answer in answers[3:]:
            with pytest.raises(CheckpointMoved):
                await answer
        assert (await store.reader.current("/a")).content == b"2"
        assert await store.reader.positions("orders") == {"0": "2"}


async def test_of_changes_with_a_refused_one_none_is_stored(databases: Databases) -> None:
    async with (await Store.open(databases.url())).serving() as store:
        await apply(store, [seal("/text", "text/plain", b"a"), document("/b")], None, "2")
        sequence = store.index.changes.sequence
        changes: list[Change] = [
            document("/new/a"),
            document("/b", "2"),
            document("/b", "3"),
            Deletion("/b"),
            document("/b", "4"),
            document("/text"),
            document("/c"),
        ]
        with pytest.raises(ChangeRefused) as caught:
            await apply(store, changes, "2", "9")
        assert (caught.value.index, type(caught.value.refusal)) == (5, WrongKind)
        assert (store.index.changes.sequence, store.index.names) == (sequence, ["/b", "/text"])
        assert (await store.reader.current("/b")).content == b"1"
        del changes[5]
        assert len(await apply(store, changes, "2", "9")) == 6
        assert [each.content for each in await store.reader.versions("/b")][:4] == [b"4", b"", b"3", b"2"]
        assert store.index.names == ["/b", "/c", "/new/a", "/text"]


async def test_a_patch_makes_what_there_is_not_and_a_deletion_of_nothing_is_none(databases: Databases) -> None:
    async with (await Store.open(databases.url())).serving() as store:
        merge = Patch("/a", Body(b'{"y":2}', MERGE_PATCH), 1000, initial=document("/a", '{"x":1}'))
        changes: list[Change] = [
            Deletion("/never", missing_ok=True),
            merge,
            merge,
            Deletion("/a", missing_ok=True),
            merge,
        ]
        accepted = await apply(store, changes, None, "1")
        assert accepted == [("/a", True)] * 4
        assert (await store.reader.current("/a")).content == b'{"x":1}'
        await apply(store, [merge, Deletion("/a"), Deletion("/a", missing_ok=True)], "1", "2")
        with pytest.raises(EndpointDeleted):
            await store.reader.current("/a")
