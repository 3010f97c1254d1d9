"""Render a recommendation: tables of modes, and sentences."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deploy.terminal import data_size, plain_table
from learning.modes import recommend
from learning.modes.configuration import PARTITIONS, Configuration
from learning.modes.measured import RUNS
from learning.modes.recommend import Candidate, Threshold
from learning.recommend.advice import Advice, command

ROLES: Final = ("data", "kafka", "broadcast", "bridge", "websocket", "metadata", "composite", "proxy", "nginx")
WIDE: Final = 100
"""Width from which tables have wider gaps."""
_COLUMNS: Final = """\

servers  of a group x groups
95 %     error of the CPU time: of modes within it, the simplest is chosen
fullest  process nearest its limit, with the share of its cores
loss, s  delay of updates when a server is lost; then, when a proxy or composite is
needs    SDK: clients must use it; ports: they connect to the port of every server
"""


def lines(advice: Advice, width: int) -> Iterator[RenderableType]:
    """Yield the output of the command, for ``width`` columns."""
    gap = 2 if width >= WIDE else 1
    load = advice.load
    yield Text(
        f"{load.clients:,.0f} clients with {load.subscriptions:.3g} subscriptions each, "
        f"{load.endpoints:,.0f} endpoints, {load.updates:,.4g} updates/s in writes of {load.batch:.3g}: "
        f"{load.frames_per_update:,.4g} clients an update, {load.frames:,.0f} frames/s"
    )
    grown = f", grown {advice.growth:g} times" if advice.growth != 1 else ""
    yield Text(f"(from {advice.source.text}{grown}; costs: {advice.costs.source})\n")
    yield modes_table(advice.candidates, gap)
    yield Text(_COLUMNS)
    yield roles_table(advice, gap)
    yield Text("")
    yield resources_table(advice.candidates, gap)
    yield Text("")
    yield from map(Text, sentences(advice))


def modes_table(candidates: Sequence[Candidate], gap: int) -> Table:
    """Render the modes at their least sizes; the sentences explain unsuitable ones."""
    numbers = ("servers", "CPU, cores", "95 %", "memory", "hosts")
    table = plain_table("mode", *numbers, "fullest", "loss, s", "needs", right=numbers, gap=gap)
    for each in candidates:
        run = RUNS[each.configuration]
        losses = [run.loss_s] if run.edge_loss_s is None else [run.loss_s, run.edge_loss_s]
        table.add_row(
            Text(each.configuration, style="" if each.fault is None else "dim"),
            f"{each.size.clones} x {each.size.servers}" if each.size.clones > 1 else str(each.size.servers),
            f"{each.cpu.value / 1e6:,.2f}",
            f"+-{each.margin / 1e6:,.2f}",
            # Unmeasured constants are more than zero.
            f"{'>' if each.memory.unmeasured else ''}{data_size(each.memory.value)}",
            str(each.hosts),
            f"{each.binds} {each.utilisation:.0%}" if each.fault is None else "-",
            "; ".join("-" if loss is None else f"{loss:g}" for loss in losses),
            ", ".join(each.requires) or "-",
        )
    return table


def resources_table(candidates: Sequence[Candidate], gap: int) -> Table:
    """Render the modes' connections and traffic."""
    numbers = ("partitions", "to clients/s", "connections", "Kafka, in/s", "out/s")
    table = plain_table("", *numbers, right=numbers, gap=gap)
    for each in candidates:
        found, kafka = each.prediction, each.configuration.uses_kafka
        table.add_row(
            each.configuration,
            str(each.size.partitions) if kafka else "-",
            data_size(found.egress_bytes),
            f"{found.connections:,.0f}",
            data_size(found.kafka_in_bytes) if kafka else "-",
            data_size(found.kafka_out_bytes) if kafka else "-",
        )
    return table


def roles_table(advice: Advice, gap: int) -> Table:
    """Render the CPU time of each kind of process."""
    there = [name for name in ROLES if any(name in _roles(each, advice) for each in advice.candidates)]
    table = plain_table("CPU, ms/s", *there, right=there, gap=gap)
    for each in advice.candidates:
        found = _roles(each, advice)
        # Only unmeasured constants.
        cells = ((_milliseconds(found[name]) if found[name] else "?") if name in found else "-" for name in there)
        table.add_row(each.configuration, *cells)
    return table


