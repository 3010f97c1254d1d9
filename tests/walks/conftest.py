"""What several walks are given."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="module")
def silent_log() -> Iterator[None]:
    """Walks log as much as a year of operation; whoever repeats one prints what it needs."""
    before = structlog.get_config()

    def drop(*_: object) -> str:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    yield
    structlog.configure(**before)
