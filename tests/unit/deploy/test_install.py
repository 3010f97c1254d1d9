"""The installing scripts use the virtual environment that ``make VENV=DIRECTORY`` names."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[3] / "deploy" / "install"


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_node_is_that_of_the_virtual_environment(tmp_path: Path, relative: bool) -> None:
    package = tmp_path / "package"
    program(package / "bin" / "node", "echo the node of the environment")
    # It has the package, and says where.
    program(tmp_path / "bin" / "python", f"echo {package}")
    venv = os.path.relpath(tmp_path, INSTALL.parents[1]) if relative else str(tmp_path)
    ran = subprocess.run(
        [INSTALL / "node.sh", "node"],
        env={**os.environ, "VENV": venv, "NODE_WHEEL": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines()[-1] == "the node of the environment"


def _install(venv: Path, configuration: str = "", *, uv: str | None = None) -> list[str]:
    """Return the commands that ``packages.sh`` runs, with a pip of this configuration that can install ``uv``."""
    log = venv / "log"
    install = "" if uv is None else f"printf '%s\\n' '#!/bin/sh' {uv!r} >{venv}/bin/uv; chmod +x {venv}/bin/uv"
    program(
        venv / "bin" / "python",
        f"""case "$*" in
          "-m pip config list") echo "{configuration}" ;;
          *uv.txt) {install or "exit 1"} ;;
          *) echo "pip $*" >>{log} ;;
        esac""",
    )
    command = [str(INSTALL / "packages.sh"), "--no-deps", "-r", "packages.txt"]
    subprocess.run(command, env={**os.environ, "VENV": str(venv)}, capture_output=True, check=True)
    return log.read_text().splitlines()


def test_packages_are_installed_by_uv(tmp_path: Path) -> None:
    commands = _install(tmp_path, uv=f'echo "uv $*" >>{tmp_path}/log')
    assert commands == [f"uv pip install --quiet --python {tmp_path}/bin/python --no-deps -r packages.txt"]


@pytest.mark.parametrize("configuration", ["global.index-url='https://packages.example'", ":env:.no-index='1'"])
def test_packages_are_installed_by_pip_where_it_is_configured_for_another_index(
    tmp_path: Path, configuration: str
) -> None:
    (command,) = _install(tmp_path, configuration, uv=f'echo "uv $*" >>{tmp_path}/log')
    assert command.startswith("pip -m pip install")
    assert command.endswith("--no-compile --no-deps -r packages.txt")


@pytest.mark.parametrize("uv", [None, "exit 1"], ids=["no uv for the platform", "uv fails"])
def test_packages_are_installed_by_pip_where_uv_cannot(tmp_path: Path, uv: str | None) -> None:
    (command,) = _install(tmp_path, uv=uv)
    assert command.startswith("pip -m pip install")


@pytest.mark.parametrize(
    ("goals", "made_first"), [(["page"], ".run"), (["install-test", "page"], ".test"), (["client-test"], ".run")]
)
def test_node_of_the_package_index_is_installed_after_the_environment(
    tmp_path: Path, goals: list[str], made_first: str
) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--print-data-base", "--question", f"VENV={tmp_path}", *goals]
    ran = subprocess.run(
        command,
        cwd=INSTALL.parents[1],
        env={**env, "NODE_WHEEL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    (rule,) = [line for line in ran.stdout.splitlines() if line.startswith("client/node_modules/.package-lock.json:")]
    assert rule.endswith(f"| {tmp_path}/{made_first}")


def test_packages_that_npm_has_installed_are_not_installed_again(tmp_path: Path) -> None:
    shutil.copy(INSTALL.parents[1] / "Makefile", tmp_path)
    client = tmp_path / "client"
    (client / "node_modules").mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "node_modules/.package-lock.json"):
        (client / name).touch()

    def is_installed(*, installed_at: int) -> bool:
        # npm writes it last, whoever calls it.
        os.utime(client / "node_modules" / ".package-lock.json", (installed_at, installed_at))
        # Without the options of the `make` that may run these tests.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        command = ["make", "-n", "client-test", "NODE_AFTER="]
        steps = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout
        assert "npm test" in steps
        return "npm ci" not in steps

    for name in ("package.json", "package-lock.json"):
        os.utime(client / name, (2000, 2000))
    assert is_installed(installed_at=3000)
    assert not is_installed(installed_at=1000)
