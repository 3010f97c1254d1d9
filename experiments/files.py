"""``make bench-files``: the CPU of converting tables to series, of that of the csv module reading the same text.

A long table of 100 series, a wide one of 20 columns, and one in the notation of the European mainland. The library
reads all rows into a list, with the interpreter's garbage collector as it is by default, and without (``floor``); the
conversion runs without, as in the process that reads files. A wide table has a point in each cell, and is compared by
the point. ``QUICK=1``: fewer rows.
"""

import csv
import gc
import gzip
import io
import random
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from services.data.errors import DataError
from services.data.files.convert import convert
from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.target import FileTarget
from services.data.kinds.series import Declared, EndpointDeclaration, LocalClock, iso_seconds
from tests.bench.figures import figure
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.support.commandline import parser
from tests.support.size import sized

ROWS, ROUNDS = sized((1_000_000, 5), (200_000, 3), (2_000, 1))
SERIES: Final = 100
COLUMNS: Final = 20
START_S: Final = 1_767_225_600
GOAL: Final = 2.0


class Table(NamedTuple):
    """A text, and its mapping."""

    name: str
    text: str
    mapping: Mapping


def tables() -> list[Table]:
    """Return the tables; the wide ones have as many cells as the long one."""
    values = random.Random(1)
    long = "endpoint,time,value\n" + "".join(
        f"s{row % SERIES},{iso_seconds(START_S + row // SERIES * 60)},{values.uniform(0, 300):.2f}\n"
        for row in range(ROWS)
    )
    rows = [
        (START_S + row * 60, [f"{values.uniform(0, 3000):.2f}" for _ in range(COLUMNS)])
        for row in range(ROWS // COLUMNS)
    ]
    heads = [f"Unit {number} [MW]" for number in range(COLUMNS)]
    wide = f"time,{','.join(heads)}\n" + "".join(f"{iso_seconds(at)},{','.join(row)}\n" for at, row in rows)
    local = f"Zeit;{';'.join(heads)}\n" + "".join(
        f"{time.strftime('%d.%m.%Y %H:%M', time.gmtime(at))};{';'.join(row).replace('.', ',')}\n" for at, row in rows
    )
    return [
        Table("long", long, Mapping(name="{endpoint}")),
        Table("wide", wide, Mapping(value="*")),
        Table(
            "local notation",
            local,
            Mapping(value="*", time="Zeit", time_format="%d.%m.%Y %H:%M", decimal=",", delimiter=";"),
        ),
    ]


HOSTILE_S: Final = 1.0
"""Goal of a hostile file, in seconds."""
BOMB_BYTES: Final = 200 * 1024 * 1024


def hostile() -> dict[str, InputFile]:
    """Return files made to exhaust the reader."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made, made.open("a.csv", "w") as member:
        for _ in range(BOMB_BYTES // len(_MEBIBYTE)):
            member.write(_MEBIBYTE)
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    xml = f'<!DOCTYPE r [<!ENTITY e0 "x">{entities}]><r>&e9;</r>'
    return {
        "zip of 200 MiB": InputFile("bomb.zip", archive.getvalue()),
        "gzip of 200 MiB": InputFile("bomb.csv.gz", gzip.compress(_MEBIBYTE * 200)),
        "XML entities": InputFile("a.xml", xml.encode()),
        "external entity": InputFile("a.xml", b'<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><r>&e;</r>'),
        "deep JSON": InputFile("a.json", b"[" * 1_000_000),
        "a billion columns": InputFile("a.csv", b"," * 100_000_000),
    }


_MEBIBYTE: Final = b"2026-01-01T00:00Z,1.0\n" * (1024 * 1024 // 22)


def refusal_s(file: InputFile) -> float:
    """Return the seconds until a file is refused."""
    declared = Declared(None, EndpointDeclaration("MW", "PT1M"), {}, LocalClock("UTC"))
    begin = time.perf_counter()
    try:
        convert(file, Mapping(value="*"), FileTarget(declared, "/bench"))
    except DataError:
        return time.perf_counter() - begin
    raise AssertionError(f"{file.name} is accepted")


def cpu_s(work: Callable[[], object], *, collector: bool = False) -> float:
    """Return the CPU seconds of one run, with or without the garbage collector."""
    gc.collect()
    if not collector:
        gc.disable()
    try:
        before = time.process_time()
        work()
        return time.process_time() - before
    finally:
        gc.enable()


def measure(table: Table) -> tuple[float, float, float]:
    """Return the CPU seconds of the library, of the library without the collector, and of the conversion."""
    body = table.text.encode()
    declared = Declared(None, EndpointDeclaration("MW", "PT1M"), {}, LocalClock("UTC"))

    def read() -> list[list[str]]:
        return list(csv.reader(io.StringIO(body.decode(), newline=""), delimiter=table.mapping.delimiter))

    def made() -> object:
        return convert(InputFile("table.csv", body), table.mapping, FileTarget(declared, "/bench"))

    return cpu_s(read, collector=True), cpu_s(read), cpu_s(made)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/files.json and print the figures."""
    parser(__spec__, __doc__, report="build/bench/files.json", quick="fewer rows").parse_args(argv)
    figures = {}
    with Report(3 * ROUNDS) as report:
        for table in tables():
            rounds = []
            for number in range(ROUNDS):
                report.step(f"{table.name}: round {number + 1}")
                rounds.append(measure(table))
            figures[table.name] = {
                "library_s": figure([library for library, _, _ in rounds]),
                "floor_s": figure([floor for _, floor, _ in rounds]),
                "convert_s": figure([made for _, _, made in rounds]),
                "ratio": figure([made / library for library, _, made in rounds]),
                "of_floor": figure([made / floor for _, floor, made in rounds]),
                "point_us": figure([made / ROWS * 1e6 for _, _, made in rounds]),
            }
        long = figures.pop("long")
        found = [Goal("long: CPU of a conversion, of the library's reading", "x", GOAL, long["ratio"].median)] + [
            Goal(
                f"{name}: CPU of a point, of one of the long table",
                "x",
                1.0,
                of["point_us"].median / long["point_us"].median,
            )
            for name, of in figures.items()
        ]
        figures = {"long": long, **figures}
        refused = {name: refusal_s(file) for name, file in hostile().items()}
        found += [Goal(f"seconds until refused: {name}", "s", HOSTILE_S, took) for name, took in refused.items()]
        report.medians(figures)
        report.goals(found)
    print(f"written: {write('files', {'rows': ROWS, 'tables': figures}, found)}")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main())
