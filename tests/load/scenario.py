"""What a convergence run is made of, and what it showed."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.load.bench import Goal
from tests.oracle import Report


@dataclass(frozen=True)
class Scenario:
    """What to run. ``faults`` are injected one after the other, evenly over the time of the writes."""

    mode: str = "single"
    seconds: float = 30.0
    clients: int = 500
    subscriptions: int = 10
    endpoints: int = 200
    rate: float = 1000.0
    """Updates a second."""
    churn_seconds: float = 20.0
    probes: int = 1
    faults: tuple[str, ...] = ()
    seed: int = 1
    controls: bool = False
    """Try the negative controls on the recorded history."""

    @property
    def name(self) -> str:
        """Of the bench file and the folder of histories."""
        return "-".join(["convergence", self.mode, *self.faults])


@dataclass(frozen=True)
class Outcome:
    """What a run showed."""

    scenario: Scenario
    report: Report
    figures: dict[str, Any]
    goals: list[Goal]
    folder: Path

    @property
    def clean(self) -> bool:
        """Whether the oracle found nothing."""
        return self.report.clean


def quick(scenario: Scenario) -> Scenario:
    """The scenario, shortened when QUICK is set in the environment."""
    if not os.environ.get("QUICK"):
        return scenario
    short = {"seconds": 5.0, "clients": min(scenario.clients, 100), "rate": min(scenario.rate, 500.0)}
    return Scenario(**{**asdict(scenario), **short})
