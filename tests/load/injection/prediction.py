"""Comparison of a plan's prediction with the measurements before and after it; pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from deploy.topology import Mode
from metadata.plans.plan import Plan
from tests.load.bench import Goal
from tests.load.injection.measurement import Measured

OFF_SHARE: Final = 0.05
"""Allowed deviation of measured connections from the prediction."""
CPU_OFF_SHARE: Final = 0.25
"""Allowed deviation of the measured effect of a plan on CPU time; ``make bench-cost`` allows its model 20 %.

The effect is CPU time after over before: costs in microseconds were fitted on one machine, and the same code took from
1.36 to 2.26 of one of them on two days of another.
"""
FEWER_SHARE: Final = 0.9
"""Largest share of the connections before: clients with the same interests need far fewer."""
STAY: Final = "connections stay one to each server for each proxy, whatever the map"
"""Text of a plan where proxies are shared."""
_ROWS: Final = (
    ("connections to servers", "connections", ".1f"),
    ("fan-out, mean", "fan_out", ".2f"),
    ("work of servers, max/mean", "max_over_mean_work", ".3f"),
    ("CPU of servers and bridges, ms/s", "cpu_ms_per_s", ".1f"),
)


class Figures(NamedTuple):
    """Figures of one placement; None: not predicted, or not measured."""

    connections: float
    fan_out: float | None
    """Mean number of servers that a client needs."""
    max_over_mean_work: float
    cpu_ms_per_s: float


class Comparison(NamedTuple):
    """One placement: prediction and measurement."""

    predicted: Figures
    counted: Figures

    @property
    def off(self) -> float:
        """Relative deviation of the connections from the prediction."""
        return abs(self.counted.connections / self.predicted.connections - 1)


def compare(plan: Plan, placement: str, before: Measured, counted: Measured, clients: int) -> Comparison:
    """Compare a placement of the plan's report (``current`` or ``plan``) with what was ``counted``.

    Updates and connections are those of the report. Frames, wake-ups by writes and idle processes, which no placement
    changes, are as measured ``before``. A write has so many updates that it wakes every server.
    """
    costs = plan.costs
    (figures,) = plan.report["servers"].values()
    own = figures[placement]
    frames = costs["delivery_us"] * sum(before.delivered.values())
    always = len(before.taken) * (costs["idle_us_per_s"] + costs["write_us"] * before.writes)
    work = [
        costs["update_us"] * counted.taken[server] + costs["delivery_us"] * counted.delivered[server]
        for server in counted.taken
    ]
    behind_proxy = plan.report["mode"] != Mode.Z_CLIENT
    return Comparison(
        Figures(
            own["connections"],
            own["fan_out"],
            own["max_over_mean_load"],
            round((own["updates_us_per_s"] + own["connections_us_per_s"] + frames + always) / 1e3, 1),
        ),
        Figures(
            counted.connections,
            # The links of proxies do not show the needs of clients.
            None if behind_proxy else round(counted.connections / clients, 3),
            round(max(work) * len(work) / sum(work), 3),
            round(sum(counted.cpu.values()), 1),
        ),
    )


def goals_of(plan: Plan, proxies: int, before: Comparison, after: Comparison, said: str) -> list[Goal]:
    """Return the goals: connections and the effect on CPU time as predicted, and fewer connections.

    With proxies connections are to stay as they are, as the plan states.
    """
    predicted = after.predicted.cpu_ms_per_s / before.predicted.cpu_ms_per_s
    counted = after.counted.cpu_ms_per_s / before.counted.cpu_ms_per_s
    cpu = Goal(
        "CPU time after, as a share of that before, off the prediction",
        "",
        CPU_OFF_SHARE,
        round(abs(counted / predicted - 1), 3),
    )
    if plan.report["mode"] != Mode.Z_CLIENT:
        (servers,) = map(int, plan.report["servers"])
        return [
            cpu,
            *(
                Goal(
                    f"connections {when} that are not one to each server for each proxy",
                    "",
                    0,
                    abs(each.counted.connections - servers * proxies),
                )
                for when, each in (("before", before), ("after", after))
            ),
            Goal("the plan says that connections stay", "", 1, float(STAY in said), at_least=True),
        ]
    return [
        cpu,
        Goal("connections before, off the prediction", "", OFF_SHARE, round(before.off, 3)),
        Goal("connections after, off the prediction", "", OFF_SHARE, round(after.off, 3)),
        Goal(
            "connections after, share of those before",
            "",
            FEWER_SHARE,
            round(after.counted.connections / before.counted.connections, 3),
        ),
    ]


def table(title: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return both placements as text; each is a :class:`Comparison` as in a bench file."""
    lines = [f"{title:<36}{'before':>22}{'after':>22}", f"{'':<36}" + f"{'predicted':>11}{'counted':>11}" * 2]
    for label, name, form in _ROWS:
        values = [each[side][name] for each in (before, after) for side in ("predicted", "counted")]
        cells = ["-" if value is None else format(value, form) for value in values]
        lines.append(f"  {label:<34}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)
