"""The documentation as a site: it builds without a warning, its links lead somewhere, and nothing is foreign."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import orjson
import pytest

from tests.support.guides import ROOT
from tests.support.required import in_cluster, unavailable

pytestmark = [
    pytest.mark.takes(40),
    pytest.mark.xdist_group("site"),
    in_cluster("it takes 40 s of CPU time"),
]
LOADED: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page loads, where its links lead, and the anchors that it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect an element's addresses and its anchor."""
        named = dict(attrs)
        if anchor := named.get("id"):
            self.anchors.add(anchor)
        if tag == "a" and (target := named.get("href")):
            self.links.append(target)
        elif tag in LOADED and (target := named.get(LOADED[tag])):
            self.loaded.append(target)


class Site(NamedTuple):
    """A built site."""

    folder: Path
    pages: dict[Path, Page]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build it, as `make site` does."""
    missing = [name for name in ("furo", "myst_parser", "sphinx") if find_spec(name) is None]
    if missing:
        unavailable("the documentation's generator", ImportError(f"{', '.join(missing)}: run `make install-docs`"))
    folder, cache = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("cache")
    options = ("--quiet", "--fail-on-warning", "--keep-going", "-c", ROOT / "docs" / "site", "-d", cache)
    ran = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ROOT, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return Site(folder, {file: Page(file) for file in sorted(folder.rglob("*.html"))})


def test_every_document_is_a_page(site: Site) -> None:
    names = {str(file.relative_to(ROOT).with_suffix(".html")) for file in (ROOT / "docs").rglob("*.md")}
    built = {str(file.relative_to(site.folder)) for file in site.pages}
    assert {*names, "README.html", "SECURITY.html", "CHANGELOG.html", "client/README.html", "index.html"} <= built


def test_links_lead_to_files_and_anchors_of_the_site(site: Site) -> None:
    broken = []
    for file, page in site.pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchors = site.pages[target].anchors if target in site.pages else set()
            if not target.exists() or (parts.fragment and target.suffix == ".html" and parts.fragment not in anchors):
                broken.append(f"{file.relative_to(site.folder)}: {link}")
    assert not broken


def test_nothing_is_loaded_from_other_hosts(site: Site) -> None:
    foreign = [(file.name, url) for file, page in site.pages.items() for url in page.loaded if urlsplit(url).netloc]
    for sheet in site.folder.rglob("*.css"):
        urls = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", sheet.read_text())
        foreign += [(sheet.name, url) for url in urls if urlsplit(url).netloc]
    assert not foreign


def test_search_finds_words_of_guides(site: Site) -> None:
    script = (site.folder / "searchindex.js").read_text()
    index = orjson.loads(script.removeprefix("Search.setIndex(").removesuffix(")"))
    found = index["terms"]["pipx"]
    names = {index["docnames"][number] for number in ([found] if isinstance(found, int) else found)}
    assert "docs/guide/get-started" in names
    assert (site.folder / "search.html").is_file()
