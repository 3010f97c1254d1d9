"""What a test does when a part that it needs is not on this machine."""

import os
from typing import NoReturn

import pytest


def unavailable(part: str, error: Exception) -> NoReturn:
    """Skip the test, or fail it where ``CI`` says that the run must have everything."""
    if os.environ.get("CI"):
        pytest.fail(f"the run is the one that must have {part}: {error}")
    pytest.skip(str(error))
