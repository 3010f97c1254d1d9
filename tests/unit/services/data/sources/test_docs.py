"""docs/sources.md documents every field and unit; its examples and its plug-in work."""

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from diem.process.clock import ManualClock
from packs.energy.simulation import SimulationConfig
from services.data.errors import DataError
from services.data.files.mapping import Mapping
from services.data.kinds import Representation
from services.data.sources import config, plugins
from services.data.sources.records.table import RecordTable
from services.data.sources.runner import SourceRunner
from services.data.sources.tables import DataTable, SourceTable
from tests.support.file_threads import FILES
from tests.support.patience import PATIENCE_S
from tests.unit.services.data.sources.toml import assert_fault, write

DOCS = (Path(__file__).parents[5] / "docs" / "sources.md").read_text()
ENERGY = (Path(__file__).parents[5] / "docs" / "energy.md").read_text()


def blocks(language: str, docs: str = DOCS) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", docs, re.DOTALL | re.MULTILINE)


def rows(heading: str, docs: str = DOCS) -> dict[str, list[str]]:
    """Return the tables below a heading: names in backquotes in the first column, with the cells after them."""
    section = re.split(r"^## ", docs, flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(heading)]
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`(\w+)`", cells[0]) if line.startswith("| `") else ():
            found[name] = cells[1:]
    return found


@pytest.mark.parametrize("kind", [*config.TABLES, "simulation"])
def test_every_field_of_a_type_is_described_with_its_default(kind: str) -> None:
    table = SimulationConfig if kind == "simulation" else config.TABLES[kind]
    base = next(each for each in (DataTable, RecordTable, SourceTable) if issubclass(table, each))
    described = rows("The simulated", ENERGY) if kind == "simulation" else rows(f"`{kind}`")
    own = {name for name, field in table.model_fields.items() if str(field) != str(base.model_fields.get(name))}
    assert set(described) == own - {"type", "name"}
    assert_defaults(table, described)


def assert_defaults(table: type[SourceTable], described: dict[str, list[str]]) -> None:
    for name, cells in described.items():
        default = table.model_fields[name].get_default()
        if isinstance(default, int | float):
            assert cells[0] == str(default).lower(), name


def test_every_key_of_a_mapping_is_described_with_its_default() -> None:
    described = rows("Mappings")
    assert set(described) == set(Mapping.model_fields)
    for name, cells in described.items():
        default = Mapping.model_fields[name].get_default(call_default_factory=True)
        shown = f'`"{default}"`' if isinstance(default, str) else str(default)
        assert cells[0] == (shown if default else ""), name


def test_the_fields_of_all_sources_of_data_are_described() -> None:
    assert set(rows("Fields of every")) == set(DataTable.model_fields)


def test_the_fields_of_all_sources_of_records_are_described() -> None:
    described = rows("Records of topics")
    assert set(described) == set(RecordTable.model_fields) - {"type", "name"}
    assert_defaults(RecordTable, described)


def test_the_examples_can_be_used(tmp_path: Path) -> None:
    examples = [
        text for text in (*blocks("toml"), *blocks("toml", ENERGY)) if "[[source]]" in text and "loadavg" not in text
    ]
    assert len(examples) == 11
    read = config.load(write(tmp_path, "\n".join(examples)))
    assert [source.name for source in SourceRunner.configured(read, ManualClock(), convert=FILES.convert)._sources] == [
        s.name for s in read.source
    ]


def test_the_tables_in_the_guide_to_existing_apis_can_be_used(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[5] / "docs" / "guide" / "live-updates-for-your-api.md").read_text()
    tables = blocks("toml", guide)
    assert len(tables) == 3
    for text in tables:
        (table,) = config.load(write(tmp_path, f'[[source]]\nname = "orders"\n{text}')).source
        assert isinstance(table, RecordTable)
        assert table.kind == "notice"


# The plug-in


def install(directory: Path, name: str, code: str, entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package on the path, with the metadata that an installer would write."""
    (directory / f"{name}.py").write_text(code)
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(directory))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install the example of the documentation; return its table."""
    (code,) = blocks("python")
    entry, table = [text for text in blocks("toml") if "loadavg" in text]
    entry = entry.replace('[project.entry-points."diem.sources"]', "[diem.sources]").replace('"', "")
    install(tmp_path, "diem_loadavg", code, entry, monkeypatch)
    return table


async def test_the_example_of_a_plugin_works(tmp_path: Path, plugin: str) -> None:
    runner = SourceRunner.configured(config.load(write(tmp_path, plugin)), ManualClock(), convert=FILES.convert)
    assert runner.claims.owner_of("/machine/load") == "machine"
    stored: asyncio.Queue[Representation] = asyncio.Queue()
    refuse = True

    async def sink(datasets: Sequence[Representation], *, source: str) -> None:
        nonlocal refuse
        if refuse:
            refuse = False
            raise DataError("not now")
        for dataset in datasets:
            stored.put_nowait(dataset)

    text = plugin.replace("5.0", "0.1")
    runner = SourceRunner.configured(config.load(write(tmp_path, text)), ManualClock(), convert=FILES.convert)
    running = asyncio.create_task(runner.run(sink))
    dataset = await asyncio.wait_for(stored.get(), PATIENCE_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (dataset.endpoint, dataset.label("unit"), dataset.label("resolution")) == ("/machine/load", "1", "PT1M")
    (status,) = runner.status()
    assert (status["type"], status["failures"], status["endpoints"]) == ("loadavg", 1, 1)


def test_a_fault_in_the_table_of_a_plugin_is_named_with_its_place(tmp_path: Path, plugin: str) -> None:
    for old, new, expected in (
        ("5.0", "0.0", 'line 4, [[source]] 1 "machine", every: must be at least 0.1'),
        ("every", "endpoint = 'x'\nevery", 'line 4, [[source]] 1 "machine", endpoint: it must be'),
        ("every", "evry", 'line 4, [[source]] 1 "machine": unknown field `evry` (did you mean `every`?)'),
    ):
        assert_fault(tmp_path, plugin.replace(old, new), expected)


def test_an_unknown_type_is_reported_with_the_known_ones(tmp_path: Path, plugin: str) -> None:
    with pytest.raises(
        config.BadConfig,
        match=r"'loadavg2' \(did you mean `loadavg`\?\); known are 'directory', .*, 'loadavg', 'simulation'$",
    ):
        config.load(write(tmp_path, plugin.replace('"loadavg"', '"loadavg2"')))


@pytest.mark.parametrize(
    ("code", "entry", "expected"),
    [
        ("import not_there_at_all", "Kind", "odd:Kind: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("1 / 0", "Kind", "odd:Kind: ZeroDivisionError"),
        ("", "Kind", "odd:Kind: AttributeError"),
        ("class Kind: pass", "Kind", "odd:Kind is not a class with a Config that is a SourceTable"),
        ("Kind = 7", "Kind", "odd:Kind is not a class with a Config that is a SourceTable"),
    ],
)
def test_an_unusable_plugin_is_the_only_reported_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, entry: str, expected: str
) -> None:
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    install(tmp_path, "odd", code, f"[diem.sources]\nodd = odd:{entry}\n", monkeypatch)
    fault = f"line 1, [[source]] 1 \"x\": the type of source 'odd' cannot be used: {expected}"
    assert_fault(tmp_path, '[[source]]\ntype = "odd"\nname = "x"\n', fault)


def test_two_packages_with_the_same_type_are_refused(
    tmp_path: Path, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "other", "", "[diem.sources]\nloadavg = other:Source\n", monkeypatch)
    with pytest.raises(plugins.BadPlugin, match="it is in several packages: diem-loadavg, other"):
        plugins.find("loadavg")


def test_builtin_types_cannot_be_replaced_by_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "other", "1 / 0", "[diem.sources]\nhttp = other:Source\n", monkeypatch)
    text = '[[source]]\ntype = "http"\nname = "x"\nurl = "http://a.example"\nendpoint = "/a"\n'
    assert config.load(write(tmp_path, text)).source[0].type == "http"


def test_a_plugin_whose_constructor_fails_is_a_configuration_fault(
    tmp_path: Path, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = config.load(write(tmp_path, plugin))
    found = plugins.find("loadavg")

    def fails(*_args: object) -> None:
        raise ValueError("no such sensor")

    monkeypatch.setattr(found, "__init__", fails)
    with pytest.raises(plugins.BadPlugin, match="source 'machine': ValueError: no such sensor"):
        SourceRunner.configured(read, ManualClock(), convert=FILES.convert)
