"""Processes of a load test that end without a result."""

from pathlib import Path

from deploy.terminal import Terminal
from tests.support.ports import free_port
from tools.load.processes import LoadProcesses
from tools.load.result import LoadResult, merge


async def test_clients_of_a_process_without_a_result_are_missing(tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    mine = LoadResult(nobody, 3, 3, 5, 20, 1, partitioned=False, wait_s=30.0)
    arguments = [nobody, "--state-dir", str(tmp_path)]
    async with LoadProcesses([2], arguments, rate=10.0, within_s=0.0, terminal=Terminal(quiet=True)) as others:
        await others.start()
        await others.finish()
    found = merge(others.results(mine))
    assert (found.clients, found.subscribed, found.passed) == (5, 3, False)
    assert found.problems[0].startswith("process 2 ended without a result: ")
    assert nobody in found.problems[0]
