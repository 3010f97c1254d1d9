"""Free loopback ports."""

import random
import socket
from typing import Final

OWN_RANGE: Final = range(10_000, 20_000)
"""Neither one of the ports that `diem up` and its brokers look for, nor one that a system takes for outgoing
connections: what is free now is so when it is bound seconds later, whoever dials meanwhile."""

_given: set[int] = set()
# Not the random numbers of the tests, which are the same in several runs.
_random = random.SystemRandom()


def free_port() -> int:
    """A port on which nobody listens, and that this process was not given before."""
    while True:
        port = _random.choice(OWN_RANGE)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as sock:
            # A connection that has just ended is in nobody's way.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
