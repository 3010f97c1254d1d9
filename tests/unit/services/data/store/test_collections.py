"""Collections in the store: kept with their members, through lost answers, restarts and earlier releases."""

from typing import Any

import orjson
import pytest

from services.data.errors import StoreUnavailable
from services.data.kinds import COLLECTION
from services.data.limits import StoreLimits, WriterLimits
from services.data.store.store import Store
from tests.support.databases import Databases
from tests.unit.services.data.stores import dataset, lose_answers_to_groups, open_store


def members(store: Store) -> dict[str, bytes]:
    """Return the content of every collection that exists."""
    heads = store.index.heads.items()
    return {
        name: store.index.content_of(name) for name, head in heads if head.media_type == COLLECTION and not head.gone
    }


EXPECTED = {"/a/": b'{"members":["/a/b/"]}', "/a/b/": b'{"members":["/a/b/c","/a/b/d"]}'}


async def test_collections_survive_a_restart(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        await store.writer.put([dataset("/a/b/c"), dataset("/a/b/d"), dataset("/top")])
        assert members(store) == EXPECTED
        heads = dict(store.index.heads)
    again = await open_store(databases)
    async with again.serving():
        assert again.index.heads == heads
        assert members(again) == EXPECTED


def update_of(store: Store, name: str) -> dict[str, Any]:
    """Return the update that the feed has of an endpoint."""
    found = store.changes.get(name.encode())
    assert found is not None
    update: dict[str, Any] = orjson.loads(found.value)
    return update


async def test_updates_list_all_members_though_these_changed_later(databases: Databases) -> None:
    store = await open_store(databases)
    async with store.serving():
        await store.writer.put([dataset("/a/b"), dataset("/a/c")])
        await store.writer.put([dataset("/a/b", 2), dataset("/a/c", 2)])
        before = update_of(store, "/a/")
        assert before["data"]["members"] == ["/a/b", "/a/c"]
    again = await open_store(databases)
    async with again.serving():
        assert update_of(again, "/a/") == before


async def test_updates_of_commits_with_lost_answers_list_all_members(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No probe in between.
    store = await Store.open(databases.url(), limits=StoreLimits(writer=WriterLimits(probe_every_s=60)))
    async with store.serving():
        for value in (1, 2):
            with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
                lose_answers_to_groups(patch)
                await store.writer.put([dataset("/a/b", value)])
        await store.writer.put([dataset("/top")])
        assert update_of(store, "/a/")["data"]["members"] == ["/a/b"]


async def test_a_commit_with_a_lost_answer_is_in_the_collections(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(databases)
    async with store.serving():
        with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
            lose_answers_to_groups(patch)
            await store.writer.put([dataset("/a/b/c")])
        await store.writer.put([dataset("/a/b/d")])
        assert members(store) == EXPECTED
        await store.writer.delete("/a/b/c")
        await store.writer.delete("/a/b/d")
        assert members(store) == {}
