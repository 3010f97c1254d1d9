"""Finds free ports on this machine."""

import random
from collections.abc import Callable
from typing import Final

from deploy.topology import HOST
from diem.process.listeners import BindFailed, PortTaken, bind

OWN_RANGE: Final = range(20_000, 30_000)
"""Below the range from which systems take the ports of outgoing connections."""


def is_free(port: int) -> bool:
    """Whether a process of this user could listen on the port now; nothing keeps another one from taking it next."""
    try:
        bind(HOST, port).close()
    except (PortTaken, BindFailed):
        return False
    return True


def documented(default: int) -> int:
    """Start the search at the documented port."""
    return default


def scattered(rng: random.Random) -> Callable[[int], int]:
    """Start each search at a random port, so that several of us on one machine hardly ever meet."""
    return lambda _default: rng.choice(OWN_RANGE)
