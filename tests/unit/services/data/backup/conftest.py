"""Tests of backups run on SQLite; on PostgreSQL those of its own statements, and with ``make cluster`` all."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.required import leave_postgres_to_cluster

OWN: Final = ("during_writes", "into_the_other", "foreign_tables", "running_service")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the others on PostgreSQL to ``make cluster``."""
    leave_postgres_to_cluster(items, Path(__file__).parent, OWN)
