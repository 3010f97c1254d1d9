"""How many events a run is expected to read, before Spark starts."""

from datetime import date
from math import inf
from pathlib import Path

import pytest

from learning.jobs.delta_table import CommittedFile
from learning.jobs.sources import FileSource, SourceLag
from learning.jobs.warehouse import Warehouse
from learning.spark import pipeline
from learning.spark.pipeline import ReadOptions, _expected_events


def test_events_are_those_of_lines_and_of_the_last_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files(_sink: Path, kind: str) -> list[CommittedFile]:
        return [CommittedFile(tmp_path, 1, 10 * day, kind, date(2026, 1, day)) for day in (1, 2, 2)]

    here, reading = Warehouse(tmp_path), ReadOptions(FileSource(tmp_path), remove=False, follow_s=None)
    assert _expected_events(here, reading, SourceLag(1, size=30_000)) == 100
    monkeypatch.setattr(Warehouse, "sources", lambda _: ["one"])
    monkeypatch.setattr(pipeline, "committed_files", files)
    assert _expected_events(here, reading, SourceLag(7)) == 47
    assert _expected_events(here, None, SourceLag(0)) == 40
    following = ReadOptions(FileSource(tmp_path), remove=False, follow_s=60.0)
    assert _expected_events(here, following, SourceLag(7)) == inf
