"""Invariant I1 on both databases: kill -9 under ingest loses nothing that was accepted and uses no version twice.

``python -m tests.load.killed_store`` does it a hundred times.
"""

from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.killing import Broken, Ledger, kill_again_and_again

KILLS = 3


async def test_kills_under_ingest_lose_nothing_and_use_no_version_twice(databases: Databases, tmp_path: Path) -> None:
    ledger = await kill_again_and_again(tmp_path / "state", KILLS, 7, DATABASE_URL=databases.url())
    assert ledger.kills == KILLS
    assert ledger.answers >= 4 * KILLS


def test_the_ledger_names_what_is_broken() -> None:
    ledger = Ledger(attempted={"/a": 3})
    ledger.accept("/a", 10, 1)
    ledger.accept("/a", 11, 2)
    ledger.found("/a", 11, 2)
    with pytest.raises(Broken, match="was 1 and is 9"):
        ledger.saw("/a", 10, 9)
    with pytest.raises(Broken, match="had 2 as version 11"):
        ledger.found("/a", 10, 1)
    with pytest.raises(Broken, match="had 2 as version 11"):
        ledger.found("/a", 12, 4)  # nobody sent it
    with pytest.raises(Broken, match="was given 11"):
        ledger.accept("/a", 11, 2)
    ledger.found("/a", 13, 3)
    assert ledger.in_doubt == 1