def _milliseconds(us: float) -> str:
    return f"{us / 1000:,.1f}" if us < 99_950 else f"{us / 1000:,.0f}"


def _roles(candidate: Candidate, advice: Advice) -> dict[str, float]:
    return candidate.prediction.cpu_by_role(advice.costs)


def sentences(advice: Advice) -> Iterator[str]:
    """Yield the recommendation, the reasons against the others, the thresholds, and the warnings."""
    chosen = advice.chosen
    if chosen is None:
        closest = advice.candidates[0]
        yield f"No mode holds this load: {closest.configuration}: {closest.fault}"
    else:
        yield f"Run:   {command(chosen, advice.needs)}"
        yield _next(advice)
        if advice.cheaper is not None:
            yield f"Now:   {advice.cheaper}"
        yield from _conditions(chosen, advice)
    yield "\nWhy not"
    for each in advice.candidates:
        if each is not chosen:
            why = each.fault or ""
            yield f"  {each.configuration}: {why if chosen is None else recommend.reason(each, chosen, advice.costs)}"
    yield f"\nBy updates/s: {_thresholds(advice.by_updates)}"
    yield f"By clients:   {_thresholds(advice.by_clients)}"
    yield from warnings(advice)


def _conditions(chosen: Candidate, advice: Advice) -> Iterator[str]:
    """Yield the external requirements of the recommended mode."""
    if chosen.configuration is Configuration.Z_CLIENT:
        yield "       Clients must use the SDK and connect to every server they need; --one-address excludes this mode"
    if chosen.configuration.partitioned and chosen.size.partitions != PARTITIONS:
        yield f"       {chosen.size.partitions} partitions are for a new log: one that has others keeps them"
    if chosen.hosts > 1:
        yield (
            f"       It needs {chosen.hosts} hosts of {advice.needs.cores_per_host} cores; "
            "`diem up` runs everything on one"
        )


def _next(advice: Advice) -> str:
    if advice.following is None:
        return "Next:  no other mode becomes cheaper when the load grows"
    factor, candidate = advice.following
    clients, updates = advice.load.clients * factor, advice.load.updates * factor
    when = f"when clients, endpoints and updates have grown {factor:.3g} times ({clients:,.0f}; {updates:,.4g}/s)"
    if candidate is None:
        return f"Next:  no mode holds the load {when}"
    return f"Next:  {command(candidate, advice.needs)}  {when}"


def _thresholds(found: Sequence[Threshold]) -> str:
    parts = []
    for each in found:
        name = "no mode" if each.configuration is None else str(each.configuration)
        parts.append(name if math.isinf(each.until) else f"{name} until {_rounded(each.until)}")
    return ", then ".join(parts)


def _rounded(number: float) -> str:
    """Return a number with two digits, the accuracy of thresholds."""
    digits = math.floor(math.log10(number)) - 1
    return f"{round(number, -digits):,g}" if digits < 0 else f"{round(number / 10**digits) * 10**digits:,}"


def warnings(advice: Advice) -> Iterator[str]:
    """Yield the gaps in the basis of the figures."""
    if advice.outside:
        yield f"\nBeyond what was measured: {'; '.join(advice.outside)}. Try it before you rely on it"
    if advice.unmeasured:
        yield f"\nNot measured, and missing in the CPU above: {'; '.join(advice.unmeasured)}"
    if advice.costs.built_in:
        yield f"\nThe file of costs lacks {len(advice.costs.built_in)} constants: the built-in ones are used"
    if advice.needs.p99_s is not None:
        unknown = ", ".join(str(each) for each, run in RUNS.items() if run.p99_s is None)
        yield f"\np99 counts the time to send one write, and the delay of committed runs; there is none for {unknown}"
    yield "95 % ranges: from the errors of the costs, as measured on one machine; `make bench-cost` measures yours"
