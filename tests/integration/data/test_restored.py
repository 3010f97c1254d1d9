"""Backup and restore with a real process: backed up while serving, restored as a new store, refused as an old copy."""

import shutil
from pathlib import Path

import httpx

from services.data.store import MARK_FILE
from services.data.store.rollback_guard import MarkFile
from tests.integration.data.process import RESTARTED, DataProcess, bulk, serving, until
from tests.support.backups import backup, restore
from tests.support.databases import Databases
from tests.support.patience import PATIENCE_S
from tests.support.patience import until as become


def client(process: DataProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S)


async def store_of(process: DataProcess) -> dict[str, object]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        status: dict[str, object] = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
        return status


def keep_copy(databases: Databases) -> None:
    """Copy the database as a snapshot of the disk, or pg_dump, would."""
    if databases.cluster is None:
        shutil.copytree(databases.file().parent, databases.file("copy").parent)
    else:
        databases.cluster.sql(f"CREATE DATABASE {databases.database()}_old TEMPLATE {databases.database()}")


def put_copy_back(databases: Databases) -> None:
    if databases.cluster is None:
        shutil.rmtree(databases.file().parent)
        shutil.copytree(databases.file("copy").parent, databases.file().parent)
    else:
        name = databases.database()
        databases.cluster.drop(name)
        databases.cluster.sql(f"ALTER DATABASE {name}_old RENAME TO {name}")


async def test_an_older_copy_is_not_ready_until_it_is_restored_as_a_new_store(
    databases: Databases, tmp_path: Path
) -> None:
    state, url = tmp_path / "state", databases.url()
    async with serving(state, DATABASE_URL=url, **RESTARTED) as process, client(process) as http:
        assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        await process.end()
    keep_copy(databases)
    async with serving(state, DATABASE_URL=url, **RESTARTED) as process, client(process) as http:
        (newest,) = (await http.put("/v1/data", json=bulk({"/a": 2}))).json()["accepted"]
        before = await store_of(process)
        # A kill leaves the mark of the last second: it is enough that this change is in it.
        await become(lambda: (mark := MarkFile(state / MARK_FILE).read()) is not None and mark.sequence == 2)
    put_copy_back(databases)
    async with serving(state, DATABASE_URL=url, **RESTARTED) as process, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        await until(http, f"{process.internal}/readyz", 503)
        said = (await http.get(f"{process.internal}/readyz")).text
        assert "older copy of itself (it has been at position 2)" in said
        # What is there can be saved meanwhile.
        await backup(url, tmp_path / "file", 0)
        await process.end()
    mark = MarkFile(state / MARK_FILE).read()
    assert mark is not None
    assert mark.version == newest["version"]
    await restore(url, tmp_path / "file", 1_700_000_000_000, replace=True, least_version=mark.version)
    async with serving(state, DATABASE_URL=url, **RESTARTED) as process, client(process) as http:
        assert (await http.get(f"{process.internal}/readyz")).status_code == 200
        found = (await http.get("/v1/data/a")).json()
        assert found["points"][0]["value"] == 1
        assert found["version"] > newest["version"]
        assert (await store_of(process))["store"] != before["store"]


async def test_replacing_the_file_under_a_running_process_ends_it(tmp_path: Path) -> None:
    live, copy = tmp_path / "data.db", tmp_path / "copy.db"
    async with serving(tmp_path / "state", DATABASE_URL=f"sqlite:///{live}") as process:
        async with client(process) as http:
            assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
        shutil.copy(live, copy)
        copy.replace(live)
        # Detected without a write, before any goes to a file without a name.
        assert await process.wait() == 1
        await process.end()
        assert process.log[-1].endswith(f"the file {live} is another one: it was replaced while it was in use")
