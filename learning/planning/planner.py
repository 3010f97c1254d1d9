"""Computes a plan for a running system, evaluates it for the current mode, and reports it: the work of ``diem plan``.

Needs NumPy: import it after ``require_planner``.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import typer
from rich.console import Console

from deploy.invocation import diem_command
from deploy.terminal import Terminal, amount
from deploy.topology import Mode
from diem.errors import ConfigurationError, DiemError
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import HOT
from learning.costs import DEFAULT, ROLES, SERVER_LIMITS, Costs, Resources, RoleCosts, read_costs, read_role_costs
from learning.modes.configuration import Configuration, Size
from learning.modes.model import merged_saving
from learning.modes.recommend import Requirements
from learning.placement.baselines import Infeasible
from learning.placement.blocks import Mask, Parts
from learning.placement.instance import Instance, split_time
from learning.placement.options import MARGIN, PlanOptions
from learning.placement.planner import PlanResult, plan
from learning.placement.publish import Obstacle
from learning.placement.worth import Worth, mode_x_worth, placement_worth
from learning.planning import render
from learning.planning.context import PlanRequest, RunningSystem
from learning.planning.traffic_input import PlanningInput, read_input
from learning.recommend.advice import cheaper_mode
from learning.sizing.even import choose_count, planned_sizes
from learning.statistics.model import duplicate_recorders_warning
from metadata.plans.plan import Plan, encode, overfull

_OF_CLIENTS: Final = frozenset(
    {"clients_fullest", "clients_after_loss", "storm_s", "memory_mib_fullest", "cpu_percent_fullest"}
)
"""Figures of servers that clients connect to: not of those behind proxies."""
MAX_NAMED: Final = 10
"""Maximum number of hot endpoints named in a report."""


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan, and the verdict on applying it, with the reason."""

    plan: Plan
    pays: bool
    why: str


def make_plan(traffic: PlanningInput, request: PlanRequest, system: RunningSystem, now: Snapshot) -> EvaluatedPlan:
    """Compute and evaluate the requested plan; takes from a second to minutes.

    Raises:
        DiemError: no server is in any group, and no number of servers was given; or one would have more clients than
            it accepts.
        Infeasible: an endpoint is too much for a server.
        BadCosts: the file of costs is invalid.
        typer.BadParameter: there are more partitions already than requested.
    """
    learnt: tuple[Instance, ...] = ()
    if traffic.earlier:
        earlier, shares = zip(*traffic.earlier, strict=True)
        latest, learnt = split_time(traffic.instance, earlier, shares)
        traffic = replace(traffic, instance=latest)
    if system.batch is not None:
        traffic = replace(traffic, instance=replace(traffic.instance, batch=system.batch))
    there = max((len(clone.members) for clone in now.clones.values()), default=0)
    servers = request.servers or ((there,) if there else ())
    sizes = planned_sizes(*servers)
    if not servers:
        raise DiemError("there is no server to plan for now: name --servers")
    partitions = count_partitions(now)
    if request.partitions is not None and request.partitions < partitions:
        raise typer.BadParameter(f"the topic has {partitions} partitions already, and a topic only grows")
    # A client is in one of the clones, each of which divides the partitions among its servers.
    clones = max(1, sum(bool(clone.members) for clone in now.clones.values()))
    options = PlanOptions(
        servers=servers,
        sizes=sizes,
        seed=request.seed,
        partitions=request.partitions,
        current_partitions=partitions,
        hot_budget=request.hot_budget,
        limits=_limits(request, system),
        clones=clones,
        movement_budget=request.movement,
        margin=MARGIN,
    )
    roles = ROLES if request.costs is None else read_role_costs(request.costs, ROLES)
    saving = merged_saving(_configuration(system), Size(max(servers)), traffic.instance.load, roles)
    costs = replace(
        DEFAULT if request.costs is None else read_costs(request.costs),
        merged_saving_us=saving.servers,
        proxy_merged_saving_us=saving.between,
    )
    current = current_homes(now, traffic.instance)
    if request.movement is not None and max(servers) > partitions:
        raise typer.BadParameter(f"--movement is for up to {partitions} servers here: more need more partitions")

    def search(options: PlanOptions) -> PlanResult:
        of_servers = _costs_of_servers(costs, system)
        # A proxy has one connection to each server whatever the map: it is searched for few servers of each
        # client all the same, which go with few partitions.
        counted = replace(of_servers, connection_us_per_s=0.0) if system.has_proxies else of_servers
        return plan(traffic.instance, options, of_servers, current, verdict_costs=counted, learnt=learnt)

    outcome = search(options)
    report = _extend_report(traffic, outcome, current, system, costs=costs, roles=roles)
    if (why := overfull(report)) is not None:
        raise DiemError(why)
    # A plan that only balances the load may be all that the budget allows, and far from the best.
    compares = not outcome.saves and request.compare and request.movement is not None
    made = Plan(
        epoch=now.map.head.epoch,
        partitions=outcome.partitions,
        homes=dict(zip(traffic.instance.endpoints, outcome.placement.tolist(), strict=True)),
        servers=servers,
        seed=request.seed,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        window={"from": traffic.start, "to": traffic.end},
        costs=report["costs"],
        report={
            **report,
            "pays": outcome.pays,
            "why": outcome.why,
            "compared": compares,
            "obstacle": None if outcome.saves else _obstacle(outcome, options, search if compares else None),
            "there": there,
            "partitions_before": partitions,
            "partitions_of_new_log": choose_count(sizes),
            "source": traffic.source,
            "batch": round(traffic.instance.batch, 1),
            "cheaper_mode": _cheaper_mode(traffic.instance, system, max(there, 1), roles),
        },
    )
    return EvaluatedPlan(made, outcome.pays, outcome.why)


