"""Each source is read once: what it would publish, or the error and what to do about it."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from diem.errors import ConfigurationError
from diem.process.clock import ManualClock
from diem.protocol.endpoints import BadName
from services.data.kinds import SERIES
from services.data.sources.config import load
from services.data.sources.runner import ClaimedTwice
from services.data.sources.source import MAX_ERRORS
from services.data.sources.trial import PublishedData, SourceTrial, try_sources
from tests.unit.services.data.sources.toml import write

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
    return {each.name: each for each in await try_sources(load(write(path, text)), ManualClock())}


async def test_every_source_is_tried_whatever_the_others_do(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "gr.csv").write_text(CSV)
    found = await tried(tmp_path)
    assert list(found) == ["files", "load", "prices", "market"]
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    (published,) = found["files"].endpoints
    assert published == PublishedData("/files/gr", SERIES, published.bytes, 2, "MW", "PT1H", *times)
    assert found["files"] == SourceTrial("files", "directory", None, None, (published,))
    assert found["load"].error == f"no such directory: {tmp_path / 'nowhere'}"
    assert str(found["load"].remedy).startswith("create the directory or correct `path`")
    assert str(found["prices"].error).startswith("ConnectError")
    assert str(found["prices"].remedy).startswith("correct `url`")
    market = found["market"]
    assert (market.error, "/load/GR" in [each.endpoint for each in market.endpoints]) == (None, True)
    assert market.points == sum(each.points for each in market.endpoints) > 0


async def test_a_source_that_polls_what_is_watched_is_tried_with_an_endpoint(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            """\
[[source]]
type = "http"
name = "orders"
url = "http://127.0.0.1:1/{rest}"
prefix = "/orders"
""",
        )
    )
    (found,) = await try_sources(config, ManualClock())
    assert (found.error, found.remedy) == (
        None,
        "endpoints are polled while they are watched: `--watch /orders/NAME` reads one",
    )
    (found,) = await try_sources(config, ManualClock(), ["/orders/7"])
    assert str(found.error).startswith("/orders/7: ConnectError")
    with pytest.raises(ConfigurationError, match="no source polls /prices while it is watched"):
        await try_sources(config, ManualClock(), ["/prices"])
    with pytest.raises(BadName):
        await try_sources(config, ManualClock(), ["/orders/.."])


FILES = CONFIG.partition("\n\n")[0]


@pytest.mark.parametrize(
    ("name", "content", "error", "remedy"),
    [
        ("gr.txt", CSV, None, "no data yet: there is no file *.csv, *.parquet in "),
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


async def test_every_bad_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    for number in range(45):
        (tmp_path / "incoming" / f"{number:02d}.csv").write_text(f"time,value\n2026-01-01T00:00:00Z,x{number}\n")
    found = (await tried(tmp_path, FILES))["files"]
    assert str(found.error).endswith("(and 44 more)")
    assert [error.partition(":")[0] for error in found.errors] == [f"{number:02d}.csv" for number in range(45)]
    for number in range(45, 60):
        (tmp_path / "incoming" / f"{number:02d}.csv").write_text("<html>")
    assert len((await tried(tmp_path, FILES))["files"].errors) == MAX_ERRORS


async def test_a_directory_below_one_that_may_not_be_entered_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    table = load(write(tmp_path, FILES))
    with monkeypatch.context() as patched:  # the tests may run as root, who may enter every directory
        patched.setattr(os, "scandir", refuse)
        patched.setattr(os, "stat", refuse)
        (found,) = await try_sources(table, ManualClock())
    assert found.error == f"permission denied: {tmp_path / 'incoming'}"
    assert str(found.remedy).startswith("create the directory or correct `path`")


async def test_the_same_endpoint_in_two_sources_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ClaimedTwice, match="/files"):
        await tried(tmp_path, FILES + "\n\n" + FILES.replace('"files"', '"others"'))


async def test_a_webhook_has_no_sample_and_needs_its_secret(tmp_path: Path) -> None:
    text = '[[source]]\ntype = "webhook"\nname = "shop"\nendpoint = "/orders/{id}"\nsecret = { file = "shop.key" }\n'
    found = (await tried(tmp_path, text))["shop"]
    assert found.error is not None
    assert found.error.endswith("shop.key: No such file or directory")
    assert found.remedy == "put the secret that the sender shows into the file, readable by its owner alone"
    (tmp_path / "shop.key").write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    (tmp_path / "shop.key").chmod(0o600)
    found = (await tried(tmp_path, text))["shop"]
    assert (found.error, found.remedy) == (None, "no data yet: it comes with requests to POST /v1/hooks/shop")
