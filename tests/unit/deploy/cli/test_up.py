import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from diem.process.ports import PortReservations


def test_ports_stay_reserved_and_files_private_until_it_ends(
    diem: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    before = os.umask(0o022)

    def serve(_life: object, main: Callable[[], Awaitable[None]]) -> int:
        main()  # makes the object below
        with PortReservations() as other:
            assert seen
            assert not any(map(other.reserve, seen))
        assert os.umask(0o077) == 0o077, "what children make is their owner's alone"
        return 0

    class Up:
        def __init__(self, _options: object, topology: Any, *_others: object) -> None:
            for process in topology.processes:
                seen.extend(port for port in process.ports if port is not None)

        def run(self, _life: object) -> None:
            pass

    monkeypatch.setattr("deploy.cli.up.Up", Up)
    monkeypatch.setattr("diem.process.lifecycle.serve", serve)
    try:
        assert diem("up", "--free-ports", "--quiet") == 0
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    with PortReservations() as later:
        assert all(map(later.reserve, seen))
