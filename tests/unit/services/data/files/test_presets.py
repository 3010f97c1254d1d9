"""Presets of publishers: their names, files of the user's own, and errors."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from services.data.files.mapping import Mapping
from services.data.files.presets import BadPreset, load_preset, presets
from services.data.sources.config import load
from services.data.sources.tables import HttpConfig


def test_presets_of_the_most_used_feeds_are_shipped() -> None:
    assert presets() == [
        "aemo",
        "caiso",
        "dwd",
        "eia",
        "elexon",
        "energy-charts",
        "entsoe",
        "entsoe-xml",
        "nord-pool",
        "open-meteo",
        "opsd",
        "smard",
    ]


def test_presets_are_listed_in_the_guide() -> None:
    guide = (Path(__file__).parents[5] / "docs" / "guide" / "files.md").read_text()
    (table,) = re.findall(r"^\| preset \|.*?\n\n", guide, re.DOTALL | re.MULTILINE)
    assert re.findall(r"`([\w-]+)`(?=[^|]*\|[^|]*\|$)", table, re.MULTILINE) == presets()


@pytest.mark.parametrize("name", ["caiso", "dwd", "eia", "elexon", "energy-charts", "entsoe-xml", "open-meteo"])
def test_the_url_in_a_preset_can_be_a_source_s(tmp_path: Path, name: str) -> None:
    comments = (files("services.data.files.presets") / f"{name}.toml").read_text(encoding="utf-8")
    lines = re.findall(r"^# ((?:url|query|days) = .*)$", comments, re.MULTILINE)
    for key in ("eia.key", "entsoe.key"):
        (tmp_path / key).write_text("a-secret")
        (tmp_path / key).chmod(0o600)
    own = ["[[source]]", 'type = "http"', 'name = "p"', 'prefix = "/p"', f'preset = "{name}"', *lines]
    (tmp_path / "diem.toml").write_text("\n".join(own))
    (source,) = load(tmp_path / "diem.toml").source
    assert isinstance(source, HttpConfig)
    assert source.mapping is not None


def test_a_preset_is_the_fields_of_a_source_with_a_mapping(tmp_path: Path) -> None:
    found = load_preset("smard", tmp_path)
    assert found["zone"] == "Europe/Berlin"
    assert Mapping.model_validate(found["mapping"]).decimal == ","


def test_a_copy_can_be_changed(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "meter.toml").write_text('\ufeffunit = "kWh"\n[mapping]\ndelimiter = ";"\n', encoding="utf-8")
    assert load_preset("own/meter.toml", tmp_path) == {"unit": "kWh", "mapping": {"delimiter": ";"}}
    assert load_preset(str(tmp_path / "own" / "meter.toml"), Path("/")) == load_preset("own/meter.toml", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unit = \n", "line 1, not TOML: invalid value"),
        ('[[source]]\nunit = "MW"\n', "leave [[source]] out: a preset has its fields alone"),
        ('unti = "MW"\n', "line 1, unti: unknown field (did you mean `unit` or `quantity`?)"),
        ('# a\nzone = "Berlin"\n', "line 2, zone: 'Berlin' is not a time zone like Europe/Athens or UTC"),
        ('resolution = "1h"\n', "line 1, resolution: '1h' is not a resolution"),
        (
            'unit = "MW"\n[mapping]\nunit = "u"\ndecimals = ","\n',
            "line 4, mapping.decimals: unknown field (did you mean `decimal`?)",
        ),
        ("[mapping]\nvalue = 5\n", "line 2, mapping.value: expected text in quotes"),
        ('[mapping]\nignore = ["a"]\n', "line 1, mapping: ignore needs value = '*'"),
        ('[mapping]\ndecimal = ";"\n', "line 2, mapping.decimal: expected '.' or ','"),
        ("[mapping.where]\nA = 5\n", "line 2, mapping.where.A: expected text in quotes"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(BadPreset) as found:
        load_preset("own.toml", tmp_path)
    assert str(found.value).startswith(f"{path}: {expected}"), str(found.value)


def test_an_unknown_name_is_answered_with_the_nearest_or_all(tmp_path: Path) -> None:
    with pytest.raises(BadPreset, match=re.escape("no preset 'entso-e' (did you mean `entsoe`")):
        load_preset("entso-e", tmp_path)
    with pytest.raises(BadPreset, match=r"known are aemo, .*, smard, or a file of your own: NAME\.toml$"):
        load_preset("zzz", tmp_path)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPreset, match=r"own\.toml cannot be read: No such file"):
        load_preset("own.toml", tmp_path)
    (tmp_path / "own.toml").write_bytes(b'unit = "\xff"')
    with pytest.raises(BadPreset, match=r"own\.toml cannot be read: not UTF-8 text"):
        load_preset("own.toml", tmp_path)
