"""The process that converts files: the same answers and errors as here, within bounds, and replaced beyond them."""

import asyncio
import gzip
import io
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from services.data.errors import DataError, DatasetTooLarge, InvalidDataset
from services.data.files.convert import convert
from services.data.files.frames import Bounds
from services.data.files.grid import FileLimits, InputFile
from services.data.files.mapping import Mapping
from services.data.files.reader import FileReader, ReaderEnded
from services.data.files.suggest import suggest
from services.data.files.target import FileTarget
from services.data.kinds.series.form import Declared, EndpointDeclaration, clock_of
from tests.unit.services.data.files.workbooks import MOMENT, rows, xlsx

HOUR = EndpointDeclaration("MW", "PT1H", "Load")
TARGET = FileTarget(Declared("/load", HOUR, clock=clock_of("Europe/Berlin")))
ROWS = InputFile("a.csv", b"time,value\n2026-06-01 02:00,1.5\n2026-06-01 03:00,\n")


# The bounds are those of a process that has imported nothing else.
pytestmark = pytest.mark.usefixtures("executed_processes")


@pytest.fixture
async def reader() -> AsyncIterator[FileReader]:
    async with FileReader() as made:
        yield made


async def ended(reader: FileReader) -> None:
    async with asyncio.timeout(10):
        while reader.pid is not None:  # it has no event for others
            await asyncio.sleep(0.01)


async def test_what_it_returns_and_raises_is_what_the_conversion_does(reader: FileReader) -> None:
    assert reader.pid is None
    below = FileTarget(Declared(None, HOUR, clock=TARGET.declared.clock), "/all", "{column}")
    files: list[tuple[InputFile, Mapping, FileTarget]] = [
        (ROWS, Mapping(), TARGET),
        (InputFile("a.json", b'[{"id": 1, "x": [1]}]'), Mapping(kind="document", name="{id}"), below),
        (
            InputFile("a", b'{"t": [0, 3600], "A": [1, 2], "B": [3, 4]}'),
            Mapping(time="t", time_format="epoch", value="*"),
            below,
        ),
        (InputFile("a.csv", b"time,value\n2026-06-01 02:00,x\n"), Mapping(), TARGET),
        (InputFile("a.json", b"{"), Mapping(), TARGET),
        (InputFile("a.csv", b"<html>"), Mapping(), TARGET),
    ]
    for file, mapping, target in files:
        try:
            expected: Any = convert(file, mapping, target)
        except DataError as error:
            with pytest.raises(type(error)) as found:
                await reader.convert(file, mapping, target)
            assert str(found.value) == str(error)
        else:
            assert await reader.convert(file, mapping, target) == expected
    first = reader.pid
    many = await asyncio.gather(*(reader.convert(ROWS, Mapping(), TARGET) for _ in range(5)))
    assert len({str(each) for each in many}) == 1
    assert reader.pid == first


async def test_every_format_is_read_within_the_bounds(reader: FileReader) -> None:
    target = io.BytesIO()
    pq.write_table(pa.table({"value": [1.5], "__index_level_0__": [datetime(2026, 6, 1)]}), target)  # noqa: DTZ001  # local
    row = '<rows><row time="2026-06-01 00:00"><value>1.5</value></row></rows>'
    files = [
        (InputFile("a.parquet", target.getvalue()), {}),
        (InputFile("a.xlsx", xlsx({"S": rows(("time", "value"), ((46174.0, MOMENT), 1.5))})), {}),
        (InputFile("a.xml.gz", gzip.compress(row.encode())), {"rows": "row", "time": "@time"}),
        (InputFile("a.json", b'{"time": ["2026-06-01 00:00"], "value": [1.5]}'), {}),
    ]
    for file, mapping in files:
        (made,) = await reader.convert(file, Mapping.model_validate(mapping), TARGET)
        assert made.content.endswith(b'"points":[{"time":"2026-05-31T22:00:00Z","value":1.5}]}'), file.name


