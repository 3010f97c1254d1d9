"""The answer of ``diem size`` for people, as rich tables, and for programs, as JSON. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deploy.terminal import amount, plain_table
from learning.sizing import kafka
from learning.sizing.even import mean_imbalance
from learning.sizing.kafka import Bound
from learning.sizing.solver import DETECTION, Excess
from tools.size.sizing import Figure, Sizing

_STRICTEST: Final = "<- binds"


def as_json(sizing: Sizing) -> dict[str, Any]:
    """Return everything as one JSON object; throughputs in bytes/s, times in seconds."""
    solution, limits = sizing.solution, sizing.limits
    return {
        "figures": {name: figure._asdict() for name, figure in _figures(sizing).items()},
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
            "storage_bytes_per_s": _round(_needed(solution.needs[0])),
            "network_bytes_per_s": _round(_needed(solution.needs[1])),
        },
        "after_a_lost_broker": {
            "detection_s": _round(sizing.detection_s),
            "elections_s": _round(sizing.elections_s),
            "longest_session_timeout_s": _round(sizing.longest_session_timeout_s),
        },
        "bounds": [
            {"name": bound.name, "side": str(bound.side), "limit": bound.whole, "source": bound.source}
            for bound in (*solution.lower, *solution.upper)
        ],
        "excesses": [_excess(excess) for excess in solution.excesses],
        "guideline": list(guideline(sizing)),
    }


def render(sizing: Sizing) -> Iterator[RenderableType]:
    """Yield the figures, what does not fit, the bounds, and the guideline."""
    table = plain_table("workload", "value", "origin", right=("value",), wrap=("origin",))
    for name, figure in _figures(sizing).items():
        label = "clients / update" if name == "subscribers" else name.replace("_", " ").replace("per s", "/ s")
        table.add_row(label, _number(figure.value), figure.origin)
    yield table
    yield ""
    yield from _infeasible(sizing)
    yield _bounds_table(sizing)
    yield ""
    for line in guideline(sizing):
        yield Text(f"- {line}")


def guideline(sizing: Sizing) -> Iterator[str]:
    """Yield the guidelines of the thesis' section 7.2, with the numbers of this workload."""
    limits, solution, figures = sizing.limits, sizing.solution, sizing.figures
    storage, network = (_value(_needed(need), need.unit) for need in solution.needs)
    fewest = "there are as many" if figures.brokers is not None else "the fewest that it fits on"
    yield f"{amount(sizing.brokers, 'broker')}, {fewest}; each stores {storage} and has {network} in its network"
    lost = "no broker" if limits.tolerate == 0 else amount(limits.tolerate, "broker")
    yield (
        f"For the loss of {lost}: {amount(limits.replicas, 'replica')}, min.insync.replicas={limits.in_sync}, "
        "acks=all, unclean.leader.election.enable=false (`diem check --tolerate "
        f"{limits.tolerate}` verifies it, for Kafka's own topics too)"
    )
    yield (
        f"A lost broker's partitions are led again within {sizing.detection_s + sizing.elections_s:.3g} s: "
        f"{sizing.detection_s:.3g} s until the loss is known, {kafka.DETECTION_TIMEOUTS} x broker.session.timeout.ms, "
        f"and {sizing.elections_s:.2g} s of elections"
    )
    if figures.partitions is not None and figures.partitions.value == sizing.partitions:
        yield f"Keep the {sizing.partitions} partitions: another number would move keys"
    else:
        imbalance = mean_imbalance(sizing.partitions, limits.planned)
        present = 0 if figures.partitions is None else int(figures.partitions.value)
        more = f" (the log has {present} already, and only grows)" if present > sizing.partitions else ""
        yield (
            f"Create the topic with {amount(sizing.partitions, 'partition')}: {imbalance:.2f} x the mean on "
            f"average{more}"
        )
    if not figures.partitioned:
        yield (
            f"Every server reads all updates in this mode, {sizing.utilisation:.2g} of its core: partitions do not "
            "divide that work, a partitioned mode does"
        )
    elif sizing.utilisation > 1:
        yield f"The updates cost {sizing.utilisation:.2g} cores: at least as many servers share them"


def _infeasible(sizing: Sizing) -> Iterator[RenderableType]:
    if sizing.solution.feasible:
        return
    yield Text(f"It does not fit on {amount(sizing.brokers, 'broker')}:", style="bold red")
    for each in sizing.solution.excesses:
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
        return f"elections alone take {sizing.elections_s:.2g} s: fewer partitions, or more brokers"
    return (
        f"it needs broker.session.timeout.ms={most_ms} or less at the controllers, and broker.heartbeat.interval.ms of "
        f"a quarter of it at the brokers; or --unavailability {sizing.detection_s + sizing.elections_s:.3g} or more"
    )


def _figures(sizing: Sizing) -> dict[str, Figure]:
    figures = sizing.figures
    named = {
        "updates_per_s": figures.updates,
        "record_bytes": figures.record_bytes,
        "subscribers": figures.subscribers,
        "servers": figures.servers,
        "groups": figures.groups,
        "brokers": figures.brokers,
        "partitions": figures.partitions,
        "other_partitions": figures.other_partitions,
        "session_timeout_s": figures.session_timeout_s,
    }
    return {name: figure for name, figure in named.items() if figure is not None}


def _bounds_table(sizing: Sizing) -> Table:
    table = plain_table("bound of the partitions", "", "limit", "source", "", right=("limit",))
    for bounds in (sizing.solution.lower, sizing.solution.upper):
        for bound in bounds:
            mark = _STRICTEST if bound is bounds[0] else ""
            table.add_row(bound.name, str(bound.side), f"{bound.whole:,}", bound.source, mark)
    return table


def _excess(excess: Excess) -> dict[str, Any]:
    return {
        "name": excess.name,
        "factor": None if excess.factor == float("inf") else _round(excess.factor),
        "required": _round(excess.required),
        "allowed": _round(excess.allowed),
        "unit": excess.unit,
        "source": excess.source,
    }


def _needed(bound: Bound) -> float:
    return float(bound.limit or 0)


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _value(value: float, unit: str) -> str:
    """Return a number with its unit; bytes by powers of 1,000."""
    if unit != "per s":
        return f"{value:.3g} s" if unit == "s" else f"{value:,.0f} {unit}"
    power = next((power for power in (3, 2, 1) if value >= 1000**power), 0)
    return f"{value / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}/s"
