"""diem.toml: every fault names the file, the line, the table and the field; nobody shares an endpoint."""

from pathlib import Path
from typing import NamedTuple

import pytest

from diem.process.clock import ManualClock
from services.data.main import DEFAULT_CONFIG
from services.data.sources.claims import ClaimedTwice, Claims
from services.data.sources.config import BadConfig, HttpConfig, SimulationConfig, load
from services.data.sources.keeper import Keeper
from services.data.sources.source import Claim, Health, Sink

GOOD = """\
[[source]]
type = "http"
name = "prices"
url = "http://127.0.0.1:1/prices.csv"
endpoint = "/my/prices"
unit = "EUR/MWh"
resolution = "PT60M"

[[source]]
type = "simulation"
time_scale = 60.0
zones = ["GR", "BG"]
"""


def write(path: Path, text: str) -> Path:
    file = path / "diem.toml"
    file.write_text(text)
    return file


def test_a_configuration_is_read(tmp_path: Path) -> None:
    http, simulation = load(write(tmp_path, GOOD)).source
    assert isinstance(http, HttpConfig)
    assert (http.every, http.resolution) == (10.0, "PT1H")
    assert isinstance(simulation, SimulationConfig)
    assert simulation.name == "market"


def test_the_default_configuration_is_good() -> None:
    (market,) = load(DEFAULT_CONFIG).source
    assert market.name == "market"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('url = "http', 'url = "ftp', 'line 4, [[source]] 1 "prices", url: expected http://host/path'),
        ("PT60M", "PT7H", 'line 7, [[source]] 1 "prices", resolution: the day is not a whole number'),
        ("EUR/MWh", "Euro", 'line 6, [[source]] 1 "prices", unit: unknown unit'),
        ('"/my/prices"', '"my/prices"', 'line 5, [[source]] 1 "prices", endpoint: it must be'),
        ("time_scale = 60.0", "timescale = 60.0", "line 11, [[source]] 2, timescale: extra inputs"),
        ("time_scale = 60.0", "time_scale = '1'", "line 11, [[source]] 2, time_scale: input should be a valid number"),
        ("time_scale = 60.0", "time_scale = 0.0", "line 11, [[source]] 2, time_scale: input should be greater than 0"),
        ('"simulation"', '"kafka"', "line 9, [[source]] 2: input tag 'kafka'"),
        ('name = "prices"\n', "", "line 1, [[source]] 1, name: field required"),
        ('endpoint = "/my/prices"\n', "", 'line 1, [[source]] 1 "prices": exactly one of endpoint and prefix'),
        ('"prices"', '"market"', "line 9, [[source]] 2, name: another source has the name 'market'"),
        ("[[source]]", "[[sources]]", "sources: extra inputs"),
        ("[[source]]", "[[source", "not TOML"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    file = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadConfig) as caught:
        load(file)
    assert f"{file}: {expected}" in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as caught:
        load(tmp_path / "diem.toml")
    assert str(caught.value) == f"{tmp_path / 'diem.toml'}: No such file or directory"


class Fake(NamedTuple):
    """A source that claims and does nothing."""

    name: str
    claims: list[Claim]
    health: Health = Health("fake", ManualClock())

    async def run(self, sink: Sink) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("first", "second", "endpoint"),
    [
        (Claim("/a/b"), Claim("/a/b"), "/a/b"),
        (Claim("/a", below=True), Claim("/a/b"), "/a/b"),
        (Claim("/a/b/c"), Claim("/a", below=True), "/a/b/c"),
        (Claim("/a", below=True), Claim("/a/b", below=True), "/a/b/*"),
        (Claim("/a", below=True), Claim("/a", below=True), "/a/*"),
    ],
)
def test_an_endpoint_claimed_by_two_sources_is_one_clear_error(first: Claim, second: Claim, endpoint: str) -> None:
    with pytest.raises(ClaimedTwice) as caught:
        Claims([Fake("one", [first]), Fake("two", [second])])
    text = str(caught.value)
    assert text.startswith(f"the endpoint {endpoint} is claimed by two sources: ")
    assert "'one'" in text
    assert "'two'" in text


def test_the_configured_sources_are_checked_against_each_other(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD.replace('"/my/prices"', '"/dam/prices/GR"'))
    with pytest.raises(ClaimedTwice, match="/dam/prices/GR is claimed by two sources: 'prices' and 'market'"):
        Keeper.configured(load(file), ManualClock())


def test_owners_are_found_by_endpoint_and_by_prefix() -> None:
    claims = Claims([Fake("one", [Claim("/a"), Claim("/a/b", below=True)]), Fake("two", [Claim("/a/c")])])
    owners = {name: claims.owner_of(name) for name in ("/a", "/a/b", "/a/b/x/y", "/a/bc", "/a/c", "/a/c/d", "/z")}
    assert owners == {
        "/a": "one",
        "/a/b": None,
        "/a/b/x/y": "one",
        "/a/bc": None,
        "/a/c": "two",
        "/a/c/d": None,
        "/z": None,
    }
