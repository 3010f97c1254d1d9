"""A wait for executors is shown, on clusters alone, unless they come in time."""

import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from deploy.terminal import Terminal
from learning.spark import pipeline
from learning.spark.pipeline import _wait_shown
from tests.support.patience import PATIENCE_S

MASTER = "spark://spark-1:7077"


def waits() -> list[threading.Timer]:
    return [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


def test_a_wait_is_shown_when_its_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pipeline._SHOWN_AFTER_S == 5.0
    monkeypatch.setattr(pipeline, "_SHOWN_AFTER_S", 0.0)
    warned = SimpleQueue[str]()
    with _wait_shown(SimpleNamespace(warn=warned.put), MASTER) as begin:  # type: ignore[arg-type]  # it only warns
        begin()
        assert warned.get(timeout=PATIENCE_S).startswith(f"waiting for executors of {MASTER}: ")


@pytest.mark.parametrize(("master", "begun"), [(MASTER, 1), ("local[2]", 0), ("local", 0)])
def test_executors_in_time_end_the_wait(monkeypatch: pytest.MonkeyPatch, master: str, begun: int) -> None:
    monkeypatch.setattr(pipeline, "_SHOWN_AFTER_S", 1000 * PATIENCE_S)
    with _wait_shown(Terminal(quiet=True), master) as begin:
        begin()
        assert len(waits()) == begun
        ended = waits()
    for each in ended:
        each.join(PATIENCE_S)
    assert not waits()
