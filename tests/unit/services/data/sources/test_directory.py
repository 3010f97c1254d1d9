"""The directory source: ingests stable and valid files, keeps stored data, and reports the others."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from diem.process.clock import ManualClock
from diem.protocol.update import iso
from services.data.errors import StoreUnavailable
from services.data.files.mapping import Mapping
from services.data.kinds import Representation
from services.data.sources.directory import DirectorySource, is_data
from services.data.sources.source import Sink
from services.data.sources.tables import DirectoryConfig
from tests.support.file_threads import FILES

CSV = "time,value\n2026-01-01T00:00:00Z,{}\n"


class Bench:
    """A source, its directory and its store."""

    def __init__(self, path: Path, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, **config: Any) -> None:
        self.path = path
        self.clock = ManualClock()
        self.stored: list[Representation] = []
        self.refuse: Exception | None = None
        defaults = {"prefix": "/files", "unit": "MW", "resolution": "PT1H"}
        table = {key: value for key, value in {**defaults, **config}.items() if value is not None}
        self.source = DirectorySource(
            DirectoryConfig.model_validate({"type": "directory", "name": "files", "path": str(path), **table}),
            self.clock,
            convert=FILES.convert,
            sleep=sleep,
        )

    async def sink(self, datasets: Sequence[Representation], *, source: str) -> None:
        assert source == "files"
        if self.refuse:
            raise self.refuse
        self.stored += datasets

    async def looks(self, times: int = 2) -> None:
        for _ in range(times):
            await self.source.scan(self.sink)

    @property
    def values(self) -> list[tuple[str, bytes]]:
        return [(one.endpoint, one.content.split(b'"value":')[1].rstrip(b"}]")) for one in self.stored]

    @property
    def error(self) -> str | None:
        return self.source.health.error

    @property
    def failures(self) -> int:
        return self.source.health.failures


def write(path: Path, text: str) -> None:
    """Write a file and move it into place, as its writers should."""
    part = path.with_name("." + path.name)
    part.write_text(text)
    part.replace(path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_each_file_is_the_endpoint_named_by_its_stem(bench: Bench) -> None:
    write(bench.path / "a.csv", CSV.format(1))
    write(bench.path / "B.CSV", CSV.format(2))
    await bench.looks()
    assert bench.values == [("/files/B", b"2"), ("/files/a", b"1")]
    assert bench.source.health.status()["ok"]
    await bench.looks(3)
    assert len(bench.stored) == 2


async def test_one_file_can_be_one_declared_endpoint(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, prefix=None, endpoint="/load", file="gr.csv", unit="kW", quantity="load", area="GR", title="L"
    )
    write(tmp_path / "gr.csv", CSV.format(1500))
    write(tmp_path / "other.csv", "nonsense")
    await bench.looks()
    (dataset,) = bench.stored
    assert (dataset.endpoint, dataset.label("unit"), dataset.label("quantity"), dataset.label("area")) == (
        "/load",
        "MW",
        "load",
        "GR",
    )
    assert bench.values == [("/load", b"1.5")]
    assert bench.error is None


async def test_an_endpoint_below_the_prefix_can_have_its_own_declaration(tmp_path: Path) -> None:
    bench = Bench(tmp_path, zone="Europe/Athens", endpoints={"/files/a": {"unit": "EUR/MWh", "title": "A"}})
    for name in "ab":
        write(tmp_path / f"{name}.csv", "time,value\n2026-06-01T03:00,5\n")
    await bench.looks()
    assert [(one.endpoint, one.label("unit"), one.title) for one in bench.stored] == [
        ("/files/a", "EUR/MWh", "A"),
        ("/files/b", "MW", ""),
    ]
    assert b"2026-06-01T00:00:00Z" in bench.stored[0].content


async def test_an_atomic_replacement_is_detected_despite_equal_size_and_time(bench: Bench) -> None:
    file = bench.path / "a.csv"
    write(file, CSV.format(1))
    await bench.looks()
    before = file.stat()
    part = bench.path / ".a.csv"
    part.write_text(CSV.format(2))
    os.utime(part, ns=(before.st_atime_ns, before.st_mtime_ns))
    part.replace(file)
    await bench.looks()
    assert bench.values == [("/files/a", b"1"), ("/files/a", b"2")]


async def test_a_file_is_ingested_once_it_is_stable(bench: Bench) -> None:
    text = CSV.format(1) + "2026-01-01T01:00:00Z,2\n"
    with (bench.path / "a.csv").open("w") as file:
        for number, letter in enumerate(text):
            file.write(letter)
            file.flush()
            os.utime(file.fileno(), ns=(0, 10**9 * (number + 1)))  # the clock of the file system may be coarse
            await bench.looks(1)
            assert not bench.stored
    await bench.looks(1)
    assert bench.stored[0].content.count(b"time") == 2
    assert bench.failures == 0


async def test_a_file_that_changes_while_it_is_read_is_not_ingested(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bench.path / "a.csv"
    write(file, CSV.format(1))
    await bench.looks(1)
    real = os.open

    def late(path: Any, *args: Any, **more: Any) -> int:
        if Path(path) == file:
            file.write_text(CSV.format(22))
            monkeypatch.setattr(os, "open", real)
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", late)
    await bench.looks(1)
    assert not bench.stored
    await bench.looks()
    assert bench.values == [("/files/a", b"22")]
    assert bench.failures == 0


async def test_an_invalid_file_is_reported_once_and_stops_neither_others_nor_loses_data(bench: Bench) -> None:
    write(bench.path / "a.csv", CSV.format(1))
    write(bench.path / "b.csv", CSV.format(1))
    await bench.looks()
    write(bench.path / "a.csv", CSV.format("x"))
    write(bench.path / "b.csv", CSV.format(2))
    await bench.looks(5)
    assert bench.values[2:] == [("/files/b", b"2")]
    assert bench.error == "a.csv: line 2: 'x' is not a number (decimal point, no thousands separators; empty for a gap)"
    assert bench.failures == 1
    write(bench.path / "c.csv", "<html>")
    await bench.looks(3)
    assert str(bench.error).endswith("(and 1 more)")
    assert bench.failures == 2
    write(bench.path / "a.csv", CSV.format(3))
    (bench.path / "c.csv").unlink()
    await bench.looks()
    assert bench.values[3:] == [("/files/a", b"3")]
    assert bench.source.health.status()["ok"]


async def test_a_file_that_vanishes_keeps_its_data_and_may_come_back(bench: Bench) -> None:
    write(bench.path / "a.csv", CSV.format(1))
    await bench.looks()
    (bench.path / "a.csv").unlink()
    await bench.looks()
    assert bench.source.health.status()["ok"]
    write(bench.path / "a.csv", CSV.format(2))
    await bench.looks()
    assert bench.values == [("/files/a", b"1"), ("/files/a", b"2")]


async def test_ingestion_is_retried_until_the_store_can_commit(bench: Bench) -> None:
    write(bench.path / "a.csv", CSV.format(1))
    bench.refuse = StoreUnavailable("the disk is full")
    await bench.looks(4)
    assert (bench.error, bench.failures) == ("a.csv: the disk is full", 1)
    bench.refuse = None
    await bench.looks(1)
    assert bench.values == [("/files/a", b"1")]
    assert bench.error is None


@pytest.mark.parametrize(("every", "wait"), [(0.5, 0.5), (3600.0, 5.0)])
async def test_a_missing_directory_is_looked_for_within_seconds_however_long_it_is_missing(
    tmp_path: Path, every: float, wait: float
) -> None:
    bench = Bench(tmp_path / "later", every=every)
    assert {await bench.source.scan(bench.sink) for _ in range(20)} == {wait}
    assert bench.error == f"no such directory: {tmp_path / 'later'}"


async def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bench = Bench(tmp_path / "file")
    await bench.looks(1)
    assert bench.error == f"not a directory: {tmp_path / 'file'}"


async def test_status_has_the_time_of_the_next_scan(tmp_path: Path) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise asyncio.CancelledError

    bench = Bench(tmp_path / "later", every=2.0, sleep=sleep)
    with pytest.raises(asyncio.CancelledError):
        await bench.source.run(bench.sink)
    assert waits == [2.0]
    status = bench.source.health.status()
    assert status["next_attempt"] == iso(bench.clock.wall_ms() + 2000)
    assert "next_attempt" not in bench.source.health.public_status()


async def test_a_trial_reads_every_stable_file_at_once(bench: Bench) -> None:
    write(bench.path / "a.csv", CSV.format(1))
    write(bench.path / "b.csv", "nonsense")
    await bench.source.try_once(bench.sink)
    assert bench.values == [("/files/a", b"1")]
    assert str(bench.error).startswith("b.csv: ")


async def test_a_trial_names_a_file_that_is_being_written(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    file = bench.path / "a.csv"
    write(file, CSV.format(1))
    scan = bench.source.scan

    async def scan_and_append(sink: Sink) -> float:
        wait_s = await scan(sink)
        with file.open("a") as more:
            more.write("2026-01-01T01:00:00Z,2\n")
        return wait_s

    monkeypatch.setattr(bench.source, "scan", scan_and_append)
    await bench.source.try_once(bench.sink)
    assert (bench.values, bench.error) == ([], "a.csv is being written")


async def test_a_directory_that_appears_is_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "later")
    await bench.looks(1)
    (tmp_path / "later").mkdir()
    write(tmp_path / "later" / "a.csv", CSV.format(1))
    assert await bench.source.scan(bench.sink) == 1.0
    await bench.looks(1)
    assert bench.values == [("/files/a", b"1")]
    assert bench.error is None


@pytest.mark.parametrize(
    "name", [".a.csv", "~a.csv", "#a.csv#", "_a.csv", "a.csv~", "a.csv.tmp", "a.part", "a.json", "a"]
)
def test_hidden_and_temporary_names_are_ignored(name: str) -> None:
    assert not is_data(name)
    assert is_data("a.csv")
    assert is_data("a.b.Parquet")


async def test_entries_other_than_regular_files_are_ignored(bench: Bench) -> None:
    (bench.path / "directory.csv").mkdir()
    (bench.path / "nothing.csv").symlink_to(bench.path / "not there")
    os.mkfifo(bench.path / "pipe.csv")
    target = bench.path / "..data"
    target.write_text(CSV.format(1))
    (bench.path / "link.csv").symlink_to(target)
    await bench.looks()
    assert bench.values == [("/files/link", b"1")]
    assert bench.error is None


async def test_a_name_that_is_no_endpoint_is_reported(bench: Bench) -> None:
    write(bench.path / "%%.csv", CSV.format(1))
    write(bench.path / "c.csv", CSV.format(1))
    await bench.looks()
    assert bench.values == [("/files/c", b"1")]
    assert "'/files/%%' is not an endpoint name" in str(bench.error)
    assert bench.failures == 1


async def test_characters_that_no_name_has_are_left_out_of_a_file_s(bench: Bench) -> None:
    write(bench.path / "Wind Onshore [MW].csv", CSV.format(1))
    (bench.path / os.fsdecode(b"a\xff.csv")).write_text(CSV.format(2))
    await bench.looks()
    assert bench.values == [("/files/Wind-Onshore-MW", b"1"), ("/files/a", b"2")]


async def test_every_bad_file_is_named(bench: Bench) -> None:
    for index in range(45):
        write(bench.path / f"bad_{index:02}.csv", "no table\n")
    await bench.looks()
    errors = bench.source.health.errors
    assert [error.partition(":")[0] for error in errors] == [f"bad_{index:02}.csv" for index in range(45)]


async def test_files_are_converted_by_a_mapping_and_the_last_written_decides(tmp_path: Path) -> None:
    made = Bench(
        tmp_path,
        mapping=Mapping(delimiter=";", time="t", value="*", name="{column}"),
        unit="MW",
        resolution="PT1H",
    )
    for name, value, modified in (("b.txt", 1, 200), ("a.tsv", 2, 100)):
        (made.path / name).write_text(f"t;Wind\n2026-01-01T00:00Z;{value}\n")
        os.utime(made.path / name, (modified, modified))
    await made.looks()
    assert made.values[-1] == ("/files/Wind", b"1")
    (made.path / "c.txt").write_text("t,Wind\n")
    await made.looks()
    assert "c.txt: there is no column 't', but t,Wind (delimiter = ',')" in str(made.error)


async def test_two_files_of_one_endpoint_do_not_overwrite_each_other(bench: Bench) -> None:
    write(bench.path / "a.CSV", CSV.format(1))
    write(bench.path / "a.csv", CSV.format(2))
    await bench.looks(4)
    assert bench.values == [("/files/a", b"1")]
    assert (bench.error, bench.failures) == ("a.csv: a.CSV is /files/a already", 1)
    (bench.path / "a.CSV").unlink()
    await bench.looks(1)
    assert bench.values == [("/files/a", b"1"), ("/files/a", b"2")]


async def test_a_shadowed_file_is_ingested_once_the_other_is_removed(bench: Bench) -> None:
    write(bench.path / "a.csv", CSV.format(1))
    parquet(bench.path / "a.parquet", {"time": pa.array(["2026-01-01T00:00:00Z"]), "value": pa.array([2])})
    for _ in range(2):
        await bench.looks(3)
        assert bench.values[-1] == ("/files/a", b"1")
        assert "a.parquet: a.csv is /files/a already" in str(bench.error)
        (bench.path / "a.csv").unlink()
        await bench.looks(3)
        assert bench.values[-1] == ("/files/a", b"2")
        assert bench.error is None
        write(bench.path / "a.csv", CSV.format(1))


async def test_a_file_that_never_becomes_stable_is_reported(bench: Bench) -> None:
    write(bench.path / "good.csv", CSV.format(1))
    for number in range(30):
        write(bench.path / "busy.csv", CSV.format(number))
        await bench.looks(1)
        bench.clock.advance(1)
    assert bench.error is None
    for number in range(35):
        write(bench.path / "busy.csv", CSV.format(number))
        await bench.looks(1)
        bench.clock.advance(1)
    assert "busy.csv: it changes between any two polls" in str(bench.error)
    assert bench.failures == 1
    assert bench.values == [("/files/good", b"1")]
    await bench.looks(2)
    assert bench.error is None
    assert len(bench.stored) == 2


async def test_size_and_number_of_files_are_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_bytes=100, max_files=2)
    write(tmp_path / "a.csv", CSV.format(1) + " " * 100)
    for name in "bcd":
        write(tmp_path / f"{name}.csv", CSV.format(1))
    await bench.looks(3)
    assert bench.values == [("/files/b", b"1")]
    assert bench.error == "a.csv: the file has more than 100 bytes (and 1 more)"
    assert bench.failures == 2
    (tmp_path / "a.csv").unlink()
    await bench.looks()
    assert bench.error == "more than 2 files: the others are ignored"


async def test_a_link_is_followed_within_the_directory_only(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the first line of another's file")
    (tmp_path / "in").mkdir()
    bench = Bench(tmp_path / "in")
    write(bench.path / "_data", CSV.format(1))
    (bench.path / "a.csv").symlink_to("../secret")
    (bench.path / "b.csv").symlink_to("_data")
    await bench.looks()
    assert bench.values == [("/files/b", b"1")]
    assert bench.error == "a.csv: it is a symbolic link out of the directory"


# Parquet


def parquet(path: Path, columns: dict[str, pa.Array], **more: Any) -> None:
    pq.write_table(pa.table(columns), path.with_name(".part"), **more)
    path.with_name(".part").replace(path)


INSTANTS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)]
NAIVE = [instant.replace(tzinfo=None) for instant in INSTANTS]
EXPECTED = b'{"unit":"MW","resolution":"PT1H","points":[{"time":"2026-01-01T00:00:00Z","value":81.2},{"time":"2026-01-01T01:00:00Z","value":null}]}'  # noqa: E501


@pytest.mark.parametrize(
    "times",
    [
        pa.array(INSTANTS, pa.timestamp("ns", "UTC")),
        pa.array(
            [instant.astimezone(timezone(timedelta(hours=2))) for instant in INSTANTS], pa.timestamp("ms", "+02:00")
        ),
        pa.array(NAIVE, pa.timestamp("s")),
        pa.array(["2026-01-01T00:00:00Z", "2026-01-01T02:00:00+01:00"]),
        pa.array(["2026-01-01T00:00", "2026-01-01 01:00"]).dictionary_encode(),
    ],
    ids=["utc", "offset", "naive", "text", "dictionary"],
)
@pytest.mark.parametrize(
    "values",
    [
        pa.array([81.2, None]),
        pa.array([81.2, None], pa.float32()),
        pa.array([Decimal("81.20"), None], pa.decimal128(8, 2)),
    ],
    ids=["float64", "float32", "decimal"],
)
async def test_equivalent_parquet_types_make_the_same_table(bench: Bench, times: pa.Array, values: pa.Array) -> None:
    parquet(bench.path / "a.parquet", {"value": values, "time": times, "more": pa.array([1, 2])}, compression="zstd")
    await bench.looks()
    assert bench.error is None
    assert bench.stored[0].content == EXPECTED


async def test_naive_timestamps_are_local_times_of_the_zone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, zone="Europe/Athens", unit=None)
    hours = [datetime(2026, 10, 25, hour) for hour in (2, 3, 3, 4)]  # noqa: DTZ001
    parquet(
        tmp_path / "a.parquet", {"time": pa.array(hours), "value": pa.array([1, 2, 3, 4]), "unit": pa.array(["kW"] * 4)}
    )
    await bench.looks()
    assert bench.error is None
    assert (bench.stored[0].label("unit"), bench.stored[0].content.count(b"2026-10-25T0")) == ("kW", 3)
    spring = pa.array([datetime(2026, 3, 29, 3)])  # noqa: DTZ001
    parquet(tmp_path / "a.parquet", {"time": spring, "value": pa.array([1]), "unit": pa.array(["kW"])})
    await bench.looks()
    assert "row 1: 2026-03-29T03:00 does not exist in Europe/Athens" in str(bench.error)


def _table(time: Any, value: Any) -> Callable[[Path], None]:
    return lambda path: parquet(path, {"time": pa.array(time), "value": pa.array(value)})


def _cut(path: Path) -> None:
    _table(INSTANTS, [1, 2])(path)
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: path.write_bytes(b"time,value\n"), "this is a text of cells, not Parquet (key: format)"),
        (_cut, "not Parquet, or incomplete"),
        (lambda path: parquet(path, {"time": pa.array(INSTANTS)}), "there is no column 'value', but time"),
        (_table(INSTANTS, ["1", "x"]), "row 2: 'x' is no number"),
        (_table([1, 2], [1, 2]), "row 1: '1' is not a time like 2026-01-01T00:00 (key: time_format, 'epoch' or"),
        (_table([INSTANTS[0], None], [1, 2]), "row 2: the time is empty"),
        (
            _table(pa.array([1_767_225_600_000_000_001], pa.timestamp("ns", "UTC")), [1]),
            "row 1: '2026-01-01 00:00:00.000000001Z' has a fraction of a second: round the times",
        ),
        (_table(INSTANTS[:0], [1][:0]), ""),
    ],
)
async def test_an_invalid_parquet_file_is_reported_with_its_row(
    bench: Bench, make: Callable[[Path], None], error: str
) -> None:
    make(bench.path / "a.parquet")
    await bench.looks()
    assert not bench.stored
    assert str(bench.error).startswith(f"a.parquet: {error}")


async def test_without_pyarrow_csv_works_and_parquet_reports_the_missing_package(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "services.data.files.columnar", raising=False)
    (bench.path / "a.parquet").write_bytes(b"PAR1")
    write(bench.path / "b.csv", CSV.format(1))
    await bench.looks()
    assert bench.values == [("/files/b", b"1")]
    assert bench.error == "a.parquet: reading Parquet needs the package pyarrow, which is not installed"
