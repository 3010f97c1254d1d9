"""The answer of ``diem size`` for people, as rich tables, and for programs, as JSON. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deploy.terminal import amount, plain_table
from learning.sizing import kafka
from learning.sizing.even import EVEN_ENOUGH, NEVER_WORSE
from learning.sizing.kafka import Bound, Side
from learning.sizing.solver import DETECTION
from tools.size.sizing import PartitionCount, Sizing

_SIDES: Final = {Side.AT_LEAST: "at least", Side.AT_MOST: "at most"}
_STRICTEST: Final = "<- binds"


def as_json(sizing: Sizing) -> dict[str, Any]:
    """Return everything as one JSON object; throughputs in bytes/s, times in seconds."""
    solution, limits = sizing.solution, sizing.limits
    return {
        "figures": {name: {"value": value, "origin": origin} for name, (value, origin) in _figures(sizing).items()},
        "feasible": solution.feasible,
        "brokers": sizing.brokers,
        "partitions": sizing.partitions,
        "fewest_partitions": solution.fewest,
        "most_partitions": solution.most,
        "replicas": limits.replicas,
        "min_insync_replicas": limits.in_sync,
        "consumers": max(limits.planned),
        "cores": _round(sizing.utilisation),
        "per_broker": {
            "open_files": _round(sizing.count.open_files),
            "storage_bytes_per_s": _limit(solution.needs[0]),
            "network_bytes_per_s": _limit(solution.needs[1]),
            "network_one_way_bytes_per_s": _round(sizing.duplex),
            "disk_bytes": _round(sizing.disk_bytes),
        },
        "memory": {"publisher_bytes": sizing.count.producer_bytes, "consumer_bytes": sizing.consumer_bytes},
        "after_a_lost_broker": {
            "detection_s": _round(sizing.detection_s),
            "elections_s": _round(sizing.count.elections_s),
            "longest_session_timeout_s": _round(sizing.longest_session_timeout_s),
        },
        "bounds": [_bound(bound) for bound in (*solution.lower, *solution.upper)],
        "elasticities": {str(side): values for side, values in sizing.sensitivity.items()},
        "excesses": [
            {
                "name": each.name,
                "factor": _round(each.factor) if each.factor != float("inf") else None,
                "required": _round(each.required),
                "allowed": _round(each.allowed),
                "unit": each.unit,
                "source": each.source,
            }
            for each in sizing.excesses
        ],
        "counts": [_count(count) for count in sizing.counts],
        "guideline": list(guideline(sizing)),
    }


def render(sizing: Sizing) -> Iterator[RenderableType]:
    """Yield the figures, the cluster, the bounds, the counts side by side, and the guideline."""
    yield _figures_table(sizing)
    yield ""
    yield from _infeasible(sizing)
    yield _cluster_table(sizing)
    yield ""
    yield _bounds_table(sizing)
    for side in Side:
        if values := sizing.sensitivity[side]:
            yield Text(f"  {_SIDES[side]}: {_elastic(values)}", style="dim")
    yield ""
    yield _counts_table(sizing)
    yield ""
    for line in guideline(sizing):
        yield Text(f"- {line}")


def guideline(sizing: Sizing) -> Iterator[str]:
    """Yield the guidelines of the thesis' section 7.2, with the numbers of this workload."""
    limits, solution, count = sizing.limits, sizing.solution, sizing.count
    lost = "no broker" if limits.tolerate == 0 else amount(limits.tolerate, "broker")
    yield (
        f"For the loss of {lost}: {amount(limits.replicas, 'replica')}, min.insync.replicas={limits.in_sync}, "
        "acks=all, unclean.leader.election.enable=false (`diem check --tolerate "
        f"{limits.tolerate}` verifies it, for Kafka's own topics too)"
    )
    yield (
        f"A lost broker's partitions are led again within {sizing.detection_s + count.elections_s:.3g} s: "
        f"{sizing.detection_s:.3g} s until the loss is known, {kafka.DETECTION_TIMEOUTS} x broker.session.timeout.ms, "
        f"and {count.elections_s:.2g} s of elections"
    )
    present = sizing.figures.partitions
    if present is not None and present.value == sizing.partitions:
        yield f"Keep the {sizing.partitions} partitions: another number would move keys"
    else:
        yield (
            f"Create the topic with {amount(sizing.partitions, 'partition')}: even for {_join(count.uniform)} servers, "
            f"{count.mean:.2f} x the mean on average"
        )
    if not sizing.figures.partitioned:
        yield (
            f"Every server reads all updates in this mode, {sizing.utilisation:.2g} of its core: partitions do not "
            "divide that work, a partitioned mode does"
        )
    elif sizing.utilisation > 1:
        yield f"The updates cost {sizing.utilisation:.2g} cores: at least as many servers share them"
    if solution.most is not None and solution.feasible:
        upper = solution.upper[0]
        yield f"Room above: {solution.most:,} partitions until {upper.name} binds ({upper.source})"


