"""The wheel has all that ``diem up`` needs: installed without a checkout, it serves its page."""

import asyncio
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from asyncio.subprocess import PIPE, STDOUT
from importlib.metadata import PathDistribution, distribution
from pathlib import Path
from typing import Final

import httpx
import pytest
from packaging.requirements import Requirement

from tests.integration.deploy.running import ROOT
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster, unavailable

pytestmark = [pytest.mark.takes(20), pytest.mark.xdist_group("wheel")]
BUILT: Final = ROOT / "client" / "dist" / "index.html"
DIST: Final = os.environ.get("DIEM_DIST")
"""The folder of a release, of whose wheel uvx makes an environment with packages of the index (``make artefacts``)."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `make packages` builds it."""
    if DIST:
        (released,) = Path(DIST).glob("diem_realtime-*.whl")
        return released
    if not BUILT.is_file():
        unavailable("the page", FileNotFoundError(f"{BUILT}: run `make page`"))
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (built,) = folder.glob("diem_realtime-*.whl")
    return built


@pytest.fixture(scope="module")
def diem(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    """The command ``diem`` of an environment with the wheel, and with the packages that it requires.

    These are links to those that the tests run with, which are the locked ones: nothing is downloaded, and a package
    that the wheel does not require is not there.
    """
    if DIST:
        return [Path(sys.executable).with_name("uv"), "tool", "run", "--isolated", "--from", wheel, "diem"]
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    for name in required(wheel):
        link(name, packages)
    python = home / "bin" / "python"
    # As in deploy/install/packages.sh: uv takes a tenth of pip's CPU time.
    uv = Path(sys.executable).with_name("uv")
    pip: list[str | Path] = [uv, "pip", "install", "--python", python]
    if not uv.exists():
        pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", wheel], check=True)
    return [home / "bin" / "diem"]


def required(wheel: Path) -> set[str]:
    """Return the distributions that a wheel requires without any extra, and those that these require."""
    (metadata,) = (entry for entry in zipfile.Path(wheel).iterdir() if entry.name.endswith(".dist-info"))
    waiting = [(line, "") for line in PathDistribution(metadata).requires or []]
    found: set[tuple[str, str]] = set()
    while waiting:
        line, extra = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            for wanted in {(requirement.name, each) for each in ("", *requirement.extras)} - found:
                found.add(wanted)
                waiting += [(below, wanted[1]) for below in distribution(wanted[0]).requires or []]
    return {name for name, _ in found}


def link(name: str, folder: Path) -> None:
    """Link the modules of a distribution, and its metadata, into a folder."""
    there = distribution(name)
    for top in {file.parts[0] for file in there.files or [] if file.parts[0] not in {"..", "__pycache__"}}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(there.locate_file(top))))


def environment() -> dict[str, str]:
    """Return an environment that leads to no checkout."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith(("DIEM_DATA_", "DIEM_DIST"))
    }


def test_wheel_has_the_page_and_the_presets_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    page = {name.removeprefix("services/data/page/") for name in names if name.startswith("services/data/page/")}
    assert {"index.html", "diem.js", "login.html"} <= page
    assert not [name for name in names if "node_modules" in name]
    assert "services/data/files/presets/smard.toml" in names
    assert "uplot" in zipfile.ZipFile(wheel).read("services/data/page/licenses.md").decode()
    licences = {name.partition(".dist-info/licenses/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}
    assert any(re.fullmatch(r"assets/page-.+\.js", name) for name in page)
    assert not [name for name in names if name.startswith(("tests/", "client/", "services/data/page/sdk/"))]


@in_cluster()
async def test_diem_up_of_the_installed_wheel_serves_its_page(diem: list[str | Path], tmp_path: Path) -> None:
    (tmp_path / "diem.toml").write_text("")
    up = await asyncio.create_subprocess_exec(
        *(*diem, "up", "--free-ports"), cwd=tmp_path, env=environment(), stdout=PIPE, stderr=STDOUT
    )
    try:
        assert up.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            printed = b""
            while b"Ctrl-C" not in printed:
                line = await up.stdout.readline()
                assert line, printed.decode()
                printed += line
        urls = json.loads((tmp_path / ".diem" / "processes.json").read_text())["urls"]
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            page = (await http.get(urls["page"])).text
            script = re.findall(r'src="\./(assets/page-[^"]+\.js)"', page)
            assert len(script) == 1, page
            assert (await http.get(f"{urls['page']}{script[0]}")).is_success
            assert (await http.get(f"{urls['page']}diem.js")).is_success
    finally:
        up.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await up.communicate()


@in_cluster()
def test_new_page_of_the_installed_wheel_has_the_sdk_beside_it(diem: list[str | Path], tmp_path: Path) -> None:
    for name in ("react", "plain"):
        command = [*diem, "new", "page", name, "--with", name]
        subprocess.run(command, cwd=tmp_path, env=environment(), check=True, timeout=PATIENCE_S)
    sdk = json.loads((tmp_path / "react" / "package.json").read_text())["dependencies"]["diem-client"]
    assert (tmp_path / "react" / sdk.removeprefix("file:")).is_file()
    assert (tmp_path / "react" / ".npmrc").is_file()
    assert (tmp_path / "plain" / "scores.html").is_file()


@pytest.mark.parametrize(
    "command", ["up --mode x --free-ports", "up --mode all-to-all --nginx --free-ports", "check", "size --updates 10"]
)
def test_what_needs_an_extra_names_it(diem: list[str | Path], tmp_path: Path, command: str) -> None:
    ran = subprocess.run(
        [*diem, *command.split()],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "pip install 'diem-realtime[kafka]'" in ran.stderr
