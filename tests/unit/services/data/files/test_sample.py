"""Samples: small files as they are, of large ones complete rows of the beginning and the end, in the same format."""

import gzip
import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from services.data.errors import DatasetTooLarge
from services.data.files import sample
from services.data.files.grid import InputFile
from services.data.files.sample import close_json, close_xml, read_sample, shortened
from services.data.files.suggest import LIMITS, suggest
from services.data.files.trees import read_tree

ROW = "2025-01-01T00:00Z;1\n"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "HEAD_BYTES", 3000)
    monkeypatch.setattr(sample, "TAIL_BYTES", 1000)
    monkeypatch.setattr(sample, "WHOLE_BYTES", 8000)


def test_a_small_file_is_its_own_sample(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ROW)
    assert read_sample(tmp_path / "a.csv") == (InputFile("a.csv", ROW.encode()), len(ROW), True)


def test_of_a_large_text_the_sample_has_complete_rows_of_both_ends(tmp_path: Path) -> None:
    rows = [f"{index:05};row\n" for index in range(2000)]
    (tmp_path / "a.csv").write_text("".join(rows))
    found = read_sample(tmp_path / "a.csv")
    lines = found.file.body.decode().splitlines(keepends=True)
    assert (found.size, found.is_whole, lines[0], lines[-1]) == (20_000, False, rows[0], rows[-1])
    assert len(found.file.body) <= 4000
    assert set(lines) < set(rows)
    assert shortened(InputFile("a.csv", "".join(rows).encode())).body == found.file.body


def test_archives_stay_archives(tmp_path: Path) -> None:
    noise = random.Random(1)
    text = "".join(f"{noise.random()};{noise.random()}\n" for _ in range(2000)).encode()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    head = gzip.decompress(read_sample(tmp_path / "a.csv.gz").file.body)
    assert text.startswith(head)
    assert head.endswith(b"\n")
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small.txt", "1;2\n3")
        archive.writestr("large.csv", text)
    made = zipfile.ZipFile(io.BytesIO(read_sample(tmp_path / "a.zip").file.body))
    assert made.namelist() == ["small.txt", "large.csv"]
    assert made.read("small.txt") == b"1;2\n3"
    assert text.startswith(made.read("large.csv"))


def test_what_has_no_parts_is_read_as_a_whole_within_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(5000))
    assert read_sample(tmp_path / "a.parquet").is_whole
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + bytes(9000))
    with pytest.raises(DatasetTooLarge, match=r"^b.parquet has 9004 bytes: of its format, at most are 8000$"):
        read_sample(tmp_path / "b.parquet")


@pytest.mark.parametrize("end", range(60, 400, 7))
def test_a_part_of_json_and_xml_is_closed(end: int) -> None:
    rows = [{"time": f"2025-01-01T{hour:02}:00Z", "a": ['x,"]', hour]} for hour in range(24)]
    body = json.dumps({"meta": {"unit": "MW"}, "data": rows}).encode()
    assert json.loads(close_json(body[:end]))["meta"] == {"unit": "MW"}
    points = "".join(f'<p at="{hour}"><v>{hour}</v><e/></p>' for hour in range(24))
    markup = f'<?xml version="1.0"?><!-- <a> --><r><m unit="MW"/>{points}</r>'.encode()
    assert read_tree(close_xml(markup[:end]), "xml", LIMITS)["m"] == {"@unit": "MW"}


def test_a_sample_of_json_gives_the_mapping_of_the_whole() -> None:
    rows = [{"time": f"2025-01-{1 + hour // 24:02}T{hour % 24:02}:00Z", "load_mw": hour} for hour in range(200)]
    body = json.dumps({"data": rows}).encode()
    made = suggest(InputFile("a.json", body))
    assert (made.keys, made.fields["unit"], made.questions) == ({"rows": "data", "value": "load_mw"}, "MW", [])
