"""Tests of access run on SQLite; on PostgreSQL those of concurrent counts, and with ``make cluster`` all."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.required import in_cluster

CONCURRENT: Final = ("interleaving", "leases", "quota")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the others on PostgreSQL to ``make cluster``: their SQL is that of the tests of the store."""
    for item in items:
        is_own = Path(__file__).parent in item.path.parents
        if is_own and "[postgresql" in item.name and not any(word in item.name for word in CONCURRENT):
            item.add_marker(in_cluster("it runs on SQLite"))
