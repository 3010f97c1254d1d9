"""Files of sixteen publishers, by a directory, a URL and `diem put`, through a Data Service in a process of its own."""

import asyncio
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from urllib.parse import quote, unquote

import httpx
import pytest

from tests.integration.data.process import DataProcess, serving
from tests.support.patience import PATIENCE_S
from tests.support.publisher import Publisher, Reply, Sent, published
from tests.support.required import in_cluster
from tests.unit.services.data.files.as_source import fields_of, points_in
from tests.unit.services.data.files.publishers import ALL, Layout, Series

LAYOUTS = [make() for make in ALL]
_PUT = """
import sys
from deploy.cli import commands
for line in sys.stdin.read().splitlines():
    sys.argv = ["diem", "put", *line.split("\\t")]
    if code := commands.main():
        sys.exit(code)
"""
"""Runs `diem put` once a line: starting Python takes longer than any of them."""


def is_several(layout: Layout) -> bool:
    return list(layout.expected) != [""]


def tables(directory: Path, publisher: Publisher) -> Iterator[str]:
    """Write the files; yield the tables of the sources, as a person writes them."""
    for layout in LAYOUTS:
        folder = directory / layout.case
        folder.mkdir()
        (folder / layout.file).write_bytes(layout.body)
        fields = dedent(layout.toml).replace("[mapping]", "[source.mapping]") or f'preset = "{layout.preset}"\n'
        url = f"{publisher.url}/{layout.case}/{quote(layout.file)}"
        file = "" if is_several(layout) else f'file = "{layout.file}"\n'
        for kind, place in (("directory", f'path = "{layout.case}"\n{file}'), ("http", f'url = "{url}"\n')):
            key = "prefix" if is_several(layout) else "endpoint"
            name = f"{kind}-{layout.case}"
            yield f'[[source]]\ntype = "{kind}"\nname = "{name}"\n{key} = "/{kind}/{layout.case}"\n{place}{fields}'


def answer(request: Sent) -> Reply:
    _, case, file = request.path.split("/")
    (layout,) = [each for each in LAYOUTS if each.case == case and each.file == unquote(file)]
    return Reply(layout.body, headers={"Content-Type": layout.media_type})


def expected_of(kind: str, layout: Layout) -> dict[str, Series]:
    """Return the series by their endpoints; a directory puts the name of a file before those of its columns."""
    mapping = fields_of(layout)["mapping"]
    stem = (layout.member or layout.file).rpartition(".")[0]
    between = f"{stem}/" if kind == "directory" and is_several(layout) and "name" not in mapping else ""
    return {f"/{kind}/{layout.case}/{between}{name}".rstrip("/"): each for name, each in layout.expected.items()}


async def read(service: DataProcess, wanted: dict[str, Series]) -> dict[str, Series]:
    """Return what the service has of these endpoints, once they are there."""
    found = {}
    async with httpx.AsyncClient(base_url=service.url, trust_env=False, timeout=PATIENCE_S) as http:
        for name in wanted:
            while (got := await http.get(f"/v1/data{quote(name)}")).status_code != 200:
                sources = (await http.get("/v1/sources")).json()["sources"]
                assert all(source["ok"] or not source["failures"] for source in sources), [
                    source for source in sources if not source["ok"]
                ]
                await asyncio.sleep(0.05)
            document = got.json()
            found[name] = Series(document["unit"], document["resolution"], points_in(document))
    return found


@in_cluster()
@pytest.mark.takes(10)
async def test_files_of_publishers_are_served_as_they_are(tmp_path: Path) -> None:
    async with published() as publisher:
        publisher.answer = answer
        config = "\n".join(tables(tmp_path, publisher))
        assert len(tomllib.loads(config)["source"]) == 2 * len(LAYOUTS)
        async with serving(tmp_path, config=config) as service, asyncio.timeout(PATIENCE_S):
            lines = []
            for layout in LAYOUTS:
                preset = layout.preset
                if layout.toml:
                    (tmp_path / (preset := f"{layout.case}.toml")).write_text(dedent(layout.toml))
                file = str(tmp_path / layout.case / layout.file)
                options = ("--preset", preset, "--url", service.url, "--key-file", str(tmp_path / "write.key"))
                lines.append("\t".join((f"/put/{layout.case}", file, *options)))
            put = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _PUT, cwd=tmp_path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await put.communicate("\n".join(lines).encode())
            assert put.returncode == 0
            wanted = {
                name: each
                for kind in ("directory", "http", "put")
                for layout in LAYOUTS
                for name, each in expected_of(kind, layout).items()
            }
            assert printed.count(b" stored as version ") == len(wanted) / 3
            assert await read(service, wanted) == wanted
