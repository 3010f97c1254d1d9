"""What a plan promised, laid beside what was counted before and after it; pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from deploy.topology import ProxyMode
from metadata.plans.plan import Plan
from tests.load.bench import Goal
from tests.load.injection.counting import Counted

OFF_SHARE: Final = 0.05
"""By which counted connections may differ from those that were predicted."""
CPU_OFF_SHARE: Final = 0.25
"""By which counted CPU time may: ``make bench-cost`` allows its model 20 % where nothing else runs."""
FEWER_SHARE: Final = 0.9
"""Of the connections before: clients that look at the same need far fewer."""
STAY: Final = "connections stay one to each server for each proxy, whatever the map"
"""What a plan says where proxies are shared."""
_ROWS: Final = (
    ("connections to servers", "connections", ".1f"),
    ("fan-out, mean", "fan_out", ".2f"),
    ("work of servers, max/mean", "max_over_mean_work", ".3f"),
    ("CPU of servers and bridges, ms/s", "cpu_ms_per_s", ".1f"),
)


class Figures(NamedTuple):
    """Of one placement. None: not predicted, or not counted."""

    connections: float
    fan_out: float | None
    """Servers that a client needs."""
    max_over_mean_work: float
    cpu_ms_per_s: float


class Beside(NamedTuple):
    """One placement: as the plan has it, and as it was."""

    predicted: Figures
    counted: Figures

    @property
    def off(self) -> float:
        """By which share of the prediction the connections are more, or fewer."""
        return abs(self.counted.connections / self.predicted.connections - 1)

    @property
    def cpu_off(self) -> float:
        """By which share of the prediction the CPU time is more, or less."""
        return abs(self.counted.cpu_ms_per_s / self.predicted.cpu_ms_per_s - 1)


def beside(plan: Plan, placement: str, before: Counted, counted: Counted, clients: int) -> Beside:
    """Figures of a placement of the plan's report (``current`` or ``plan``), and of what was ``counted`` with it.

    The report leaves out what no placement changes: frames, being woken by a write, being there at all. Those counted
    ``before`` are added. A write has so many updates that it wakes every server.
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
    shared = plan.report["proxy"] == ProxyMode.SHARED
    return Beside(
        Figures(
            own["connections"],
            own["fan_out"],
            own["max_over_mean_load"],
            round((own["cpu_us_per_s"] + frames + always) / 1e3, 1),
        ),
        Figures(
            counted.connections,
            # The links of shared proxies do not tell what clients need.
            None if shared else round(counted.connections / clients, 3),
            round(max(work) * len(work) / sum(work), 3),
            round(sum(counted.cpu.values()), 1),
        ),
    )


def goals_of(plan: Plan, proxies: int, before: Beside, after: Beside, said: str) -> list[Goal]:
    """What the connections should be: as predicted and fewer, or with shared proxies as before, and that is said."""
    cpu = [
        Goal(f"CPU time {when}, off the prediction", "", CPU_OFF_SHARE, round(each.cpu_off, 3))
        for when, each in (("before", before), ("after", after))
    ]
    if plan.report["proxy"] == ProxyMode.SHARED:
        (servers,) = map(int, plan.report["servers"])
        return [
            *cpu,
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
        *cpu,
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
    """Both placements as lines for a person; each a :class:`Beside` as a bench file has it."""
    lines = [f"{title:<36}{'before':>22}{'after':>22}", f"{'':<36}" + f"{'predicted':>11}{'counted':>11}" * 2]
    for label, name, form in _ROWS:
        values = [each[side][name] for each in (before, after) for side in ("predicted", "counted")]
        cells = ["-" if value is None else format(value, form) for value in values]
        lines.append(f"  {label:<34}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)
