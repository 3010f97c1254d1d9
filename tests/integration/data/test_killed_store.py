"""Invariant I1 on both databases: kill -9 under ingest loses nothing that was accepted and uses no version twice.

``python -m tests.load.killed_store`` does it a hundred times.
"""

from pathlib import Path

import pytest

from tests.integration.data.process import RESTARTED
from tests.support.databases import Databases
from tests.support.store_kills import Broken, WriteRecord, kill_repeatedly

KILLS = 3


async def test_kills_under_ingest_lose_nothing_and_use_no_version_twice(databases: Databases, tmp_path: Path) -> None:
    record = await kill_repeatedly(tmp_path / "state", KILLS, 7, DATABASE_URL=databases.url(), **RESTARTED)
    assert record.kills == KILLS
    assert record.answers >= 4 * KILLS


def test_violations_are_reported() -> None:
    record = WriteRecord(attempted={"/a": 3})
    record.accept("/a", 10, 1)
    record.accept("/a", 11, 2)
    record.check_stored("/a", 11, 2)
    with pytest.raises(Broken, match="was 1 and is 9"):
        record.add_version("/a", 10, 9)
    with pytest.raises(Broken, match="had 2 as version 11"):
        record.check_stored("/a", 10, 1)
    with pytest.raises(Broken, match="had 2 as version 11"):
        record.check_stored("/a", 12, 4)  # nobody sent it
    with pytest.raises(Broken, match="was given 11"):
        record.accept("/a", 11, 2)
    record.check_stored("/a", 13, 3)
    assert record.in_doubt == 1
