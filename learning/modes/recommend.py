"""Choice of a mode: the size of each under requirements, the simplest of the cheapest, thresholds, and reasons.

Reading order: ``Requirements``, ``fit`` (the least size of one mode), ``compare`` (all modes), ``thresholds`` along one
quantity.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from learning.costs import SERVER_LIMITS, UTILISATION, Resources, RoleCosts, Total
from learning.modes.configuration import MAX_SERVERS, Configuration, Size
from learning.modes.load import Load
from learning.modes.measured import CALIBRATED, RUNS
from learning.modes.model import NGINX_WORKERS, Prediction, predict

SIGNIFICANT: Final = 0.15
"""Share of CPU time saved by another mode that is worth a remark."""
CONFIDENCE: Final = 1.96
"""Standard errors of a range that holds 95 % of the time."""
NGINX_CLIENTS: Final = 16_000
"""Clients of a worker of nginx: each has two of its 32,768 connections."""
_SERVERS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MAX_SERVERS)
SINGLE_EDGES: Final = {
    Configuration.SINGLE: "one server serves all clients",
    Configuration.Z_PROXY: "one proxy serves all clients",
    Configuration.Z_COMPOSITE: "one composite serves all clients",
}
"""Modes with a single process for clients."""
_FIXED: Final = frozenset({"data", "broadcast", "nginx", "proxy"})
"""Processes with a load independent of the number of servers."""
_CLONES: Final = {Configuration.Z_CLIENT: 1, Configuration.XZ: 2}
"""Modes with clones, and their least number."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a mode."""

    cores_per_host: int = 4
    memory_bytes: float | None = None
    """Of a host; None: any."""
    survive: int = 0
    """Number of client-serving instances that may fail: the others must carry the load."""
    p99_s: float | None = None
    """Longest delay from a write to the client's event."""
    utilisation: float = UTILISATION
    limits: Resources = SERVER_LIMITS
    """Of a server or proxy; ``utilisation`` is that of its CPU."""
    one_address: bool = False
    """True if clients need a single address."""

    @property
    def brokers(self) -> int:
        """Brokers of a local Kafka."""
        return 3 if self.survive else 1

    @property
    def workers(self) -> int:
        """Workers of nginx in front of several hosts."""
        return max(1, min(NGINX_WORKERS, self.cores_per_host))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mode at its least size, or the reason why it is unsuitable."""

    configuration: Configuration
    prediction: Prediction
    cpu: Total
    """Microseconds a second."""
    memory: Total
    """Bytes."""
    hosts: int
    binds: str
    """The process that limits it: the greatest share of its cores."""
    utilisation: float
    """That share."""
    fault: str | None = None
    """Reason why it is unsuitable; None if suitable."""
    final: bool = False
    """True if more servers would not help."""

    @property
    def size(self) -> Size:
        """Its numbers of processes."""
        return self.prediction.size

    @property
    def margin(self) -> float:
        """Error of its CPU time, in microseconds a second: it holds 95 % of the time."""
        return CONFIDENCE * self.cpu.error

    @property
    def requires(self) -> tuple[str, ...]:
        """Its needs besides CPU time and memory, for people."""
        mode = self.configuration
        needed = {
            "Kafka": mode.uses_kafka,
            "SDK": mode is Configuration.Z_CLIENT,
            "ports": mode is Configuration.Z_CLIENT,
            "nginx": mode.behind_nginx and self.hosts > 1,
        }
        return tuple(name for name, is_needed in needed.items() if is_needed)


def fit(configuration: Configuration, load: Load, costs: RoleCosts, needs: Requirements) -> Candidate:
    """Return a mode at the least size that meets the requirements; of xz, at the cheapest.

    If none does, the candidate has the fault of the greatest size. The baseline, all-to-all, never does.
    """
    if needs.one_address and configuration is Configuration.Z_CLIENT:
        found = _sized(configuration, Size(1, 1), load, costs, needs)
        return replace(found, fault="clients connect to every server that they need", final=True)
    if needs.survive and configuration in SINGLE_EDGES:
        found = _sized(configuration, Size(1, 1), load, costs, needs)
        return replace(found, fault=f"{SINGLE_EDGES[configuration]}: none is left when it fails")
    if configuration is Configuration.SINGLE:
        return _sized(configuration, Size(1, 1), load, costs, needs)
    if configuration is Configuration.ALL_TO_ALL:
        found = _sized(configuration, Size(1 + needs.survive), load, costs, needs)
        return replace(found, fault=found.fault or "a baseline: every client is sent every update")
    if configuration in _CLONES:
        return _cheapest_clones(configuration, load, costs, needs)
    return _least(
        lambda servers: _surviving(configuration, Size(servers, 1), load, costs, needs), needs.survive, MAX_SERVERS
    )


def _cheapest_clones(configuration: Configuration, load: Load, costs: RoleCosts, needs: Requirements) -> Candidate:
    """Return the cheapest number of clones: from the least, until CPU time grows again."""
    composites = configuration is Configuration.XZ
    spare = 0 if composites else needs.survive

    def sized(clones: int) -> Candidate:
        def of_servers(servers: int) -> Candidate:
            return _surviving(configuration, Size(servers, clones), load, costs, needs)

        return _least(of_servers, spare, MAX_SERVERS // clones)

    least = _CLONES[configuration] + (needs.survive if composites else 0)
    best = sized(least)
    for clones in range(least + 1, MAX_SERVERS // (2 * (spare + 1)) + 1):
        if best.final and best.binds != "proxy":
            break
        found = sized(clones)
        if found.fault is None and (best.fault is not None or found.cpu.value < best.cpu.value):
            best = found
        elif best.fault is None:
            break
        elif found.final:
            best = found
    return best


def _least(sized: Callable[[int], Candidate], spare: int, most: int) -> Candidate:
    """Return the candidate with the fewest servers, more than ``spare``, that has no fault, else the last one."""
    before = spare
    counts = [each for each in _SERVERS if spare < each < most] + [max(most, spare + 1)]
    found = sized(counts[0])
    for servers in counts[1:]:
        if found.fault is None or found.final:
            break
        before = found.size.servers
        found = sized(servers)
    if found.fault is None:
        for servers in range(before + 1, found.size.servers):
            smaller = sized(servers)
            if smaller.fault is None:
                return smaller
    return found


def _surviving(
    configuration: Configuration, size: Size, load: Load, costs: RoleCosts, needs: Requirements
) -> Candidate:
    """Return the candidate of a size, with the fault of what is left when instances fail."""
    if not needs.survive:
        return _sized(configuration, size, load, costs, needs)
    servers, clones = size
    composites = configuration is Configuration.XZ
    left = Size(servers, clones - needs.survive) if composites else Size(servers - needs.survive, clones)
    remaining = _sized(configuration, left, load, costs, needs)
    found = _sized(configuration, size, load, costs, needs)
    return replace(found, fault=remaining.fault, final=remaining.final, binds=remaining.binds)


def _sized(
    configuration: Configuration, size: Size, load: Load, costs: RoleCosts, needs: Requirements, *, workers: int = 0
) -> Candidate:
    found = predict(configuration, size, load, workers=workers, brokers=needs.brokers)
    shares = {role.name: found.utilisation(role, costs) for role in found.roles}
    binds = max(shares, key=shares.__getitem__)
    cpu, memory = found.cpu(costs), found.memory(costs)
    hosts = max(1, math.ceil(cpu.value / 1e6 / (needs.cores_per_host * needs.utilisation)))
    if needs.memory_bytes:
        hosts = max(hosts, math.ceil(memory.value / needs.memory_bytes))
    if hosts > 1 and configuration.behind_nginx and not workers:
        return _sized(configuration, size, load, costs, needs, workers=needs.workers)
    fault, final = None, False
    if shares[binds] > needs.utilisation:
        fault = f"{_NAMES.get(binds, binds)} would use {shares[binds]:,.0%} of its cores"
        final = binds in _FIXED
    elif full := _full(found, costs, needs):
        binds, fault = full
        final = binds in _FIXED
    elif needs.p99_s is not None:
        least = found.burst_s(costs) + (RUNS[configuration].p99_s or 0.0)
        if least > needs.p99_s:
            fault = f"p99 is at least {least * 1000:,.0f} ms"
    return Candidate(configuration, found, cpu, memory, hosts, binds, shares[binds], fault, final)


def _full(found: Prediction, costs: RoleCosts, needs: Requirements) -> tuple[str, str] | None:
    """Return the process that would exceed a limit of what it takes for clients, and this as a text."""
    limits = needs.limits
    for role in found.roles:
        is_nginx, name = role.name == "nginx", _NAMES.get(role.name, role.name)
        most = NGINX_CLIENTS * needs.workers if is_nginx else limits.clients
        if role.connections > most:
            setting = "" if is_nginx else f" (DIEM_{role.name.upper()}_CAPACITY)"
            return role.name, f"{name} would have {role.connections:,.0f} clients of {most:,.0f}{setting}"
        if is_nginx or not role.connections:
            continue
        memory = costs.memory.get(role.name, 0.0) + role.memory_bytes / role.count
        sent = found.frame_bytes / role.count
        for used, limit, unit, what in (
            (memory, limits.memory_bytes, 2.0**20, "MiB of memory"),
            (sent, limits.sent_bytes_per_s, 1e6, "MB/s to clients"),
        ):
            if used > limit:
                return role.name, f"{name} would have {used / unit:,.0f} {what} of {limit / unit:,.0f}"
    return None


_NAMES: Final = {"data": "the Data Service", "broadcast": "the Broadcast node", "websocket": "a server"} | {
    name: f"a {name}" for name in ("bridge", "proxy", "composite")
}


def compare(load: Load, costs: RoleCosts, needs: Requirements) -> list[Candidate]:
    """Return all modes: those as cheap as the cheapest, simplest first; others, cheapest first; unsuitable ones."""
    found = [fit(each, load, costs, needs) for each in Configuration]
    cheapest = _cheapest([each for each in found if each.fault is None])
    rest = sorted(
        (each for each in found if each not in cheapest), key=lambda each: (each.fault is not None, each.cpu.value)
    )
    return [*cheapest, *rest]


def choose(load: Load, costs: RoleCosts, needs: Requirements) -> Candidate | None:
    """Return the simplest suitable mode among the cheapest; None without one."""
    return next(iter(cheapest(load, costs, needs)), None)


def cheapest(load: Load, costs: RoleCosts, needs: Requirements) -> list[Candidate]:
    """Return the suitable modes as cheap as the cheapest one, within its error, simplest first."""
    suitable: list[Candidate] = []
    most = math.inf
    # A mode is cheapest at its least size, so most need not be sized.
    least = {each: _floor(each, load, costs, needs) for each in Configuration}
    for configuration in sorted(Configuration, key=least.__getitem__):
        if least[configuration] > most:
            break
        found = fit(configuration, load, costs, needs)
        if found.fault is None:
            suitable.append(found)
            most = min(most, found.cpu.value + found.margin)
    return _cheapest(suitable)


def _cheapest(suitable: Sequence[Candidate]) -> list[Candidate]:
    """Return those within the error of the cheapest, in the order of ``Configuration``: the simplest first."""
    if not suitable:
        return []
    best = min(suitable, key=lambda each: each.cpu.value)
    order = list(Configuration)
    found = [each for each in suitable if each.cpu.value <= best.cpu.value + best.margin]
    return sorted(found, key=lambda each: order.index(each.configuration))


def _floor(configuration: Configuration, load: Load, costs: RoleCosts, needs: Requirements) -> float:
    least = Size(1, _CLONES.get(configuration, 1))
    found = predict(configuration, least, load, workers=0, brokers=needs.brokers)
    return sum(found.cpu_by_role(costs).values())


def reason(other: Candidate, chosen: Candidate, costs: RoleCosts) -> str:
    """Return the reason, in one line, why a mode is worse than the chosen one."""
    if other.fault is not None:
        return other.fault
    mine, theirs = chosen.prediction.cpu_by_role(costs), other.prediction.cpu_by_role(costs)
    more = {name: theirs.get(name, 0.0) - mine.get(name, 0.0) for name in {**theirs, **mine}}
    most = sorted(more, key=lambda name: -abs(more[name]))[:3]
    share = other.cpu.value / chosen.cpu.value - 1 if chosen.cpu.value else 0.0
    besides = [name for name in other.requires if name not in chosen.requires]
    needed = f"needs {', '.join(besides)}; " if besides else ""
    close = " (within the error)" if other.cpu.value <= chosen.cpu.value + chosen.margin else ""
    return f"{needed}{share:+.0%} CPU{close}: {', '.join(f'{name} {more[name] / 1000:+,.1f}' for name in most)} ms/s"


@dataclass(frozen=True, slots=True)
class Threshold:
    """The choice up to a value."""

    configuration: Configuration | None
    """None: no mode holds."""
    until: float
    """Infinite for the last one."""


def thresholds(
    at: Callable[[float], Load], low: float, high: float, costs: RoleCosts, needs: Requirements
) -> list[Threshold]:
    """Return the choices between two values of a quantity, turned into loads by ``at``.

    A mode stays the choice while it is within the error of the cheapest. The range is sampled in steps of a factor of
    1.5, and borders are then found to 3 %.
    """

    def choices(value: float) -> list[Configuration | None]:
        return [each.configuration for each in cheapest(at(value), costs, needs)] or [None]

    result: list[Threshold] = []
    value, mode = low, choices(low)[0]
    while value < high:
        following = min(value * 1.5, high)
        found = choices(following)
        if mode not in found:
            below, above = value, following
            while above / below > 1.03:
                middle = math.sqrt(below * above)
                if mode in (between := choices(middle)):
                    below = middle
                else:
                    above, found = middle, between
            result.append(Threshold(mode, below))
            mode = found[0]
        value = following
    return [*result, Threshold(mode, math.inf)]


def outside_calibration(load: Load, servers: int) -> list[str]:
    """Return descriptions of quantities beyond the runs behind the constants."""
    values = {
        "clients": (load.clients, CALIBRATED.clients),
        "endpoints": (load.endpoints, CALIBRATED.endpoints),
        "updates/s": (load.updates, CALIBRATED.updates),
        "writes/s": (load.writes, CALIBRATED.writes),
        "frames/s": (load.frames, CALIBRATED.frames),
        "servers": (servers, CALIBRATED.servers),
    }
    return [f"{value:,.0f} {name} (measured to {most:,.0f})" for name, (value, most) in values.items() if value > most]


def cheaper_mode(
    present: Configuration,
    size: Size,
    load: Load,
    costs: RoleCosts,
    needs: Requirements,
    *,
    brokers: int | None = None,
) -> tuple[Candidate, float] | None:
    """Return a mode cheaper than the present one by more than ``SIGNIFICANT``, and the share saved.

    The present mode counts at the size that it has, and with its ``brokers``; None: with those that it would need.
    """
    now = predict(present, size, load, workers=0, brokers=brokers or needs.brokers).cpu(costs)
    found = choose(load, costs, needs)
    if found is None or found.configuration is present or not now.value:
        return None
    saved = 1 - found.cpu.value / now.value
    return (found, saved) if saved > SIGNIFICANT else None
