"""The numbers behind the tables and figures of thesis and paper, as rows for CSV files. Pure.

The paper leaves r and B of its figure 2, r and c of figure 3, and B and c of figure 4 unstated. ``READINGS`` has three
choices. In each, BroMin uses more brokers than MS-CNFL from 401 consumers on, as the text of figure 2 says; in the
first two also for more than 10 replicas, as that of figure 4 says.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from experiments.paper import program as paper
from experiments.paper import rules
from experiments.paper.program import Point, Program
from learning.sizing import even, kafka
from tests.unit.learning.sizing import printed

SIZES: Final = tuple(range(1, 13))
"""Cluster sizes of the thesis' figures 70 and 71."""
MOST_PARTITIONS: Final = 120
GRADED: Final = (12, 24, 30, 36, 48, 60, 72, 120, 128, 256)
REPLICATION_MS: Final = {"printed": 1.0, "cited report": 0.02}
"""l_r: the paper's value, and that of the report which it cites for it (20 ms for 1,000 partitions)."""
METRICS: Final = ("latency", "unavailability", "OS load")
UNITS: Final = {"latency": "ms", "unavailability": "ms", "OS load": "handles per broker"}


class Reading(NamedTuple):
    """A choice of what the paper leaves unstated."""

    name: str
    brokers: int
    replicas: int
    consumers: int


READINGS: Final = (
    Reading("the smallest that agrees with figures 2 and 4", 20, 5, 200),
    Reading("the largest that agrees with them", 40, 10, 400),
    Reading("three replicas, as production has", 12, 3, 120),
)


class Table(NamedTuple):
    """Rows of one file."""

    name: str
    headings: tuple[str, ...]
    rows: list[tuple[object, ...]]

    def as_csv(self) -> str:
        """Return the table as CSV with a line of headings."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows([_short(cell) for cell in row] for row in self.rows)
        return out.getvalue()


class Curve(NamedTuple):
    """One method at one point of a figure: partitions, brokers, and the metrics of panels c to e."""

    partitions: float
    brokers: float
    metrics: dict[str, float]


def all_tables() -> Iterator[Table]:
    """Yield every table, in the order of thesis and paper."""
    yield infrastructure()
    yield bounds()
    yield uniform()
    yield graded()
    yield heat_map()
    yield example()
    for figure in SWEEPS:
        for reading in READINGS:
            yield paper_figure(figure, reading)
    yield replication_times()


def infrastructure(servers: int = 3, replicas: int = 3, groups: int = 2) -> Table:
    """Return what a server carries, as shares of the topic's throughput (thesis, figure 69)."""
    produced = kafka.storage_per_server(1, servers, 1).limit
    stored, network = (
        kafka.storage_per_server(1, servers, replicas),
        kafka.network_per_server(1, servers, replicas, groups),
    )
    rows: list[tuple[object, ...]] = [
        ("from producers", "T_T / n", _float(produced)),
        ("from leaders", "T_T (r - 1) / n", _float(stored.limit) - _float(produced)),
        ("to storage (eq. 4)", "T_T r / n", _float(stored.limit)),
        ("to consumers", "T_T g / n", _float(network.limit) - _float(stored.limit)),
        ("network (eq. 5)", "T_T (r + g) / n", _float(network.limit)),
        ("to followers, in no equation", "T_T (r - 1) / n", _float(stored.limit) - _float(produced)),
    ]
    return Table(
        "thesis-69-infrastructure", ("flow of a server", "formula", f"n={servers} r={replicas} g={groups}"), rows
    )


def bounds() -> Table:
    """Return the 22 entries of the three tables of section 5.3, printed beside computed."""
    rows: list[tuple[object, ...]] = [(*entry, printed.compute(entry)) for entry in printed.ENTRIES]
    return Table("thesis-5.3-bounds", ("table", "topics", "limit in s", "printed", "computed"), rows)


def uniform() -> Table:
    """Return the claimed sets of uniform cluster sizes beside the computed ones, and those that equation 7 adds."""
    rows: list[tuple[object, ...]] = []
    for count, sizes in printed.UNIFORM.items():
        found = even.uniform_sizes(count, SIZES)
        more = [n for n in SIZES if kafka.shares_replicas(count, 3, n) and n not in found and n >= 3]
        rows.append((count, _join(sizes), _join(found), _join(more)))
    return Table("thesis-5.3-uniform", ("partitions", "printed", "computed", "also by eq. 7, r=3"), rows)


def graded() -> Table:
    """Return the mean and the worst imbalance of the counts over cluster sizes 1 to 12."""
    rows: list[tuple[object, ...]] = []
    for count in GRADED:
        worst, at = even.worst_imbalance(count, SIZES)
        rows.append((count, len(even.uniform_sizes(count, SIZES)), even.mean_imbalance(count, SIZES), worst, at))
    return Table("imbalance", ("partitions", "uniform sizes", "mean", "worst", "at"), rows)


