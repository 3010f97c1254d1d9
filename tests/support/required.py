"""Handling of tests whose requirements are not installed."""

import os
from typing import NoReturn

import pytest

in_cluster = pytest.mark.skipif("RUN_CLUSTER" not in os.environ, reason="it takes long: make cluster")
"""Mark of tests for which `make test` has no time."""


def unavailable(part: str, error: Exception) -> NoReturn:
    """Skip the test, or fail it if ``CI`` is set: then everything is required."""
    if os.environ.get("CI"):
        pytest.fail(f"the run is the one that must have {part}: {error}")
    pytest.skip(str(error))