def _limits(request: PlanRequest, system: RunningSystem) -> Resources | None:
    """Return the limits of a server; None if clients connect to proxies, whose links do not count.

    An unknown mode counts as one without proxies, as for its costs.
    """
    if system.mode not in {None, Mode.Z_CLIENT}:
        return None
    known = SERVER_LIMITS if system.capacity is None else SERVER_LIMITS._replace(clients=float(system.capacity))
    return known._replace(**request.capacity)


def _cheaper_mode(instance: Instance, system: RunningSystem, servers: int, roles: RoleCosts) -> str | None:
    """Return a sentence about a mode much cheaper than the current one; None without one."""
    load = instance.load
    if system.mode in {None, Mode.XZ} or not (load.clients > 0 and load.updates > 0):
        # The number of composites is not known here, nor are clients whose sets stay in Spark.
        return None
    present = _configuration(system)
    # Where clients have several servers, one of them may be there for the case that another fails.
    needs = Requirements(survive=int(present is Configuration.Z_CLIENT and servers > 1))
    return cheaper_mode(present, Size(servers), load, roles, needs)


def _configuration(system: RunningSystem) -> Configuration:
    """Return the current configuration; if unknown, the one in which clients connect to servers."""
    return Configuration.Z_CLIENT if system.mode is None else Configuration(system.mode)


def _costs_of_servers(costs: Costs, system: RunningSystem) -> Costs:
    """Return the costs of servers; the clients of those behind proxies are proxies."""
    return costs.over_links if system.has_proxies else costs


def count_partitions(now: Snapshot) -> int:
    """Return the number of partitions of the updates topic, from the owners and from the map."""
    owned = [partition for clone in now.clones.values() for partition in clone.owners]
    named = [place for entry in now.map.entries.values() for place in entry if place is not None]
    return max([now.map.head.partitions, *(place + 1 for place in owned + named)])


def current_homes(now: Snapshot, instance: Instance) -> Parts:
    """Return the current home of each endpoint of an instance: int32[E], HOT for those on every server."""
    return np.array([now.map.home(name.encode()) for name in instance.endpoints], np.int32)


