"""The numbers in docs/sizing.md are computed ones."""

from pathlib import Path
from typing import Final

import pytest

from learning.sizing import even, kafka
from tests.unit.learning.sizing import printed

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
    limits = next([float(cell) for cell in row[2:]] for row in ROWS if row[:2] == ["bound", "topics"])
    entries = {
        (row[0], int(row[1]), limit): int(cell)
        for row in below("bound", "topics")
        for limit, cell in zip(limits, row[2:], strict=True)
        if cell
    }
    assert entries == {entry[:3]: entry.printed for entry in printed.ENTRIES}
    assert entries == {entry[:3]: printed.compute(entry) for entry in printed.ENTRIES}


def test_uniform_sizes_and_imbalances() -> None:
    for row, (count, sizes) in zip(below("partitions", "uniform sizes")[:6], printed.UNIFORM.items(), strict=True):
        assert int(row[0]) == count
        assert row[1] == " ".join(map(str, sizes)) == " ".join(str(n) for n in TWELVE if count % n == 0)
        more = [n for n in TWELVE if n >= 3 and n not in sizes and kafka.shares_replicas(count, 3, n)]
        assert row[2] == " ".join(map(str, more))
        worst, at = even.worst_imbalance(count, TWELVE)
        assert float(row[3]) == pytest.approx(even.mean_imbalance(count, TWELVE), abs=0.0006)
        assert row[4] == f"{worst:.3f}, {at}"
