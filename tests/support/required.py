"""Handling of tests whose requirements are not installed."""

import os
from typing import NoReturn

import pytest


def in_cluster(reason: str = "it takes long") -> pytest.MarkDecorator:
    """Return the mark of tests that only ``make cluster`` runs, for a reason."""
    return pytest.mark.skipif("RUN_CLUSTER" not in os.environ, reason=f"{reason}: make cluster")


def unavailable(part: str, error: Exception) -> NoReturn:
    """Skip the test, or fail it if ``CI`` is set: then everything is required."""
    if os.environ.get("CI"):
        pytest.fail(f"the run is the one that must have {part}: {error}")
    pytest.skip(str(error))