def _infeasible(sizing: Sizing) -> Iterator[RenderableType]:
    if not sizing.excesses:
        return
    yield Text(f"It does not fit on {amount(sizing.brokers, 'broker')}:", style="bold red")
    for each in sizing.excesses:
        factor = "without any room" if each.factor == float("inf") else f"{each.factor:.3g} times too much"
        required, allowed = (_value(value, each.unit) for value in (each.required, each.allowed))
        yield Text(f"  {each.name}: {factor}, {required} of {allowed} ({each.source})", style="red")
        if each.name == DETECTION:
            yield Text(f"    {_shorter_timeout(sizing)}", style="red")
    yield ""


def _shorter_timeout(sizing: Sizing) -> str:
    """Return the change of the cluster needed to detect the loss in time."""
    most_ms = int(1000 * sizing.longest_session_timeout_s)
    if most_ms == 0:
        return f"elections alone take {sizing.count.elections_s:.2g} s: fewer partitions, or more brokers"
    needed_s = sizing.detection_s + sizing.count.elections_s
    return (
        f"it needs broker.session.timeout.ms={most_ms} or less at the controllers, and broker.heartbeat.interval.ms of "
        f"a quarter of it at the brokers; or --unavailability {needed_s:.3g} or more"
    )


def _figures(sizing: Sizing) -> dict[str, tuple[float, str]]:
    figures = sizing.figures
    named = {
        "updates_per_s": figures.updates,
        "record_bytes": figures.record_bytes,
        "subscribers": figures.subscribers,
        "endpoints": figures.endpoints,
        "servers": figures.servers,
        "groups": figures.groups,
        "brokers": figures.brokers,
        "partitions": figures.partitions,
        "other_partitions": figures.other_partitions,
        "session_timeout_s": figures.session_timeout_s,
    }
    return {name: (figure.value, figure.origin) for name, figure in named.items() if figure is not None}


def _figures_table(sizing: Sizing) -> Table:
    table = plain_table("workload", "value", "origin", right=("value",), wrap=("origin",))
    for name, (value, origin) in _figures(sizing).items():
        table.add_row(name.replace("_", " ").replace("per s", "/ s"), _number(value), origin)
    return table


