"""Which tests of `make test` run in which process."""

from pathlib import Path

import pytest

from tests.run import PIPELINE, ROOT, SERVICES, UNITS, WITHOUT_SPARK, Selection, select


@pytest.mark.parametrize("argument", ["tests", UNITS])
def test_each_folder_that_has_its_own_process_runs_once(argument: str) -> None:
    early, services, units, pipeline, others = select([argument])
    assert early == list(WITHOUT_SPARK)
    assert services == [SERVICES]
    assert all((ROOT / folder).is_dir() for folder in (*early, *services, PIPELINE))
    assert units == [UNITS, *(f"--ignore={folder}" for folder in (*early, *services))]
    whole = argument == "tests"
    assert pipeline == [PIPELINE] * whole
    assert others == ["tests", f"--ignore={UNITS}", f"--ignore={PIPELINE}"] * whole


def test_single_modules_run_in_the_workers() -> None:
    module = str(Path(UNITS, "test_run.py"))
    assert select([module, "tests/contract"]) == Selection([], [], [], [], [module, "tests/contract"])
