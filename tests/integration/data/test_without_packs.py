"""A Data Service without packs: no quantities and no default sources, and everything else works."""

import json
import shutil
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest

from diem.errors import DISTRIBUTION
from tests.integration.data.process import ROOT, serving
from tests.support.patience import PATIENCE_S

SERIES = {"Content-Type": "application/vnd.diem.series+json"}
BODY = {"unit": "EUR / kWh", "resolution": "PT1H", "points": [{"time": "2026-01-01T00:00:00Z", "value": 0.1}]}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder with all packages but ``packs``, and metadata without its entry points."""
    folder = tmp_path / "installed"
    folder.mkdir()
    for package in ROOT.iterdir():
        if (package / "__init__.py").is_file() and package.name not in {"packs", "tests"}:
            (folder / package.name).symlink_to(package)
    # The folder of the repository is on the path behind this one.
    (folder / "packs.py").write_text("raise ModuleNotFoundError('packs is not installed')")
    (metadata,) = (
        Path(str(file.locate())) for file in distribution(DISTRIBUTION).files or () if file.name == "METADATA"
    )
    info = folder / metadata.parent.name
    info.mkdir()
    shutil.copy(metadata, info)
    points = (metadata.parent / "entry_points.txt").read_text()
    kept = [group for group in points.split("\n\n") if "packs." not in group]
    assert len(kept) < len(points.split("\n\n"))
    (info / "entry_points.txt").write_text("\n\n".join(kept))
    return folder


async def test_a_data_service_without_packs_serves_what_it_is_given(tmp_path: Path, installed: Path) -> None:
    launcher = ("env", "-C", str(installed))
    async with (
        serving(tmp_path / "state", launcher=launcher, CONFIG="") as process,
        httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http,
    ):
        assert (await http.get("/v1/sources")).json() == {"sources": []}
        put = await http.put("/v1/data/a?quantity=load&area=North+Sea", content=json.dumps(BODY), headers=SERIES)
        assert put.status_code == 200, put.text
        answer = (await http.get("/v1/data/a")).json()
        assert (answer["unit"], answer["points"]) == ("EUR/kWh", BODY["points"])
        (entry,) = (await http.get("/v1/endpoints")).json()["endpoints"]
        # No package knows what a load is: it is a text.
        assert (entry["quantity"], entry["area"]) == ("load", "North Sea")


async def test_a_source_of_a_missing_pack_is_named(tmp_path: Path, installed: Path) -> None:
    config = '[[source]]\ntype = "simulation"\n'
    with pytest.raises(AssertionError, match=r"unknown type 'simulation'; known are 'directory', 'http'"):
        async with serving(tmp_path / "state", launcher=("env", "-C", str(installed)), config=config):
            pass
