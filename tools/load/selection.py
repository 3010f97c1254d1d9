"""Selection of endpoints, and assignment to clients; pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random

from diem.errors import ConfigurationError


@dataclass(eq=False)
class NoEndpoints(ConfigurationError):
    """There is nothing to subscribe to."""

    template = (
        "{base} has no endpoint {wanted}: name others with --endpoints, or use --write N for endpoints of our own"
    )

    base: str
    wanted: str


def select(catalogue: Collection[str], wanted: str | None) -> list[str]:
    """Return names of a catalogue in order: all, the first N for a number, else those matching a pattern.

    In a pattern ``*`` stands for any characters, also ``/``; ``?`` for one character.
    """
    names = sorted(catalogue)
    if wanted is None:
        return names
    if wanted.isdecimal():
        return names[: int(wanted)]
    return [name for name in names if fnmatchcase(name, wanted)]


def assign(endpoints: Sequence[str], clients: int, subscriptions: int, seed: int) -> list[list[str]]:
    """Return each client's endpoints: distinct random ones, up to ``subscriptions``."""
    random = Random(seed)  # noqa: S311 - the same seed, the same subscriptions
    count = min(subscriptions, len(endpoints))
    return [random.sample(endpoints, count) for _ in range(clients)]
