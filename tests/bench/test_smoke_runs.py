"""Benchmarks that need neither Kafka nor Spark and little CPU time run; ``make smoke`` runs all."""

from pathlib import Path

import pytest

from tests.bench.native import NoCompiler
from tests.smoke import LOGS, runs, smoke
from tests.support.required import unavailable

CHEAP = ("codecs", "reads")


@pytest.mark.takes(15)
@pytest.mark.parametrize("name", CHEAP)
async def test_benchmark_runs_and_writes_its_report(name: str, tmp_path: Path) -> None:
    (run,) = [run for run in runs() if run.name == name]
    outcome = await smoke(run, tmp_path)
    log = (LOGS / f"{name}.log").read_text()
    if outcome.fault and str(NoCompiler()) in log:
        unavailable("a C compiler", NoCompiler())
    assert not outcome.fault, log
