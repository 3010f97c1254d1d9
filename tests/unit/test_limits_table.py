"""The table of limits in docs/reliability.md: its tests, settings and files exist, and no row is without a proof."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from diem.process.settings import ProcessSettings
from metadata.settings import Settings as MetadataSettings
from proxy.settings import Settings as ProxySettings
from services.composite.settings import Settings as CompositeSettings
from services.data.settings import Settings as DataSettings
from services.websocket.settings import Settings as WebSocketSettings

ROOT: Final = Path(__file__).parents[2]
ENTRIES: Final[tuple[type[ProcessSettings], ...]] = (
    WebSocketSettings,
    ProxySettings,
    CompositeSettings,
    MetadataSettings,
)
PROCESSES: Final[dict[str, tuple[type[ProcessSettings], ...]]] = {
    "*": ENTRIES,
    "DATA": (DataSettings,),
    "METADATA": (MetadataSettings,),
    "": (*ENTRIES, DataSettings, MetadataSettings),
}


class Limit(NamedTuple):
    """One row."""

    number: str
    what: str
    value: str
    at_the_bound: str
    enforced_in: str
    proved_by: str


def rows() -> list[Limit]:
    text = (ROOT / "docs" / "reliability.md").read_text()
    section = text.partition("### 3.1 ")[2].partition("\n### ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [Limit(*(cell.strip() for cell in line.strip("|").split("|"))) for line in table]


ROWS: Final = rows()
DEFINED: Final = frozenset(
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
)
_VARIABLE: Final = re.compile(r"`(DIEM_(?:\*_)?[A-Z_]+|_[A-Z_]+)`")


def fields(settings: type[ProcessSettings]) -> set[str]:
    return {name.upper() for name in settings.model_fields}


def test_every_design_row_is_there_once_and_in_order() -> None:
    numbers = [int(row.number.removeprefix("S")) for row in ROWS if row.number]
    assert numbers == list(range(1, 23))
    assert len(ROWS) >= 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number} {row.what}".strip())
def test_row_is_complete_and_names_what_exists(row: Limit) -> None:
    assert all(row[1:])
    tests = re.findall(r"`(\w+)`", row.proved_by)
    assert tests
    assert set(tests) <= DEFINED
    prefix = ""
    for variable in _VARIABLE.findall(row.value):
        # `_BURST` after `DIEM_DATA_READ_RATE` is another variable of the same process.
        if variable.startswith("DIEM_"):
            prefix, _, name = variable.removeprefix("DIEM_").partition("_")
            if prefix not in PROCESSES:
                prefix, name = "", variable.removeprefix("DIEM_")
        else:
            name = variable.removeprefix("_")
        named = PROCESSES[prefix]
        assert any(name in fields(settings) or f"READ_{name}" in fields(settings) for settings in named), variable
    for path in re.findall(r"`([\w/]+\.py)`", row.enforced_in):
        assert any(each.is_file() for each in _candidates(row.enforced_in, path)), path


def _candidates(cell: str, path: str) -> list[Path]:
    """Return where a file may be: below the root, or beside an earlier one of the cell or in another known folder."""
    folders = {Path(found).parent for found in re.findall(r"`([\w/]+\.py)`", cell)}
    return [ROOT / path, *(ROOT / folder / path for folder in folders)]