async def test_a_suggestion_is_that_of_this_process(reader: FileReader) -> None:
    for body in (b"Zeit;Wirk [kW]\n25.10.2026 01:45;1.002,5\n25.10.2026 02:00;3,25\n", b"<a><b><c>1</c></b></a>"):
        file = InputFile("meter.csv", body)
        known = {"zone": "Europe/Berlin"}
        expected, made = suggest(file, known=known, name="x"), await reader.suggest(file, known=known, name="x")
        assert (made.found, made.problem, made.name) == ([*expected.found], expected.problem, expected.name)
        assert (made.fields, made.keys, made.preset) == (expected.fields, expected.keys, expected.preset)
        assert (made.notes, made.questions) == ([*expected.notes], [*expected.questions])
    with pytest.raises(InvalidDataset, match="this is a RAR archive"):
        await reader.suggest(InputFile("a.rar", b"Rar!"))


def test_this_process_loads_no_library_of_formats() -> None:
    libraries = ("pyarrow", "python_calamine", "xml", "pyexpat")
    modules = "services.data.sources.directory, services.data.files.reader"
    code = f"import sys, {modules}; print([name for name in {libraries} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


async def converting(reader: FileReader) -> tuple[asyncio.Task[Any], int]:
    """Return a conversion whose process is stopped before it has read all of the file."""
    await reader.convert(ROWS, Mapping(), TARGET)
    pid = reader.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    waiting = asyncio.create_task(reader.convert(InputFile("a.csv", bytes(4 * 1024 * 1024)), Mapping(), TARGET))
    async with asyncio.timeout(10):
        while not reader._turn.locked():
            await asyncio.sleep(0.001)
    return waiting, pid


async def test_a_process_that_ends_is_explained_and_replaced(reader: FileReader) -> None:
    ends: list[tuple[signal.Signals, type[DataError], str]] = [
        (signal.SIGXCPU, DatasetTooLarge, "its conversion takes more than 60 s of a processor: split the file"),
        (
            signal.SIGABRT,
            DatasetTooLarge,
            "its conversion needs more than 2048 MiB of memory, or fails: split the file",
        ),
        (signal.SIGTERM, ReaderEnded, "the reader ended (-15): no answer"),
    ]
    for number, error, reason in ends:
        waiting, pid = await converting(reader)
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(error) as found:
            await waiting
        assert str(found.value) == reason
    assert await reader.convert(ROWS, Mapping(), TARGET)


async def test_a_process_that_ended_meanwhile_is_replaced(reader: FileReader) -> None:
    await reader.convert(ROWS, Mapping(), TARGET)
    assert reader._worker is not None
    reader._worker.process.kill()
    await reader._worker.process.wait()
    assert await reader.convert(ROWS, Mapping(), TARGET)


async def test_a_file_that_needs_too_much_memory_is_refused() -> None:
    async with FileReader(bounds=Bounds(memory_bytes=128 * 1024 * 1024)) as reader:
        with pytest.raises(DatasetTooLarge, match=r"needs more than 128 MiB of memory"):
            await reader.convert(InputFile("a.json", b"[" + b"[1.5]," * 1_000_000 + b"[1.5]]"), Mapping(), TARGET)
        assert await reader.convert(ROWS, Mapping(), TARGET)


async def test_a_file_that_takes_too_long_is_refused() -> None:
    async with FileReader(bounds=Bounds(wall_s=0.001)) as reader:
        with pytest.raises(DatasetTooLarge, match=r"^its conversion takes more than 0.001 s: split the file$"):
            await reader.convert(ROWS, Mapping(), TARGET)
        assert reader.pid is None


async def test_a_cancelled_caller_ends_the_process(reader: FileReader) -> None:
    waiting, first = await converting(reader)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert await reader.convert(ROWS, Mapping(), TARGET)


async def test_the_process_ends_after_a_time_without_files() -> None:
    async with FileReader(idle_s=0) as reader:
        await reader.convert(ROWS, Mapping(), TARGET)
        await ended(reader)
        assert await reader.convert(ROWS, Mapping(), TARGET)


async def test_the_process_has_the_limits_but_none_of_this_one_s_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_SECRET", "x")
    async with FileReader(FileLimits(rows=1)) as reader:
        with pytest.raises(InvalidDataset, match="more than 1 rows"):
            await reader.convert(ROWS, Mapping(), TARGET)
        assert b"DIEM_SECRET" not in Path(f"/proc/{reader.pid}/environ").read_bytes()
