"""Smooth noise that is a function of seed, name and time: the simulation's weather, without a state to keep."""

from functools import lru_cache
from hashlib import blake2b


@lru_cache(maxsize=32768)
def _lattice(seed: int, name: str, index: int) -> float:
    digest = blake2b(f"{seed}/{name}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**63 - 1.0


def noise(seed: int, name: str, seconds: float, period_s: float) -> float:
    """A value from -1 to 1 that changes smoothly within about ``period_s`` seconds, and differs per name."""
    index, rest = divmod(seconds, period_s)
    part = rest / period_s
    smooth = part * part * (3 - 2 * part)
    before = _lattice(seed, name, int(index))
    return before + (_lattice(seed, name, int(index) + 1) - before) * smooth
