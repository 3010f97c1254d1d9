"""Assignment of tests to workers, and their order.

Tests that share an expensive fixture stay together, the longest begin first, and those that mostly wait are spread
among those that compute: side by side, they would leave the cores idle.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import pytest

_ONE_WORKER: Final = {"spark": 100, "own_broker": 50}
"""Fixtures that are started once in a run, by the one worker that runs all tests which take them, and the seconds that
these tests take together."""
_WAITING: Final = ("tests/integration/kafka/", "tests/integration/proxy/")
"""Folders whose tests mostly wait for brokers or time-outs."""
_LONG: Final = ("tests/contract/", "tests/e2e/", "tests/integration/", "tests/load/")
LONG_S: Final = 5.0
"""Default seconds of a test in these folders."""
SHORT_S: Final = 0.02
"""Default seconds of any other test."""

T = TypeVar("T")


class SchedulingPlugin:
    """Group and sort the collected tests."""

    # Before pytest-xdist reads the groups.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort in place, by the seconds that the marker ``takes`` states; the others keep their order.

        The tests of one group stay together, for they have one marker.
        """
        for item in items:
            for fixture in _ONE_WORKER.keys() & getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(fixture))
                item.add_marker(pytest.mark.takes(_ONE_WORKER[fixture]))
        stated = sorted((item for item in items if _stated(item)), key=lambda item: -_stated(item))
        others = [item for item in items if not _stated(item)]
        waiting = [item for item in others if item.nodeid.startswith(_WAITING)]
        work = [item for item in others if not item.nodeid.startswith(_WAITING)]
        items[:] = [*stated, *spread(waiting, work, [_usual(item) for item in work])]


def spread(few: Sequence[T], work: Iterable[T], seconds: Sequence[float]) -> list[T]:
    """Merge the ``few`` into ``work``, evenly over its ``seconds``; both keep their order."""
    share = sum(seconds) / (len(few) + 1)
    spent, result, left = 0.0, list[T](), list(reversed(few))
    for item, its_seconds in zip(work, seconds, strict=True):
        result.append(item)
        spent += its_seconds
        while left and spent >= share * (len(few) - len(left) + 1):
            result.append(left.pop())
    return result + left[::-1]


def _stated(item: pytest.Item) -> float:
    marker = item.get_closest_marker("takes")
    return float(marker.args[0]) if marker else 0.0


def _usual(item: pytest.Item) -> float:
    return LONG_S if item.nodeid.startswith(_LONG) else SHORT_S
