"""Work on large contents: in a thread, without the garbage collector, which runs again afterwards."""

import gc
import threading

import pytest

from services.data import large
from services.data.large import LARGE_BYTES, collector_paused, run_sized


@pytest.mark.parametrize("size", [LARGE_BYTES, LARGE_BYTES + 1])
async def test_large_work_is_done_in_a_thread_without_collections(size: int) -> None:
    is_large = size > LARGE_BYTES
    here = threading.get_ident()
    assert await run_sized(lambda: (threading.get_ident() != here, gc.isenabled()), size) == (is_large, not is_large)
    assert gc.isenabled()


async def test_after_an_error_the_collector_runs_again() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_sized(lambda: 1 / 0, LARGE_BYTES + 1)
    assert gc.isenabled()


def test_the_collector_runs_after_a_pause_that_begins_as_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Collector:
        enable, disable = gc.enable, gc.disable

        @staticmethod
        def isenabled() -> bool:
            gc.enable()  # the other thread, right after this one has looked
            return False

    monkeypatch.setattr(large, "gc", Collector)
    with collector_paused():
        pass
    assert gc.isenabled()
