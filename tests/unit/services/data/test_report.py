"""Metrics of the Data Service when its disk cannot be measured."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from diem.links.feed_server import FeedServer
from diem.process import metrics
from diem.process.clock import ManualClock
from diem.process.lifecycle import Lifecycle
from services.data import report as module
from services.data.report import DataReport
from services.data.sources.runner import SourceRunner
from services.data.store.store import Store


async def test_disk_that_cannot_be_measured_leaves_out_its_metrics_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failing = os.statvfs, True

    def statvfs(path: Path) -> os.statvfs_result:
        if failing:
            raise OSError(errno.EIO, "input/output error")
        return real(path)

    monkeypatch.setattr(module, "DISK_EVERY_S", 0.001)
    store = await Store.open(f"sqlite:///{tmp_path / 'data.db'}", clock=ManualClock())
    async with store.serving():
        monkeypatch.setattr(os, "statvfs", statvfs)
        report = DataReport("single", Lifecycle(0), store, SourceRunner([]), None, state_dir=tmp_path)

        def measured() -> set[object]:
            return {sample.metric for sample in report.samples(FeedServer(store))}

        assert metrics.STORE_SEQUENCE in measured()
        assert not measured() & {metrics.DISK_FREE, metrics.DISK_SIZE}
        failing = False
        measuring = asyncio.create_task(report.measure_disk())
        async with asyncio.timeout(30):
            while not {metrics.DISK_FREE, metrics.DISK_SIZE} <= measured():
                await asyncio.sleep(0.005)
        measuring.cancel()
        await asyncio.wait({measuring})
