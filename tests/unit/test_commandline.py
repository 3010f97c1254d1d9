"""Whatever of the tests is run with ``python -m`` explains itself, and does nothing when it is called wrongly."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGINS = '\nif __name__ == "__main__":\n'
SUITES = ("load", "bench", "oracle", "walks")
FILES = [file for suite in SUITES for file in (ROOT / "tests" / suite).rglob("*.py") if BEGINS in file.read_text()]
MODULES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sorted(FILES)}
CHILDREN = {
    *("tests.load.attackers", "tests.load.clients"),
    *("tests.bench.peer_broadcast", "tests.bench.peer_starlette"),
}
"""Started by others, and without a report of their own."""


def test_all_are_found() -> None:
    named = {"tests.load.convergence", "tests.bench.fanout", "tests.oracle.__main__", "tests.walks.__main__"}
    assert named < {*MODULES}
    assert len(MODULES) >= 12


@pytest.mark.parametrize("name", MODULES)
def test_module_that_is_run_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(name)
    # What is run is what is called here; without arguments to give, it would run now.
    assert MODULES[name].read_text().endswith(BEGINS + "    sys.exit(main())\n")
    assert "argv" in inspect.signature(module.main).parameters
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m {name.removesuffix('.__main__')} [-h]")
    assert (module.__doc__ or "").replace("``", "").strip() in said
    if name not in CHILDREN:
        assert "\nreport:\n  " in said
    if "QUICK" in MODULES[name].read_text():
        assert "QUICK=1  " in said


@pytest.mark.parametrize("name", MODULES)
def test_unknown_option_is_an_error_and_nothing_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(name)
    assert "argv" in inspect.signature(module.main).parameters
    with pytest.raises(SystemExit) as ended:
        module.main(["--nonsense"])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err
