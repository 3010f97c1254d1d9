"""The recommendation for a load: a comparison of all modes, thresholds, and the map of modes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from deploy.invocation import diem_command
from learning.costs import MEANINGS, ROLES, RoleCosts
from learning.modes import recommend
from learning.modes.configuration import Configuration, Size, up_arguments
from learning.modes.load import Load
from learning.modes.measured import RUNS
from learning.modes.recommend import Candidate, Requirements, Threshold
from learning.recommend.source import LoadSource, mean_source_of

MOST_GROWTH: Final = 1000.0
MOST_CLIENTS: Final = 1e6
"""End of the thresholds."""
MOST_UPDATES: Final = 1e5


@dataclass(frozen=True)
class Advice:
    """All parts of a recommendation, computed on access."""

    source: LoadSource
    costs: RoleCosts
    needs: Requirements
    growth: float = 1.0

    @cached_property
    def load(self) -> Load:
        """The load to be carried."""
        return self.source.load.grown(self.growth)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """All modes, the recommended one first, unsuitable ones last."""
        return recommend.compare(self.load, self.costs, self.needs)

    @property
    def chosen(self) -> Candidate | None:
        """The recommended one."""
        return self.candidates[0] if self.candidates[0].fault is None else None

    @cached_property
    def by_updates(self) -> list[Threshold]:
        """The choice by updates a second, with the same clients."""
        return self._thresholds(lambda value: self.load.scaled(self.load.clients, value), MOST_UPDATES)

    @cached_property
    def by_clients(self) -> list[Threshold]:
        """The choice by clients, with the same updates."""
        return self._thresholds(lambda value: self.load.scaled(value, self.load.updates), MOST_CLIENTS)

    def _thresholds(self, at: Callable[[float], Load], most: float) -> list[Threshold]:
        return recommend.thresholds(at, 1.0, most, self.costs, self.needs)

    @cached_property
    def following(self) -> tuple[float, Candidate | None] | None:
        """The growth beyond which another mode is cheaper than the chosen one, and that mode; None: never."""
        if self.chosen is None:
            return None
        until = recommend.thresholds(self.load.grown, 1.0, MOST_GROWTH, self.costs, self.needs)[0].until
        if math.isinf(until):
            return None
        factor = until * 1.03  # the precision of thresholds
        return factor, recommend.choose(self.load.grown(factor), self.costs, self.needs)

    @property
    def cheaper(self) -> str | None:
        """A sentence about a mode much cheaper than the current one; None without one, or if nothing runs."""
        if self.source.present is None:
            return None
        return cheaper_mode(self.source.present, self.source.size, self.load, self.costs, self.needs)

    @cached_property
    def unmeasured(self) -> list[str]:
        """Unmeasured contributions to the costs of some mode, for people."""
        names = dict.fromkeys(name for each in self.candidates for name in each.cpu.unmeasured)
        return [MEANINGS.get(name, name) for name in names]

    @cached_property
    def outside(self) -> list[str]:
        """Quantities beyond the runs behind the constants."""
        servers = self.chosen.size.all_servers if self.chosen else 1
        return recommend.outside_calibration(self.load, servers)

    def as_json(self) -> dict[str, Any]:
        """Return the recommendation as a JSON object; CPU in microseconds a second, memory and traffic in bytes."""
        load, chosen = self.load, self.chosen
        return {
            "source": self.source.text,
            "load": {name: getattr(load, name) for name in load.__slots__}
            | {"frames": load.frames, "subscribers": load.frames_per_update},
            "costs": {"source": self.costs.source, "built_in": list(self.costs.built_in)},
            "mode": None if chosen is None else chosen.configuration,
            "command": None if chosen is None else command(chosen, self.needs),
            "modes": [self._candidate(each) for each in self.candidates],
            "thresholds": {
                "updates": [_threshold(each) for each in self.by_updates],
                "clients": [_threshold(each) for each in self.by_clients],
            },
            "outside_calibration": self.outside,
            "unmeasured": self.unmeasured,
        }

    def _candidate(self, each: Candidate) -> dict[str, Any]:
        found = each.prediction
        return {
            "configuration": str(each.configuration),
            "servers": each.size.servers,
            "clones": each.size.clones,
            "partitions": each.size.partitions if each.configuration.uses_kafka else None,
            "cpu": each.cpu.value,
            "cpu_error": each.cpu.error,
            "cpu_by_role": found.cpu_by_role(self.costs),
            "memory": each.memory.value,
            "needs": each.requires,
            "egress": found.egress_bytes,
            "connections": found.connections,
            "kafka_in": found.kafka_in_bytes,
            "kafka_out": found.kafka_out_bytes,
            "hosts": each.hosts,
            "binds": each.binds,
            "utilisation": each.utilisation,
            "loss_s": RUNS[each.configuration].loss_s,
            "edge_loss_s": RUNS[each.configuration].edge_loss_s,
            "fault": each.fault,
        }


def command(candidate: Candidate, needs: Requirements) -> str:
    """Return the command that starts a candidate."""
    return diem_command(*up_arguments(candidate.configuration, candidate.size, needs.brokers))


def _threshold(found: Threshold) -> dict[str, Any]:
    name = None if found.configuration is None else str(found.configuration)
    return {"configuration": name, "until": None if math.isinf(found.until) else found.until}


def cheaper_mode(present: Configuration, size: Size, load: Load, costs: RoleCosts, needs: Requirements) -> str | None:
    """Return a sentence about a mode much cheaper than the present one; None without one."""
    found = recommend.cheaper_mode(present, size, load, costs, needs)
    return None if found is None else _cheaper(*found, present, needs)


def _cheaper(other: Candidate, saved: float, present: Configuration, needs: Requirements) -> str:
    return f"{command(other, needs)} would take {saved:.0%} less CPU than the {present} that runs"


def remark(status: Mapping[str, Any], cores: int) -> str | None:
    """Return a sentence about a mode that would be much cheaper than the one of a reply of ``status``.

    Where clients have several servers, one of them may be there for the case that another fails: so may one of the
    other mode. None: no mode is, or the load is not within what was measured.
    """
    source = mean_source_of(status)
    if source is None or source.present is None:
        return None
    load, present, size = source.load, source.present, source.size
    spare = present not in recommend.SINGLE_EDGES and size.all_servers > 1
    needs = Requirements(cores_per_host=cores, survive=int(spare))
    if not min(load.clients, load.updates, load.endpoints) > 0:
        return None
    brokers = sum(process["process"] == "kafka" for process in status["processes"])
    found = recommend.cheaper_mode(present, size, load, ROLES, needs, brokers=brokers)
    if found is None:
        return None
    servers = max(size.all_servers, found[0].size.all_servers)
    return None if recommend.outside_calibration(load, servers) else _cheaper(*found, present, needs)
