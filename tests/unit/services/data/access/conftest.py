"""Tests of access run on SQLite; on PostgreSQL those of concurrent counts, and with ``make cluster`` all."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.required import leave_postgres_to_cluster

CONCURRENT: Final = ("interleaving", "leases", "quota")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the others on PostgreSQL to ``make cluster``."""
    leave_postgres_to_cluster(items, Path(__file__).parent, CONCURRENT)
