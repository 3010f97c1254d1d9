"""Lower bounds of any placement, and the endpoint that makes a load bound infeasible."""

from dataclasses import dataclass

import numpy as np

from diem.errors import DiemError
from metadata.placement.backend import Backend
from metadata.placement.baselines import lpt
from metadata.placement.blocks import Floats
from metadata.placement.objective import load_of_parts


@dataclass(eq=False)
class Infeasible(DiemError):
    """No placement was found that keeps the load bound. ``epsilon`` is the one that could have been kept."""

    template = "{endpoint} {reason}; the bound can be kept from epsilon = {epsilon:.3f} on"

    endpoint: str
    reason: str
    epsilon: float


def least_load(load: Floats, k: int) -> float:
    """Lower bound of the fullest server's load: the mean, the largest endpoint, the k-th and the next one together."""
    if not load.size:
        return 0.0
    falling = -np.sort(-load)
    pair = float(falling[k - 1] + falling[k]) if load.size > k else 0.0
    return max(float(load.sum()) / k, float(falling[0]), pair)


def least_fan_out(backend: Backend, load: Floats, most: float) -> float:
    """Lower bound of the mean fan-out: a client whose endpoints are more than ``most`` needs several servers.

    ``load`` is 0 for hot endpoints. The bound is weak: it is near 1 unless clients subscribe to a lot.
    """
    clients, servers = backend.needed(load, most).tolist()
    return servers / clients if clients else 1.0


def obstacle(load: Floats, k: int, epsilon: float) -> tuple[int, float] | None:
    """The endpoint because of which ``load`` cannot be balanced over ``k`` servers, and the epsilon that LPT reaches.

    None when LPT keeps the bound; otherwise the largest endpoint of the server that LPT fills most. (LPT is within
    4/3 - 1/(3k) of the optimum: it may name an obstacle where a better packing exists.)
    """
    if not load.sum() > 0:
        return None
    part = lpt(load, k)
    filled = load_of_parts(load, part, k)
    reached = float(filled.max() / filled.mean()) - 1
    if reached <= epsilon + 1e-9:
        return None
    return int(np.argmax(np.where(part == filled.argmax(), load, -1.0))), reached
