"""The files of a store in SQLite are private, whatever the umask and the rights of the directory."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.data.store.store import Store
from tests.unit.services.data.stores import dataset


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


async def test_files_of_a_new_store_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    url = f"sqlite:///{directory / 'data.db'}"
    store = await Store.open(url)
    async with store.serving():
        await store.writer.put([dataset("/a")])
        found = rights(directory)
    assert {"data.db", "data.db-wal", "data.db-shm", "data.db.lock"} <= set(found)
    assert set(found.values()) == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700


async def test_files_of_an_earlier_release_lose_the_rights_of_others(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "data.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE theirs (number INTEGER)")
    connection.commit()
    assert rights(tmp_path)["data.db"] == 0o644
    # As after a kill, its other files are there, too.
    store = await Store.open(f"sqlite:///{tmp_path / 'data.db'}")
    async with store.serving():
        await store.writer.put([dataset("/a")])
        assert set(rights(tmp_path).values()) == {0o600}
    connection.close()
