"""Compute a plan for a running system, evaluate it for the mode that runs, and report it: the work of ``diem plan``.

Needs NumPy: import it after ``require_planner``.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import typer
from rich.console import Console

from deploy.kafka import java
from deploy.kafka.java import NoJava
from deploy.planning import render
from deploy.planning.context import SHARED, PlanRequest, System
from deploy.planning.traffic_input import PlanningInput, learn
from deploy.terminal import Terminal
from diem.errors import ConfigurationError, DiemError
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import HOT
from metadata.costs import DEFAULT, Costs, read_costs
from metadata.jobs.spark_session import NoSpark, SparkOptions, scratch_folder
from metadata.placement.baselines import Infeasible
from metadata.placement.blocks import Parts
from metadata.placement.instance import Instance
from metadata.placement.objective import total_cost
from metadata.placement.options import PlanOptions
from metadata.placement.planner import PlanResult, plan
from metadata.plans.plan import Plan, encode
from metadata.statistics.model import duplicate_recorders_warning


@dataclass(eq=False)
class PlanFileUnwritable(ConfigurationError):
    """The file of a plan cannot be written."""

    template = "{file} cannot be written: {reason}"

    file: Path
    reason: str


NAMED: Final = 10
"""Hot endpoints that a report names."""
_ROUNDING: Final = 1e-6


class PlanInfeasible(DiemError):
    """There is no plan that keeps the load bound."""

    def __init__(self, found: Infeasible) -> None:
        self.endpoint = found.endpoint
        super().__init__(str(found))


class NoServersFound(DiemError):
    """No server is in any group, and nobody said how many there are to be."""

    template = "no server is there now, to plan for: name --servers"
    retriable = True


@dataclass(frozen=True)
class MadePlan:
    """A plan, whether it pays to apply it, and why (not)."""

    plan: Plan
    pays: bool
    why: str


def make(learnt: PlanningInput, asked: PlanRequest, system: System, now: Snapshot) -> MadePlan:
    """Make the plan that was asked for. Takes from a second to minutes.

    Raises:
        NoServersFound: it is not known how many servers to plan for.
        PlanInfeasible: an endpoint is too much for a server.
        NoSpark: it is to be made on Spark, which is not installed.
        BadCosts: the file of costs cannot be used.
        typer.BadParameter: there are more partitions already than were asked for.
    """
    there = max((len(clone.members) for clone in now.clones.values()), default=0)
    servers = asked.servers or ((there,) if there else ())
    if not servers:
        raise NoServersFound
    partitions = partitions_of(now)
    if asked.partitions is not None and asked.partitions < partitions:
        raise typer.BadParameter(f"the topic has {partitions} partitions already, and a topic only grows")
    options = PlanOptions(
        servers=servers,
        seed=asked.seed,
        partitions=asked.partitions,
        least_partitions=partitions,
        hot_budget=asked.hot_budget,
        movement_budget=asked.movement,
    )
    costs = DEFAULT if asked.costs is None else read_costs(asked.costs)
    if system.proxy is not None:
        # The clients of servers are proxies.
        costs = costs.over_links
    current = homes_of(now, learnt.instance)
    if asked.movement is not None and max(servers) > partitions:
        raise typer.BadParameter(f"--movement is for up to {partitions} servers here: more need more partitions")
    try:
        outcome = _planned(learnt, options, costs, current)
    except Infeasible as error:
        raise PlanInfeasible(error) from error
    report = _reported(learnt.instance, outcome, current, costs, system)
    pays, why = judged(outcome, report, options.epsilon, system)
    made = Plan(
        epoch=now.map.head.epoch,
        partitions=outcome.partitions,
        homes=dict(zip(learnt.instance.endpoints, outcome.placement.tolist(), strict=True)),
        servers=servers,
        seed=asked.seed,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        window={"from": learnt.start, "to": learnt.end},
        costs=report["costs"],
        report={**report, "pays": pays, "why": why, "there": there, "source": learnt.source},
    )
    return MadePlan(made, pays, why)


def _planned(learnt: PlanningInput, options: PlanOptions, costs: Costs, current: Parts) -> PlanResult:
    """Return the same outcome, wherever the subscription sets are."""
    if learnt.for_spark is None:
        return plan(learnt.instance, options, costs, current)
    from metadata.jobs.planning import plan_on_spark  # noqa: PLC0415  # few plans need it

    try:
        command = java.find()
    except NoJava as error:
        raise NoSpark(f"there is no Java {java.OLDEST} or newer") from error
    with scratch_folder() as scratch:
        return plan_on_spark(learnt.for_spark, options, costs, current, SparkOptions(scratch, java=command))


def partitions_of(now: Snapshot) -> int:
    """Return how many partitions the updates topic has: those that somebody owns, and those that the map names."""
    owned = [partition for clone in now.clones.values() for partition in clone.owners]
    named = [place for entry in now.map.entries.values() for place in entry if place is not None]
    return max([now.map.head.partitions, *(place + 1 for place in owned + named)])


def homes_of(now: Snapshot, instance: Instance) -> Parts:
    """Return where the endpoints of an instance are now: int32[E], HOT for those that every server has."""
    return np.array([now.map.home(name.encode()) for name in instance.endpoints], np.int32)


def judged(outcome: PlanResult, report: Mapping[str, Any], epsilon: float, system: System) -> tuple[bool, str]:
    """Return whether a plan pays in the mode that runs, and why.

    The planner values connections from each client to each of its servers. A shared proxy has one to each server
    whatever the map: there, a plan pays when it balances a load that is uneven now.
    """
    if not outcome.pays or system.proxy is not SHARED:
        return outcome.pays, outcome.why
    bound = 1 + epsilon + _ROUNDING
    before, after = (_uneven(report, name) for name in ("current", "plan"))
    if before > bound >= after:
        return True, f"balances the load: the fullest server has {after:.3f} times the mean, not {before:.3f}"
    return False, "the load is even already, and shared proxies have one connection to each server whatever the map"


def _uneven(report: Mapping[str, Any], name: str) -> float:
    return max(float(figures[name]["max_over_mean_load"]) for figures in report["servers"].values())


def _reported(instance: Instance, outcome: PlanResult, current: Parts, costs: Costs, system: System) -> dict[str, Any]:
    """Return the planner's report with what it means for people: numbers of endpoints, their names, CPU time."""
    report, hot = dict(outcome.report), outcome.placement == HOT
    value = _value(instance, costs, system, {"current": current == HOT, "plan": hot})
    servers = {count: value(int(count), figures) for count, figures in report["servers"].items()}
    moved = outcome.placement != current
    names = [instance.endpoints[index] for index in np.flatnonzero(hot)]
    return {
        **report,
        "servers": servers,
        "hot": {**report["hot"], "names": names[:NAMED]},
        "moves": {
            "endpoints": int(moved.sum()),
            "of": int(moved.size),
            "subscriptions": report["moved"]["plan"]["subscriptions"],
        },
        "saves_us_per_s": float(
            np.mean([each["current"]["cpu_us_per_s"] - each["plan"]["cpu_us_per_s"] for each in servers.values()])
        ),
        "costs": {name: value for name, value in asdict(costs).items() if value is not None},
        "mode": system.mode,
        "proxy": system.proxy,
    }


