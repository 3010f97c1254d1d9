"""Another user of this machine, who wants the ports of DIEM's processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

NOBODY: Final = 65_534

_PROGRAM: Final = """
import itertools, json, os, select, socket, sys
ports, user = json.loads(sys.argv[1])
options = [(), (socket.SO_REUSEADDR,)]
if user is not None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    # As the user of DIEM we would share its ports.
    options += [(socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
def listen(host, port, options):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        for option in options:
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        sock.bind((host, port))
        sock.listen()
ended, got, rounds = False, set(), 0
while not ended:
    # All are tried once more after the end of the input.
    ended = bool(select.select([sys.stdin], [], [], 0.001)[0])
    for host, port, chosen in itertools.product(("127.0.0.1", "0.0.0.0", "::1", "::"), ports, options):
        try:
            listen(host, port, chosen)
        except OSError:
            continue
        got.add(port)
    if ended or not rounds:
        print(json.dumps(sorted(got)), flush=True)
    rounds += 1
"""


class Intruder:
    """A process that tries to listen on ports again and again, and records where it could."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ports(self) -> list[int]:
        """Have it try once more and end; return the ports on which it could listen at any time."""
        lines, _ = self._process.communicate()
        found: list[int] = json.loads(lines.splitlines()[-1])
        return found


@contextmanager
def intruder(ports: Iterable[int]) -> Iterator[Intruder]:
    """Run an intruder that has tried all ports once when the block begins.

    It is another user if the tests have root's right to become one, else the same one without SO_REUSEPORT.
    """
    user = NOBODY if os.geteuid() == 0 else None
    arguments = (sys.executable, "-ISc", _PROGRAM, json.dumps([[*ports], user]))
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield Intruder(process)
        finally:
            process.kill()
