"""What every end-to-end test is given."""

import time

import pytest

AN_HOUR_S = 3600
LONGEST_S = 60
"""Longer than a test of the page takes."""


@pytest.fixture(autouse=True)
def one_hour(request: pytest.FixtureRequest) -> None:
    """A test of the page ends in the hour, and so on the day, in which it began: what its market calls now is that."""
    left = AN_HOUR_S - time.time() % AN_HOUR_S
    if request.path.name.startswith("test_page_") and left < LONGEST_S:
        time.sleep(left)