def _value(
    instance: Instance, costs: Costs, system: System, hot: Mapping[str, "np.typing.NDArray[np.bool_]"]
) -> Callable[[int, Mapping[str, Any]], dict[str, Any]]:
    """Return what adds the connections that the mode really has, and their CPU time, to figures of each placement."""
    none = np.zeros(len(instance.endpoints), np.bool_)

    def valued(servers: int, figures: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(figures)
        for name, own in figures.items():
            if name not in {"bounds", "gaps", "mt_kahypar"}:
                shared = system.proxy is SHARED
                connections = float(servers * max(system.proxies, 1) if shared else own["connections"])
                cpu = total_cost(instance, costs, connections, hot.get(name, none), servers)
                result[name] = {**own, "connections": connections, "cpu_us_per_s": float(f"{cpu:.6g}")}
        return result

    return valued


class Planning:
    """One `diem plan`, in this order: `learn`, `make`, `write`, `say` or `as_json`."""

    def __init__(self, asked: PlanRequest, terminal: Terminal, console: Console) -> None:
        self._asked = asked
        self._terminal = terminal
        self._console = console
        self._learnt: PlanningInput | None = None
        self._made: MadePlan | None = None

    def learn(self) -> None:
        """Read the traffic. Raises what `deploy.planning.traffic_input.learn` does."""
        learnt = self._learnt = learn(self._asked, self._terminal)
        said = f"{learnt.events:,} events of {render.amount(learnt.clients, 'client')}, {learnt.start} to {learnt.end}"
        self._terminal.say(f"{said} ({learnt.source})")
        if learnt.twins:
            self._terminal.warn(duplicate_recorders_warning(learnt.twins))

    def make(self, system: System, now: Snapshot) -> MadePlan:
        """Make the plan. Raises what `make` does."""
        learnt = self._known()
        with self._console.status("planning") if self._terminal.is_shown else nullcontext():
            made = self._made = make(learnt, self._asked, system, now)
        amounts = (
            render.amount(len(learnt.instance.endpoints), "endpoint"),
            render.amount(learnt.sets, "subscription set"),
            render.amount(made.plan.report["there"], "server"),
        )
        planned = ", ".join(map(str, made.plan.servers))
        self._terminal.say("{}, {}; {} now, planned for {}\n".format(*amounts, planned))
        return made

    @property
    def encoded(self) -> bytes:
        """The plan as a file and as the metadata service has it."""
        return encode(self._result().plan)

    def write(self, file: Path) -> None:
        """Write the plan to a file. Raises `PlanFileUnwritable`."""
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_bytes(self.encoded + b"\n")
        except OSError as error:
            raise PlanFileUnwritable(file, error.strerror or str(error)) from error

    def say(self, file: Path | None, *, submitted: bool) -> None:
        """Say what would move and what that gains, and what can be done next."""
        made = self._result()
        for each in render.gains(made.plan.report):
            self._console.print(each)
        said = "It pays" if made.pays else "It does not pay"
        self._terminal.say(f"{said}: {made.why}\n")
        if file is None:
            self._terminal.say(
                "no plan was submitted: everything may stay where it is (--anyway submits it all the same)"
            )
        elif submitted:
            self._terminal.say(f"{made.plan.id} is submitted, and in {file}\nnext: diem apply {made.plan.id}")
        else:
            self._terminal.say(f"{made.plan.id} is in {file}\nnext: diem apply {file}")

    def as_json(self, file: Path | None, *, submitted: bool) -> dict[str, Any]:
        """Return the same for programs."""
        made, learnt = self._result(), self._known()
        return {
            "plan": None if file is None else made.plan.id,
            "pays": made.pays,
            "why": made.why,
            "submitted": submitted,
            "file": None if file is None else str(file),
            "window": made.plan.window,
            "events": learnt.events,
            "clients": learnt.clients,
            "twins": learnt.twins,
            "servers": list(made.plan.servers),
            "partitions": made.plan.partitions,
            "report": made.plan.report,
        }

    def _known(self) -> PlanningInput:
        if self._learnt is None:
            raise AssertionError("first it learns")
        return self._learnt

    def _result(self) -> MadePlan:
        if self._made is None:
            raise AssertionError("first it is made")
        return self._made
