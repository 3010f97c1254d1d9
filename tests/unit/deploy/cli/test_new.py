"""`diem new page`: examples become projects of one's own, which ``make frameworks`` installs, builds and runs."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from deploy.cli import new
from deploy.cli.new import DOCUMENTED_PAGE, Framework, make_page
from deploy.system.state_dir import StateDir
from diem.errors import ConfigurationError
from tests.support.running import ROOT

Diem = Callable[..., int]
PROJECTS = sorted(path.name for path in (ROOT / "client" / "examples").iterdir() if (path / "package.json").is_file())
SDK = "diem-client-0.1.0.tgz"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built page with a packed SDK, of which only the name matters here."""
    directory = tmp_path / "built"
    directory.mkdir()
    (directory / SDK).write_bytes(b"packed")
    return directory


def test_every_example_is_offered() -> None:
    assert sorted(Framework) == sorted(["plain", *PROJECTS])


@pytest.mark.parametrize("name", PROJECTS)
def test_project_has_its_sdk_its_name_and_the_address_of_the_system(name: str, built: Path, tmp_path: Path) -> None:
    page = tmp_path / "My Page"
    make_page(page, Framework(name), "https://app.example/diem/", built)
    assert (page / SDK).read_bytes() == b"packed"
    for file in ("package.json", "package-lock.json"):
        assert json.loads((page / file).read_text())["name"] == "my-page"
    assert json.loads((page / "package.json").read_text())["dependencies"]["diem-client"] == f"file:{SDK}"
    text = "".join(file.read_text() for file in page.rglob("*") if file.is_file() and file.name != SDK)
    assert "https://app.example/diem/config.json" in text
    assert DOCUMENTED_PAGE not in text
    assert "../diem-client" not in text
    ignored = (page / ".gitignore").read_text().split()
    assert "node_modules/" in ignored
    assert not [pattern for pattern in ignored if [*page.glob(pattern.rstrip("/"))]]


def test_command_takes_the_address_of_the_running_system(
    diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diem("new", "page", "a b") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  diem up --pages 'a b'",
        "  open http://localhost:8080/scores.html and http://localhost:8080/playground.html",
    ]
    assert {"scores.html", "scores.js", "playground.html"} <= {file.name for file in (tmp_path / "a b").iterdir()}
    with StateDir(tmp_path / ".diem").lock():
        StateDir(tmp_path / ".diem").write_processes({"urls": {"page": "http://localhost:8100/"}})
        assert diem("new", "page", "other") == 0
    _, start, page = capsys.readouterr().out.splitlines()
    assert start == "  diem up --pages other   # stop the running one first"
    assert "open http://localhost:8100/scores.html" in page


@pytest.mark.parametrize(
    ("answer", "is_admitted"), [({"rest": "v1"}, True), ({"rest": "v1", "allowed": False}, False), ([], False)]
)
def test_running_system_is_started_again_only_if_it_refuses_the_dev_server(
    diem: Diem,
    built: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    answer: object,
    is_admitted: bool,
) -> None:
    def get(url: str, *, headers: dict[str, str], **_: object) -> httpx.Response:
        assert (url, headers) == ("http://localhost:8100/config.json", {"Origin": "http://localhost:5173"})
        return httpx.Response(200, json=answer)

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr(new, "built_page", lambda: built)
    with StateDir(tmp_path / ".diem").lock():
        StateDir(tmp_path / ".diem").write_processes({"urls": {"page": "http://localhost:8100/"}})
        assert diem("new", "page", "mine", "--with", "react") == 0
    start = ["  diem up --origin http://localhost:5173   # stop the running one first"]
    assert capsys.readouterr().out.splitlines()[1:] == [
        *([] if is_admitted else start),
        "  cd mine && npm install && npm run dev",
        "  open http://localhost:5173",
    ]


@pytest.mark.parametrize("name", ["plain", "react"])
def test_directory_with_files_is_refused(name: str, built: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    make_page(tmp_path / "mine", Framework(name), DOCUMENTED_PAGE, built)
    with pytest.raises(ConfigurationError, match="mine exists: choose a new or an empty directory"):
        make_page(tmp_path / "mine", Framework(name), DOCUMENTED_PAGE, built)
    with pytest.raises(ConfigurationError, match="Not a directory"):
        make_page(built / SDK / "page", Framework(name), DOCUMENTED_PAGE, built)


def test_project_needs_a_packed_sdk(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="run `make page` first"):
        make_page(tmp_path / "page", Framework.VUE, DOCUMENTED_PAGE, tmp_path)
    assert not (tmp_path / "page").exists()