def _obstacle(
    outcome: PlanResult, options: PlanOptions, search: Callable[[PlanOptions], PlanResult] | None
) -> dict[str, Any] | None:
    """Return what keeps a plan from saving: the budget of moves if a plan without it does, else its obstacle.

    ``search`` makes the plan without the budget; None: that is not compared. It takes ten times the CPU time of a plan
    within a budget, which is a warm start.
    """
    found: dict[str, Any] | None = None
    if search is not None:
        with suppress(Infeasible):
            best = search(replace(options, movement_budget=None))
            if best.saves:
                moves, why = best.report["moved"]["plan"]["subscriptions"], best.why
                found = {"kind": str(Obstacle.MOVEMENT), "budget": options.movement_budget, "moves": moves, "why": why}
    if found is None and outcome.obstacle is not None:
        found = {"kind": str(outcome.obstacle)}
    return found and {**found, "text": render.obstacle(found)}


def _extend_report(
    traffic: PlanningInput,
    outcome: PlanResult,
    current: Parts,
    system: RunningSystem,
    *,
    costs: Costs,
    roles: RoleCosts,
) -> dict[str, Any]:
    """Return the planner's report with numbers and names of endpoints and CPU time."""
    report, hot, instance = dict(outcome.report), outcome.placement == HOT, traffic.instance
    value = _mode_costs(instance, costs, roles, system, {"current": current == HOT, "plan": hot})
    servers = {count: value(int(count), figures) for count, figures in report["servers"].items()}
    moved = outcome.placement != current
    names = [instance.endpoints[index] for index in np.flatnonzero(hot)]

    return {
        **report,
        "servers": servers,
        "hot": {**report["hot"], "names": names[:MAX_NAMED]},
        "moves": {
            "endpoints": int(moved.sum()),
            "of": int(moved.size),
            "subscriptions": report["moved"]["plan"]["subscriptions"],
        },
        "saves_us_per_s": report["saves"]["us_per_s"],
        "saves_in_window_us_per_s": float(
            np.mean([each["current"]["cpu_us_per_s"] - each["plan"]["cpu_us_per_s"] for each in servers.values()])
        ),
        "windows": len(traffic.earlier),
        "balances": outcome.balances,
        "waste": {"consumed": traffic.consumed, "discarded": traffic.discarded},
        "costs": {name: value for name, value in asdict(_costs_of_servers(costs, system)).items() if value is not None},
        "mode": system.mode,
    }


def _mode_costs(
    instance: Instance, costs: Costs, roles: RoleCosts, system: RunningSystem, hot: Mapping[str, Mask]
) -> Callable[[int, Mapping[str, Any]], dict[str, Any]]:
    """Return a function that adds the mode's connections, and what they take, to the figures of each placement.

    It also adds mode x, which has no proxies: their work is that of its servers.
    """
    none = np.zeros(len(instance.endpoints), np.bool_)
    of_servers = _costs_of_servers(costs, system)
    of_x = replace(costs, merged_saving_us=merged_saving(Configuration.X, Size(), instance.load, roles).servers)

    def add_costs(servers: int, figures: Mapping[str, Any]) -> dict[str, Any]:
        # In mode x servers send to clients themselves, each what it fetched of all partitions at once.
        x = mode_x_worth(instance, of_x, servers)
        alone = mode_x_worth(instance, costs, servers)
        of_proxies = alone.frames_us + alone.connections_us if system.has_proxies else 0.0
        result = dict(figures)
        for name, own in figures.items():
            if name not in {"bounds", "gaps"}:
                result[name] = {
                    **own,
                    "memory_mib_fullest": own["memory_bytes_fullest"] / 2**20,
                    "megabytes_fullest": own["sent_bytes_per_s_fullest"] / 1e6,
                    "cpu_percent_fullest": own["cpu_us_per_s_fullest"] / 1e4,
                }
                for prefix in ("", "held_out_"):
                    if (links := own.get(f"{prefix}connections")) is not None:
                        if system.has_proxies:
                            result[name] = {key: each for key, each in result[name].items() if key not in _OF_CLIENTS}
                            links = float(servers * max(system.proxies, 1))
                        mean = own[f"{prefix}fan_out"]
                        worth = placement_worth(instance, of_servers, links, hot.get(name, none), servers, mean=mean)
                        merged_us = of_servers.proxy_merged_saving_us * worth.merged
                        result[name] |= _costs_of(worth, max(0.0, of_proxies - merged_us), prefix)
        same = {"fan_out": 1.0, "fan_out_p99": 1, "max_over_mean_load": 1.0}
        return {**result, "mode_x": {**same, **_costs_of(x, 0.0)}}

    return add_costs


