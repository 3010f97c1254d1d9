"""Each source is read once: what it would publish, or the error and what to do about it."""

from pathlib import Path

import pytest

from diem.process.clock import ManualClock
from services.data.sources.config import load
from services.data.sources.runner import ClaimedTwice
from services.data.sources.trial import PublishedDataset, SourceTrial, try_sources

CONFIG = """\
[[source]]
type = "directory"
name = "files"
path = "incoming"
prefix = "/files"
unit = "kW"
quantity = "load"
resolution = "PT1H"

[[source]]
type = "directory"
name = "load"
path = "nowhere"
prefix = "/nowhere"

[[source]]
type = "http"
name = "prices"
url = "http://127.0.0.1:1/prices.csv"
endpoint = "/prices"

[[source]]
type = "simulation"
name = "market"
zones = ["GR"]
"""
CSV = "time,value\n2026-01-01T00:00:00Z,1500\n2026-01-01T01:00:00Z,\n"


async def tried(path: Path, text: str = CONFIG) -> dict[str, SourceTrial]:
    file = path / "diem.toml"
    file.write_text(text)
    return {each.name: each for each in await try_sources(load(file), ManualClock())}


async def test_every_source_is_tried_whatever_the_others_do(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "gr.csv").write_text(CSV)
    found = await tried(tmp_path)
    assert list(found) == ["files", "load", "prices", "market"]
    expected = PublishedDataset("/files/gr", 2, "MW", "PT1H", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    assert found["files"] == SourceTrial("files", "directory", None, None, (expected,))
    assert found["load"].error == f"no such directory: {tmp_path / 'nowhere'}"
    assert str(found["load"].remedy).startswith("create the directory or correct `path`")
    assert str(found["prices"].error).startswith("ConnectError")
    assert str(found["prices"].remedy).startswith("correct `url`")
    market = found["market"]
    assert (market.error, "/load/GR" in [each.endpoint for each in market.endpoints]) == (None, True)
    assert market.points == sum(each.points for each in market.endpoints) > 0


FILES = CONFIG.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("name", "content", "error", "remedy"),
    [
        ("gr.txt", CSV, None, "no data yet: a .csv or .parquet file is not in "),
        (
            "gr.csv",
            "time,value\n2026-01-01T00:00:00Z,x\n",
            "gr.csv: line 2",
            "correct the data, or what diem.toml says",
        ),
    ],
    ids=["no-data", "invalid"],
)
async def test_what_is_missing_or_wrong_has_a_remedy(
    tmp_path: Path, name: str, content: str, error: str | None, remedy: str
) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / name).write_text(content)
    found = (await tried(tmp_path, FILES))["files"]
    assert found.endpoints == ()
    assert (found.error or "").startswith(error or "")
    assert (found.error is None) is (error is None)
    assert str(found.remedy).startswith(remedy)


async def test_the_same_endpoint_in_two_sources_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ClaimedTwice, match="/files"):
        await tried(tmp_path, FILES + "\n\n" + FILES.replace('"files"', '"others"'))
