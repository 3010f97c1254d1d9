"""The numbers in docs/sizing.md are computed ones."""

from pathlib import Path
from typing import Final

import pytest

from learning.sizing import even, kafka, paper, printed, rules
from learning.sizing.paper import Program

ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (Path(__file__).parents[4] / "docs" / "sizing.md").read_text().splitlines()
    if line.startswith("|")
]
TWELVE: Final = range(1, 13)


def below(*headings: str) -> list[list[str]]:
    """Return the rows of the table whose first headings these are."""
    start = next(number for number, row in enumerate(ROWS) if tuple(row[: len(headings)]) == headings) + 2
    return [row for row in ROWS[start:] if len(row) == len(ROWS[start])]


def test_entries_of_the_thesis() -> None:
    rows = below("table", "topics")[: len(printed.ENTRIES)]
    for row, entry in zip(rows, printed.ENTRIES, strict=True):
        assert [float(cell) for cell in row[1:4]] == [*entry[1:]]
        assert int(row[5]) == printed.compute(entry)


def test_uniform_sizes_and_imbalances() -> None:
    for row, (count, sizes) in zip(below("partitions", "printed")[:6], printed.UNIFORM.items(), strict=True):
        assert int(row[0]) == count
        assert row[1] == row[2] == " ".join(map(str, sizes))
        more = [n for n in TWELVE if n >= 3 and n not in sizes and kafka.shares_replicas(count, 3, n)]
        assert row[3] == " ".join(map(str, more))
        worst, at = even.worst_imbalance(count, TWELVE)
        assert float(row[4]) == pytest.approx(even.mean_imbalance(count, TWELVE), abs=0.0006)
        assert row[5] == f"{worst:.3f}, {at}"


def test_figures_of_the_paper() -> None:
    consumers, partitions, brokers = ([int(cell) for cell in row[1:]] for row in figure_2())
    for count, *point in zip(consumers, partitions, brokers, strict=True):
        assert paper.fewest_brokers(Program(count, 5, 20)) == tuple(point)
    for row in below("B", "BroMax P, b")[:5]:
        check_point(Program(200, 5, int(row[0])), row[1], row[2].split(",")[0], row[3])
    for row in below("r", "BroMax P, b")[:7]:
        check_point(Program(200, int(row[0]), 20), row[1], row[2], row[3])


def figure_2() -> list[list[str]]:
    start = next(number for number, row in enumerate(ROWS) if row[:2] == ["c", "100"])
    return [ROWS[start], *ROWS[start + 2 : start + 4]]


def check_point(program: Program, most: str, mean: str, latency: str) -> None:
    best, expected = paper.most_partitions(program), rules.expected(program)
    assert best is not None
    assert most == f"{best.partitions}, {best.brokers}"
    assert float(mean) == pytest.approx(expected.partitions, abs=0.051)
    of_ratios, of_means = (float(part) for part in latency.split(";"))
    assert (of_ratios, of_means) == pytest.approx((expected.latency_ms, expected.latency_of_means_ms), abs=0.51)


def test_probabilities_of_the_benchmark() -> None:
    rows = below("B, r, c", "latency")[:6]
    for row in rows:
        brokers, replicas, consumers = map(int, row[0].split(","))
        found = rules.violations(Program(consumers, replicas, brokers))
        exactly = (found.latency, found.unavailability, found.os_load, found.throughput, found.brokers, found.any)
        assert [float(cell) for cell in row[1:]] == pytest.approx(exactly, abs=0.0006)
