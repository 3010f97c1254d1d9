"""The equations of the sizing model as sums of terms with unknown constants, and their points from measurements. Pure.

``results`` are what ``experiments.sizing`` measures: kind, configuration, and what ``experiments.sizing_measure``
returned for it. Symbols are those of ``learning.sizing.kafka``: n brokers, r replicas, g groups, p partitions.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from experiments.sizing_fit import CONSTANT, Form, Point
from learning.sizing.kafka import FILES_OF_SEGMENT, THESIS_ELECTION_S, THESIS_REPLICATION_S

Result = Mapping[str, Any]
MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Law:
    """One equation, or a part of one, as it is put to the test."""

    equation: str
    quantity: str
    unit: str
    form: Form
    points: Callable[[Sequence[Result]], Iterator[Point]]
    on_one_machine: str
    """What one machine with few cores does to the measurement."""
    timed: bool
    """Whether it rests on elapsed time, which other programs lengthen, or on bytes and CPU time alone."""


def _of(results: Sequence[Result], kind: str) -> Iterator[tuple[str, Mapping[str, float], Any]]:
    for result in results:
        if result["kind"] == kind:
            yield result["name"], result["configuration"], result["found"]


def _replication(load: str, fetchers: int = 1) -> Callable[[Sequence[Result]], Iterator[Point]]:
    def points(results: Sequence[Result]) -> Iterator[Point]:
        for name, at, blocks in _of(results, "latency"):
            if at["fetchers"] != fetchers:
                continue
            n, r, p = at["n"], at["r"], at["p"]
            # Of the partitions that get a record: one broker's, or all.
            copies = (r - 1) * p / (n if load == "one" else 1)
            terms = {_FETCHED: (r - 1) * p / (n * (n - 1)), _COPIES: copies, _LED: p / n}
            for block in blocks:
                yield Point(name, terms, max(0.0, block[load]["delay_s"]))

    return points


def _replication_cpu(results: Sequence[Result]) -> Iterator[Point]:
    for name, at, blocks in _of(results, "latency"):
        if at["fetchers"] == 1:
            for block in blocks:
                yield Point(name, {_COPIES: (at["r"] - 1) * at["p"], "p": at["p"]}, block["cpu_s"])


def _held(what: str) -> Callable[[Sequence[Result]], Iterator[Point]]:
    def points(results: Sequence[Result]) -> Iterator[Point]:
        for name, at, blocks in _of(results, "latency"):
            if values := [block[what] for block in blocks if what in block]:  # earlier reports lack it
                yield Point(name, {_STORED: at["p"] * at["r"] / at["n"]}, statistics.median(values))

    return points


def _loss(value: Callable[[Mapping[str, float]], float]) -> Callable[[Sequence[Result]], Iterator[Point]]:
    def points(results: Sequence[Result]) -> Iterator[Point]:
        for name, at, found in _of(results, "broker"):
            yield Point(name, {_LED: found["led"], _TIMEOUT: at["session_s"]}, value(found))

    return points


def _controller(results: Sequence[Result]) -> Iterator[Point]:
    for name, at, found in _of(results, "controller"):
        yield Point(name, {_REPLICAS: at["p"] * at["r"]}, found["away_s"])


def _bytes(value: Callable[[Mapping[str, float]], float]) -> Callable[[Sequence[Result]], Iterator[Point]]:
    def points(results: Sequence[Result]) -> Iterator[Point]:
        for name, at, found in _of(results, "transfer"):
            if at["p"] % at["n"]:
                continue  # equations 4 and 5 are about partitions that are spread evenly
            n, r, g = at["n"], at["r"], at["g"]
            size = found["bytes"]
            terms = {
                "T r / n": size * r / n,
                "T (r + g) / n": size * (r + g) / n,
                "T (2 r - 1 + g) / n": size * (2 * r - 1 + g) / n,
                "T max(r, r - 1 + g) / n": size * max(r, r - 1 + g) / n,
            }
            yield Point(name, terms, statistics.mean(map(value, found["brokers"].values())))

    return points


def _both(broker: Mapping[str, float]) -> float:
    return incoming(broker) + outgoing(broker)


def incoming(broker: Mapping[str, float]) -> float:
    """Return what a broker has received."""
    return broker["from_clients"] + broker["from_brokers"]


def outgoing(broker: Mapping[str, float]) -> float:
    """Return what a broker has sent."""
    return broker["to_clients"] + broker["to_brokers"]


def _busier(broker: Mapping[str, float]) -> float:
    return max(incoming(broker), outgoing(broker))


def _throughput(value: Callable[[Mapping[str, Any]], float]) -> Callable[[Sequence[Result]], Iterator[Point]]:
    def points(results: Sequence[Result]) -> Iterator[Point]:
        for name, at, found in _of(results, "transfer"):
            if at["p"] % at["n"] == 0:
                n, r, g = at["n"], at["r"], at["g"]
                terms = {"r / n": r / n, "g / n": g / n, "r": r, "g": g}
                yield Point(name, terms, value(found) / (found["bytes"] / MEGABYTE))

    return points


def _cpu_of_broker(found: Mapping[str, Any]) -> float:
    return float(statistics.mean(broker["cpu_s"] for broker in found["brokers"].values()))


def _shares(results: Sequence[Result]) -> Iterator[Point]:
    for name, at, found in _of(results, "transfer"):
        n, p = at["n"], at["p"]
        sent = [broker["from_clients"] for broker in found["brokers"].values()]
        yield Point(name, {"ceil(p / n) / p": ceil(p / n) / p, "1 / n": 1 / n}, max(sent) / sum(sent))


def _consumers(results: Sequence[Result]) -> Iterator[Point]:
    for name, at, found in _of(results, "consumers"):
        terms = {"records": found["records"], "consumers": at["k"], "partitions": at["p"]}
        yield Point(name, terms, found["cpu_s"])


_FETCHED: Final = "(r - 1) p / (n (n - 1))"
_COPIES: Final = "(r - 1) p"
_LED: Final = "p / n"
_REPLICAS: Final = "p r"
_STORED: Final = "p r / n"
_TIMEOUT: Final = "session timeout"
LAWS: Final = {
    "3": Law(
        "3",
        "seconds for a megabyte of the topic",
        "s/MB",
        Form("r / n", ("g / n",), rival=(CONSTANT, "r", "g")),
        _throughput(lambda found: found["seconds"]),
        "all brokers share the same disk, cores and loopback, so that n servers have the throughput of one",
        timed=True,
    ),
    "3, CPU": Law(
        "3, CPU",
        "CPU seconds of a broker for a megabyte of the topic",
        "s/MB",
        Form("r / n", ("g / n",), rival=(CONSTANT, "r", "g")),
        _throughput(_cpu_of_broker),
        "CPU time is each broker's own, so that this is what brokers on machines of their own would show",
        timed=False,
    ),
    "4": Law(
        "4",
        "bytes that a broker writes to its disk",
        "B",
        Form("T r / n", expected=1.0),
        _bytes(lambda broker: broker["disk"]),
        "bytes are counted for each process, so that sharing a disk does not matter",
        timed=False,
    ),
    "5": Law(
        "5",
        "bytes that a broker receives and sends",
        "B",
        Form("T (r + g) / n", expected=1.0, rival=("T (2 r - 1 + g) / n",)),
        _bytes(_both),
        "bytes are counted for each pair of processes, so that sharing the loopback does not matter",
        timed=False,
    ),
    "5, one way": Law(
        "5, one way",
        "bytes in the busier direction of a broker",
        "B",
        Form("T max(r, r - 1 + g) / n", expected=1.0),
        _bytes(_busier),
        "as for equation 5",
        timed=False,
    ),
    "6": Law(
        "6",
        "share of the busiest broker in what producers send",
        "",
        Form("ceil(p / n) / p", expected=1.0, rival=("1 / n",)),
        _shares,
        "bytes are counted for each process",
        timed=False,
    ),
    "9": Law(
        "9",
        "CPU seconds of consumers that share the partitions",
        "s",
        Form("records", ("consumers",), rival=("records", "partitions")),
        _consumers,
        "all consumers share one process; with a core each, as many partitions as consumers share the time",
        timed=False,
    ),
    "10": Law(
        "10",
        "delay of a record by replication, one leader at a time",
        "s",
        Form(_FETCHED, (CONSTANT,), float(THESIS_REPLICATION_S), rival=(CONSTANT, _COPIES)),
        _replication("one"),
        "the followers share the cores: they copy one after the other what the equation has them copy in parallel",
        timed=True,
    ),
    "10, all leaders": Law(
        "10, all leaders",
        "delay of a record by replication, all leaders at the same time",
        "s",
        Form(_FETCHED, (CONSTANT,), float(THESIS_REPLICATION_S), rival=(CONSTANT, _COPIES)),
        _replication("all"),
        "as for one leader, and the leaders share the cores, too",
        timed=True,
    ),
    "10, idle": Law(
        "10, idle",
        "delay of a record beside partitions without traffic",
        "s",
        Form(_FETCHED, (CONSTANT,), 0.0),
        _replication("idle"),
        "a fetch names only partitions that have changed: idle ones cost it nothing",
        timed=True,
    ),
    "10, CPU": Law(
        "10, CPU",
        "CPU seconds of all brokers for a record to every partition",
        "s",
        Form(_COPIES, ("p", CONSTANT)),
        _replication_cpu,
        "CPU time does not depend on what else runs, as elapsed time does",
        timed=False,
    ),
    "11": Law(
        "11",
        "time until the last partition of a killed broker has a leader",
        "s",
        Form(_LED, (_TIMEOUT, CONSTANT), float(THESIS_ELECTION_S)),
        _loss(lambda found: found["last_s"]),
        "the controllers wait for the cores that the brokers use",
        timed=True,
    ),
    "11, elections": Law(
        "11, elections",
        "time from the first partition that has a leader again to the last",
        "s",
        Form(_LED, (CONSTANT,), float(THESIS_ELECTION_S)),
        _loss(lambda found: found["last_s"] - found["first_s"]),
        "as for equation 11",
        timed=True,
    ),
    "11, controller": Law(
        "11, controller",
        "time until another controller answers",
        "s",
        Form(_REPLICAS, (CONSTANT,), 0.0),
        _controller,
        "a quorum has all metadata (t_meta = 0); a traditional controller cannot be tested: Kafka 4 has none",
        timed=True,
    ),
    "5.3, files": Law(
        "5.3, files",
        "open files of a broker for a topic; each replica has one segment",
        "",
        Form(_STORED, expected=float(FILES_OF_SEGMENT)),
        _held("topic_files"),
        "files are counted for each process",
        timed=False,
    ),
    "5.3, mappings": Law(
        "5.3, mappings",
        "memory mappings of a broker for a topic, which vm.max_map_count limits",
        "",
        Form(_STORED),
        _held("topic_mappings"),
        "mappings are counted for each process",
        timed=False,
    ),
}
"""By the name in the report."""


def fetcher_ratios(results: Sequence[Result], load: str = "all") -> dict[str, float]:
    """Return the delay with four replica fetchers over that with one, by configuration (1: fetchers do not matter)."""
    found: dict[str, dict[float, float]] = {}
    for _, at, blocks in _of(results, "latency"):
        name = f"n={at['n']:g} r={at['r']:g} p={at['p']:g}"
        found.setdefault(name, {})[at["fetchers"]] = statistics.median(block[load]["delay_s"] for block in blocks)
    return {name: of[4] / of[1] for name, of in found.items() if 1 in of and 4 in of and of[1] > 0}


def single_partition_rates(results: Sequence[Result]) -> dict[str, float]:
    """Return T_P (MB/s, acks=all) by configuration, and T_C (MB/s and records per CPU second of one consumer)."""
    found = {}
    for name, _, each in _of(results, "single"):
        found[f"T_P, MB/s: {name}"] = each["bytes"] / MEGABYTE / each["seconds"]
    for name, at, each in _of(results, "consumers"):
        if at["k"] == at["p"] == 1:
            found[f"T_C, records/s: {name}"] = each["records"] / each["seconds"]
            found[f"T_C, records per CPU second: {name}"] = each["records"] / each["cpu_s"]
    return found


def write_gaps(results: Sequence[Result]) -> list[float]:
    """Return the longest wait of a write while a controller was lost, in seconds, of every measurement."""
    return [found["longest_write_s"] for _, _, found in _of(results, "controller")]