def _cluster_table(sizing: Sizing) -> Table:
    solution, limits, count = sizing.solution, sizing.limits, sizing.count
    table = plain_table("cluster", "needed", "by", right=("needed",), wrap=("by",))
    lower = solution.binding(Side.AT_LEAST)
    grown = "there are as many" if sizing.figures.brokers is not None else "the fewest that it fits on"
    table.add_row("brokers", str(sizing.brokers), grown)
    reason = "" if lower is None else f"at least {solution.fewest} by {lower.name}; mean imbalance {count.mean:.3f}"
    table.add_row("partitions", str(sizing.partitions), reason)
    table.add_row("replicas", str(limits.replicas), f"2 N + 1, N = {limits.tolerate} (thesis 7.2)")
    table.add_row("consumers in a group", f"up to {max(limits.planned)}", "the largest planned number of servers")
    rows = (
        ("open files of a broker", f"{count.open_files:,.0f}", "replicas x segments x 3 files"),
        ("storage of a broker", _value(_limit(solution.needs[0]), "per s"), solution.needs[0].source),
        ("network of a broker", _value(_limit(solution.needs[1]), "per s"), solution.needs[1].source),
        ("  in one direction", _value(sizing.duplex, "per s"), "what followers are sent included"),
        ("disk of a broker", _value(sizing.disk_bytes, "bytes"), "latest records, and those not compacted yet"),
        ("memory of the publisher", _value(count.producer_bytes, "bytes"), "a full batch of every partition"),
        ("memory of a consumer", _value(sizing.consumer_bytes, "bytes"), "fetched ahead, whatever the partitions"),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _bounds_table(sizing: Sizing) -> Table:
    table = plain_table("bound of the partitions", "", "limit", "source", "", right=("limit",))
    solution = sizing.solution
    for bounds in (solution.lower, solution.upper):
        for bound in bounds:
            mark = _STRICTEST if bound is bounds[0] else ""
            table.add_row(bound.name, _SIDES[bound.side], f"{bound.whole:,}", bound.source, mark)
    return table


def _counts_table(sizing: Sizing) -> Table:
    by_load = any(count.by_load is not None for count in sizing.counts)
    numbers = ("partitions", "mean", "worst", "at", "elections", "replication", "files", "publisher")
    load = (f"load at {int(sizing.figures.servers.value)}",) if by_load else ()
    headings = (*numbers[:4], *load, "even for", *numbers[4:], "")
    table = plain_table(*headings, right=(*numbers, *load), wrap=("even for",))
    for count in sizing.counts:
        chosen = count.partitions == sizing.partitions
        measured = (f"{count.by_load:.3f}" if count.by_load is not None else "-",) if by_load else ()
        table.add_row(
            str(count.partitions),
            f"{count.mean:.3f}",
            f"{count.worst:.3f}",
            str(count.worst_at),
            *measured,
            _join(count.uniform),
            f"{count.elections_s:.3g} s",
            f"{1000 * count.replication_s:.3g} ms",
            f"{count.open_files:,.0f}",
            _value(count.producer_bytes, "bytes"),
            "<- chosen" if chosen else ("" if count.fits else "out of bounds"),
            style="bold" if chosen else ("" if count.fits else "dim"),
        )
    table.caption = (
        f"mean and worst: the busiest server over the mean; up to {EVEN_ENOUGH} on average and {NEVER_WORSE} for each "
        "size is even enough"
    )
    table.caption_justify = "left"
    return table


def _elastic(values: dict[str, float]) -> str:
    ordered = sorted(values.items(), key=lambda named: -abs(named[1]))
    return ", ".join(f"1 % more {name.removesuffix('_s')} {value:+.2g} %" for name, value in ordered)


def _bound(bound: Bound) -> dict[str, Any]:
    return {"name": bound.name, "side": str(bound.side), "limit": bound.whole, "source": bound.source}


def _count(count: PartitionCount) -> dict[str, Any]:
    return {
        "partitions": count.partitions,
        "fits": count.fits,
        "uniform_sizes": list(count.uniform),
        "mean_imbalance": _round(count.mean),
        "worst_imbalance": _round(count.worst),
        "worst_at": count.worst_at,
        "imbalance_by_load": None if count.by_load is None else _round(count.by_load),
        "elections_s": _round(count.elections_s),
        "replication_s": _round(count.replication_s),
        "open_files_per_broker": _round(count.open_files),
        "publisher_bytes": count.producer_bytes,
    }


def _limit(bound: Bound) -> float:
    return _round(float(bound.limit or 0))


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _join(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _value(value: float, unit: str) -> str:
    """Return a number with its unit; bytes by powers of 1,000."""
    if unit not in {"per s", "bytes"}:
        return f"{value:.3g} s" if unit == "s" else f"{value:,.0f} {unit}"
    power = next((power for power in (3, 2, 1) if value >= 1000**power), 0)
    return f"{value / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}" + ("/s" if unit == "per s" else "")
