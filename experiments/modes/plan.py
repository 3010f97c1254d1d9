"""Which runs a comparison has; pure."""

from dataclasses import dataclass
from typing import Any, Final

from experiments.modes.regimes import R1, R2, R2_STORED, R3, R4, R5, Regime
from learning.modes.configuration import Configuration, Size
from tests.support.size import RunSize, sized

SECONDS: Final = 20.0
"""Length of the trace of a run."""
REST_S: Final = sized(4.0, 4.0, 1.0)
"""Of runs that the constants are fitted to: so long they are measured before, at rest."""
QUICK_SECONDS: Final = 6.0
QUICK_FACTOR: Final = 10
"""Of a quick run, R2 has so much less of everything."""
SERVERS: Final = 4
QUICK_SERVERS: Final = 2
SMOKE_SECONDS: Final = 2.0
SEED: Final = 1

ALL: Final = (
    Configuration.X_BROADCAST,
    Configuration.X,
    Configuration.Z_CLIENT,
    Configuration.Z_PROXY,
    Configuration.Z_COMPOSITE,
    Configuration.XZ,
)
"""Configurations with any number of servers."""
QUICK: Final = (Configuration.X_BROADCAST, Configuration.X, Configuration.Z_CLIENT, Configuration.Z_PROXY)
ONCE: Final = frozenset({Configuration.ALL_TO_ALL, Configuration.Z_COMPOSITE, Configuration.XZ})
"""Configurations that R1 measures in one round: their processes are those of others, or far from the others."""
PARTITIONED: Final = ALL[1:]
"""Configurations with Kafka: those without cannot take what is written straight to the topic."""
CHOICES: Final = (Configuration.X_BROADCAST, Configuration.X, Configuration.Z_CLIENT)
REGIME_MODES: Final[tuple[tuple[Regime, tuple[Configuration, ...]], ...]] = (
    (R2, PARTITIONED),
    (R2_STORED, CHOICES),
    (R3, ALL),
    (R4[0], CHOICES),
    (R4[1], (*CHOICES, Configuration.Z_PROXY)),
)
"""Regimes after R1, and the configurations that are measured in each; composites cannot have expensive updates."""
QUICK_REGIME_MODES: Final[tuple[tuple[Regime, tuple[Configuration, ...]], ...]] = (
    (R2.smaller(QUICK_FACTOR), (Configuration.X,)),
    (R4[1], (Configuration.X_BROADCAST,)),
)
PLANNED: Final = (Configuration.Z_CLIENT,)
"""Configurations in which a plan changes the connections: R5 measures them by hash and by plan."""
CONTROL: Final = Configuration.X
"""The configuration that is measured once more as if it were another one."""


@dataclass(frozen=True)
class Run:
    """One measurement of a configuration under a regime."""

    regime: Regime
    configuration: Configuration
    size: Size
    round: int
    seconds: float
    fitted: bool = False
    """The constants are fitted to it; the others are predicted."""
    control: bool = False
    """Repeats another run, to show what two measurements of the same differ by."""
    planned: bool = False
    """Endpoints are where a plan puts them that is learnt from the trace, not where their hash does."""

    @property
    def group(self) -> str:
        """Name without the round."""
        mode = str(self.configuration).replace(" ", "-")
        clones = f"x{self.size.clones}" if self.size.clones > 1 else ""
        suffix = "-again" if self.control else "-planned" if self.planned else ""
        return f"{self.regime.name}-{mode}-{self.size.servers}{clones}{suffix}"

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.group}-{self.round}"

    def as_json(self) -> dict[str, Any]:
        """Return what makes it another run if it changes."""
        return {
            "regime": {
                name: value for name, value in vars(self.regime).items() if name != "meaning" and value is not None
            },
            "configuration": str(self.configuration),
            "servers": self.size.servers,
            "clones": self.size.clones,
            "round": self.round,
            "seconds": self.seconds,
            "seed": SEED,
            "control": self.control,
            "planned": self.planned,
        }


def size_of(configuration: Configuration, servers: int) -> Size:
    """Return the size with so many servers in all; xz has two composites, or one for a single server."""
    if configuration is Configuration.XZ and servers > 1:
        return Size(servers // 2, 2)
    return Size(servers, 1)


def runs(of: RunSize, *, recorded: tuple[Regime, float] | None = None) -> list[Run]:
    """Return the runs in their order: those that the constants are fitted to come first, each round there and back.

    A ``recorded`` trace of so many seconds is in the place of the regimes after R1.
    """
    if of is RunSize.SMOKE:
        return [
            Run(R1.smaller(QUICK_FACTOR), CONTROL, Size(1, 1), 1, SMOKE_SECONDS, fitted=True),
            Run(R5.smaller(QUICK_FACTOR), PLANNED[0], Size(QUICK_SERVERS), 1, SMOKE_SECONDS, planned=True),
        ]
    quick = of is RunSize.QUICK
    servers, seconds, rounds = (QUICK_SERVERS, QUICK_SECONDS, 1) if quick else (SERVERS, SECONDS, 2)
    modes = QUICK if quick else ALL
    once = (Configuration.SINGLE,) if quick else (Configuration.SINGLE, Configuration.ALL_TO_ALL)
    found = []
    for number in range(1, rounds + 1):
        first = [Run(R1, mode, Size(1, 1), number, seconds, fitted=True) for mode in (*once, *modes)]
        found += _there_and_back(first, number)
    for number in range(1, rounds + 1):
        second = [Run(R1, mode, size_of(mode, servers), number, seconds) for mode in modes]
        second.append(Run(R1, CONTROL, size_of(CONTROL, servers), number, seconds, control=True))
        found += _there_and_back(second, number)
    if recorded is not None:
        regime, length = recorded
        return found + [Run(regime, mode, size_of(mode, servers), 1, length) for mode in modes if mode in _RECORDED]
    for regime, later in QUICK_REGIME_MODES if quick else REGIME_MODES:
        found += [Run(regime, mode, size_of(mode, servers), 1, seconds) for mode in later]
    for mode in PLANNED[:1] if quick else PLANNED:
        found += [Run(R5, mode, Size(servers), 1, seconds, planned=planned) for planned in (False, True)]
    return found


_RECORDED: Final = frozenset({Configuration.X, Configuration.Z_CLIENT, Configuration.Z_PROXY})


def _there_and_back(round_: list[Run], number: int) -> list[Run]:
    """Return the runs of a round in their order."""
    if number == 1:
        return round_
    return [run for run in reversed(round_) if run.configuration not in ONCE]