def _costs_of(worth: Worth, of_proxies: float, prefix: str = "") -> dict[str, float]:
    found = {
        "connections": worth.links,
        "memory_mib": worth.memory_bytes / 2**20,
        "updates_us_per_s": worth.updates_us,
        "frames_us_per_s": worth.frames_us,
        "connections_us_per_s": worth.connections_us,
        "proxies_us_per_s": of_proxies,
        "cpu_us_per_s": worth.cpu_us + of_proxies,
    }
    return {f"{prefix}{name}": float(f"{value:.6g}") for name, value in found.items()}


@dataclass(frozen=True)
class PlanRun:
    """The plan of one ``diem plan``, and its input traffic."""

    traffic: PlanningInput
    made: EvaluatedPlan
    terminal: Terminal
    console: Console

    @property
    def encoded(self) -> bytes:
        """The plan in its form for the file and the metadata service."""
        return encode(self.made.plan)

    def write(self, file: Path) -> None:
        """Write the plan to a file. Raises ``ConfigurationError``."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_bytes(self.encoded + b"\n")
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from error

    def print_summary(self, file: Path | None, *, submitted: bool | None) -> None:
        """Print the moves of the plan, its gains, and the next command; ``submitted`` None: without a system."""
        made = self.made
        for each in render.forecast(made.plan.report):
            self.console.print(each)
        summary = "It pays" if made.pays else "It does not pay"
        self.terminal.info(f"{summary}: {made.why}")
        if obstacle := made.plan.report["obstacle"]:
            what = "more" if made.pays else "it"
            self.terminal.info(f"What holds {what} back: {obstacle['text']}")
        self.terminal.info("")
        if file is None:
            text = "no plan was submitted: the current placement can stay (--anyway submits it regardless)"
        elif submitted is None:
            text = f"{made.plan.id} is in {file}: the partition of each endpoint is in `homes`"
        elif submitted:
            text = f"{made.plan.id} is submitted, and in {file}\nnext: {diem_command('apply', made.plan.id)}"
        else:
            text = f"{made.plan.id} is in {file}\nnext: {diem_command('apply', str(file))}"
        self.terminal.info(text)

    def as_json(self, file: Path | None, *, submitted: bool | None) -> dict[str, Any]:
        """Return the summary as one JSON object."""
        made, traffic = self.made, self.traffic
        return {
            "plan": None if file is None else made.plan.id,
            "pays": made.pays,
            "why": made.why,
            "submitted": bool(submitted),
            "file": None if file is None else str(file),
            "window": made.plan.window,
            "events": traffic.events,
            "clients": traffic.clients,
            "minutes": traffic.minutes,
            "active_minutes": traffic.active_minutes,
            "twins": traffic.duplicates,
            "servers": list(made.plan.servers),
            "partitions": made.plan.partitions,
            "report": made.plan.report,
        }


def run_plan(
    request: PlanRequest, system: RunningSystem, now: Snapshot, terminal: Terminal, console: Console
) -> PlanRun:
    """Read the traffic and make the plan, with a line on the terminal for each. Raises what these two steps do."""
    traffic = read_input(request, terminal)
    summary = f"{traffic.events:,} events of {amount(traffic.clients, 'client')}, {traffic.start} to {traffic.end}"
    terminal.info(f"{summary} ({traffic.source})")
    terminal.info(render.window_line(traffic.start, traffic.end, traffic.minutes, traffic.active_minutes))
    if traffic.duplicates:
        terminal.warn(duplicate_recorders_warning(traffic.duplicates))
    with console.status("planning") if terminal.is_shown else nullcontext():
        made = make_plan(traffic, request, system, now)
    amounts = f"{amount(len(traffic.instance.endpoints), 'endpoint')}, {amount(traffic.sets, 'subscription set')}"
    # Without a system there are none.
    now_there = f"{amount(there, 'server')} now, " if (there := made.plan.report["there"]) else ""
    terminal.info(f"{amounts}; {now_there}planned for {', '.join(map(str, made.plan.servers))}\n")
    return PlanRun(traffic, made, terminal, console)
