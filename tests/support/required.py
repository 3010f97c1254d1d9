"""Handling of tests whose requirements are not installed."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

import pytest


def in_cluster(reason: str = "it takes long") -> pytest.MarkDecorator:
    """Return the mark of tests that only ``make cluster`` runs, for a reason; it runs no others."""
    if "RUN_CLUSTER" in os.environ:
        return pytest.mark.cluster
    return pytest.mark.skip(reason=f"{reason}: make cluster")


def leave_postgres_to_cluster(items: Iterable[pytest.Item], folder: Path, but: Collection[str]) -> None:
    """Leave the tests of a folder on PostgreSQL to ``make cluster``, but those with one of some words in their names.

    Their SQL is that of the tests of the store, which run on both.
    """
    for item in items:
        is_own = folder in item.path.parents
        if is_own and "[postgresql" in item.name and not any(word in item.name for word in but):
            item.add_marker(in_cluster("it runs on SQLite"))


def unavailable(part: str, error: Exception) -> NoReturn:
    """Skip the test, or fail it if ``CI`` is set: then everything is required."""
    if os.environ.get("CI"):
        pytest.fail(f"the run is the one that must have {part}: {error}")
    pytest.skip(str(error))