def heat_map() -> Table:
    """Return the imbalance of every count and size (thesis, figures 70 and 71): 1 where the size is uniform."""
    rows: list[tuple[object, ...]] = [
        (count, *(even.imbalance(count, size) for size in SIZES)) for count in range(1, MOST_PARTITIONS + 1)
    ]
    return Table("thesis-70-71-imbalance", ("partitions", *(f"n={size}" for size in SIZES)), rows)


def example() -> Table:
    """Return a placement of the paper's figure 1: four partitions in three replicas on four brokers, leader first."""
    rows: list[tuple[object, ...]] = [
        (partition, *((partition + replica) % 4 for replica in range(3))) for partition in range(4)
    ]
    return Table("paper-1-example", ("partition", "leader", "follower", "follower"), rows)


SWEEPS: Final = {
    2: ("consumers", "c"),
    3: ("brokers", "B"),
    4: ("replicas", "r"),
}
"""The varied input of each of the paper's figures 2 to 4."""


def programs(figure: int, reading: Reading) -> Iterator[tuple[int, Program]]:
    """Yield the values of the varied input with their programs."""
    brokers, replicas, consumers = reading.brokers, reading.replicas, reading.consumers
    # Beyond c = 200 B / r there is no solution: latency admits no more partitions.
    most = 200 * brokers // replicas
    values: Iterable[int] = {
        2: range(most // 8, most + 1, most // 32),
        3: range(replicas, 5 * replicas * 2 + 1),
        4: range(1, brokers + 1),
    }[figure]
    for value in values:
        changed = {2: (value, replicas, brokers), 3: (consumers, replicas, value), 4: (consumers, value, brokers)}[
            figure
        ]
        yield value, Program(*changed)


def curves(program: Program) -> dict[str, Curve | None]:
    """Return the three methods at one point; None where there is no solution. MS-CNFL by its exact means."""
    found: dict[str, Curve | None] = {
        "BroMin": _curve(program, paper.fewest_brokers(program)),
        "BroMax": _curve(program, paper.most_partitions(program)),
    }
    mean = rules.expected(program)
    metrics = {"latency": mean.latency_ms, "unavailability": mean.unavailability_ms, "OS load": mean.handles}
    found["MS-CNFL"] = Curve(mean.partitions, mean.brokers, metrics)
    return found


def paper_figure(figure: int, reading: Reading) -> Table:
    """Return all panels of a figure of the paper, and the probabilities with which MS-CNFL breaks a constraint."""
    _, symbol = SWEEPS[figure]
    methods = ("BroMin", "BroMax", "MS-CNFL")
    columns = [f"{method} {name}" for method in methods for name in ("P", "b", *METRICS)]
    chances = ("latency", "unavailability", "OS load", "P below c", "b below r", "any")
    rows: list[tuple[object, ...]] = []
    for value, program in programs(figure, reading):
        row: list[object] = [value]
        for curve in curves(program).values():
            row += ["", "", "", "", ""] if curve is None else [curve.partitions, curve.brokers, *curve.metrics.values()]
        broken = rules.violations(program)
        row += [broken.latency, broken.unavailability, broken.os_load, broken.throughput, broken.brokers, broken.any]
        rows.append(tuple(row))
    number = READINGS.index(reading) + 1
    return Table(
        f"paper-{figure}-reading-{number}", (symbol, *columns, *(f"MS-CNFL breaks {name}" for name in chances)), rows
    )


def replication_times() -> Table:
    """Return figure 4 for both values of l_r: what binds, and how often the benchmark breaks the latency limit."""
    first = READINGS[0]
    rows: list[tuple[object, ...]] = []
    for name, replication_ms in REPLICATION_MS.items():
        for replicas in range(1, first.brokers + 1):
            program = Program(first.consumers, replicas, first.brokers, replication_ms=replication_ms)
            found = paper.most_partitions(program)
            mean = rules.expected(program)
            rows.append(
                (
                    name,
                    replication_ms,
                    replicas,
                    "" if found is None else found.partitions,
                    program.binding(first.brokers),
                    mean.partitions,
                    mean.latency_ms,
                    rules.violations(program).latency,
                )
            )
    headings = ("l_r", "ms", "r", "BroMax P", "binds", "MS-CNFL P", "MS-CNFL latency", "MS-CNFL breaks latency")
    return Table("paper-replication-time", headings, rows)


def _curve(program: Program, point: Point | None) -> Curve | None:
    return None if point is None else Curve(point.partitions, point.brokers, program.metrics(*point))


def _join(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _float(value: object) -> float:
    return float(value or 0)  # type: ignore[arg-type]  # a limit, which equations 4 and 5 always have


def _short(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float) else cell
