"""Which runs a comparison has; pure."""

from dataclasses import dataclass
from typing import Any, Final

from metadata.modes.configuration import Configuration, Size
from tests.load.regimes import R1, R2, R3, R4, Regime

SECONDS: Final = 30.0
"""Length of the trace of a run."""
QUICK_SECONDS: Final = 6.0
QUICK_FACTOR: Final = 10
"""Of a quick run, R2 has so much less of everything."""
SERVERS: Final = 4
QUICK_SERVERS: Final = 2
SEED: Final = 1

ALL: Final = (
    Configuration.X_BROADCAST,
    Configuration.X,
    Configuration.Z_CLIENT,
    Configuration.Z_SHARED,
    Configuration.Z_PASSTHROUGH,
    Configuration.Z_COMPOSITE,
    Configuration.XZ,
)
"""Configurations with any number of servers."""
QUICK: Final = (Configuration.X_BROADCAST, Configuration.X, Configuration.Z_CLIENT, Configuration.Z_SHARED)
REGIME_MODES: Final = (Configuration.X, Configuration.Z_CLIENT, Configuration.Z_SHARED)
"""Configurations of the regimes after R1."""
QUICK_REGIME_MODES: Final = (Configuration.X, Configuration.Z_CLIENT)
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

    @property
    def group(self) -> str:
        """Name without the round."""
        mode = str(self.configuration).replace(" ", "-")
        clones = f"x{self.size.clones}" if self.size.clones > 1 else ""
        return f"{self.regime.name}-{mode}-{self.size.servers}{clones}{'-again' if self.control else ''}"

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
        }


def size_of(configuration: Configuration, servers: int) -> Size:
    """Return the size with so many servers in all; xz has two composites, or one for a single server."""
    if configuration is Configuration.XZ and servers > 1:
        return Size(servers // 2, 2)
    return Size(servers, 1)


def runs(*, quick: bool, recorded: tuple[Regime, float] | None = None) -> list[Run]:
    """Return the runs in their order: those that the constants are fitted to come first, each round there and back.

    A ``recorded`` trace of so many seconds is in the place of R2 to R4.
    """
    servers, seconds, rounds = (QUICK_SERVERS, QUICK_SECONDS, 1) if quick else (SERVERS, SECONDS, 2)
    modes, later = (QUICK, QUICK_REGIME_MODES) if quick else (ALL, REGIME_MODES)
    once = () if quick else (Configuration.SINGLE, Configuration.ALL_TO_ALL)
    found = []
    for number in range(1, rounds + 1):
        first = [Run(R1, mode, Size(1, 1), number, seconds, fitted=True) for mode in (*once, *modes)]
        found += first if number % 2 else first[::-1]
    for number in range(1, rounds + 1):
        second = [Run(R1, mode, size_of(mode, servers), number, seconds) for mode in modes]
        second.append(Run(R1, CONTROL, size_of(CONTROL, servers), number, seconds, control=True))
        found += second if number % 2 else second[::-1]
    regimes = (R2.smaller(QUICK_FACTOR), R3, R4[-1]) if quick else (R2, R3, *R4)
    traces = [(each, seconds) for each in regimes] if recorded is None else [recorded]
    return found + [Run(each, mode, size_of(mode, servers), 1, length) for each, length in traces for mode in later]
