"""diem.toml: every fault names file, line, table and field; claims do not overlap."""

from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple

import pytest

from diem.errors import ConfigurationError
from diem.process.clock import ManualClock
from services.data.limits import InlineLimits
from services.data.sources import config
from services.data.sources.config import BadConfig, DirectoryConfig, HttpConfig, default_file, load
from services.data.sources.runner import ClaimedTwice, ClaimIndex, SourceRunner
from services.data.sources.source import Claim, Health, Sink
from services.data.sources.tables import SecretFile, SourceTable
from tests.support.file_threads import FILES
from tests.unit.services.data.sources.toml import assert_fault, write

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


def test_a_configuration_is_loaded(tmp_path: Path) -> None:
    http, simulation = load(write(tmp_path, GOOD)).source
    assert isinstance(http, HttpConfig)
    assert (http.every, http.resolution) == (10.0, "PT1H")
    assert isinstance(simulation, SourceTable)
    assert simulation.name == "market"


def test_the_default_configuration_is_valid() -> None:
    (market,) = load(default_file()).source
    assert market.name == "market"


def test_without_a_package_that_has_one_the_default_configuration_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "entry_points", lambda **_: ())
    assert load(default_file()) == config.Config()


def test_a_default_configuration_must_be_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("a", value, config.DEFAULTS) for value in ("x:FILE", "y:FILE")]
    monkeypatch.setattr(config, "entry_points", lambda **_: points)
    with pytest.raises(ConfigurationError, match="several packages have a default configuration: x:FILE, y:FILE"):
        default_file()
    del points[1]
    with pytest.raises(
        ConfigurationError, match="the default configuration x:FILE cannot be used: ModuleNotFoundError"
    ):
        default_file()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('url = "http', 'url = "ftp', 'line 4, [[source]] 1 "prices", url: expected http://host/path'),
        ('url = "http', 'url = "http://me:a/b@x/', 'line 4, [[source]] 1 "prices", url: expected http://host/path'),
        ("PT60M", "PT7H", 'line 7, [[source]] 1 "prices", resolution: the day is not a whole number'),
        ('"/my/prices"', '"my/prices"', 'line 5, [[source]] 1 "prices", endpoint: it must be'),
        ("time_scale = 60.0", "time_scale = '1'", "line 11, [[source]] 2, time_scale: expected a number"),
        ('"simulation"', '"nats"', "line 9, [[source]] 2: unknown type 'nats'; known are 'directory'"),
        (
            '"simulation"',
            '"simulatoin"',
            "line 9, [[source]] 2: unknown type 'simulatoin' (did you mean `simulation`?); known are 'directory', ",
        ),
        ('type = "http"\n', "", 'line 1, [[source]] 1 "prices": missing field `type`; known are'),
        ('name = "prices"\n', "", "line 1, [[source]] 1: missing field `name`"),
        ("[[source]]\ntype", "every = 1\n[[source]]\ntype", "line 1, unknown field `every`"),
        ('endpoint = "/my', 'xyzzy = 1\nendpoint = "/my', 'line 5, [[source]] 1 "prices": unknown field `xyzzy`\n'),
        ("[[source]]", "[[source", "line 1, not TOML: expected ']]' at the end of an array declaration"),
        ('"PT60M"\n', "", "line 7, not TOML: invalid value"),
        ('name = "prices"', 'name = "prices"\nname = "p"', "line 4, not TOML: cannot overwrite a value"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert_fault(tmp_path, GOOD.replace(old, new), expected)


WRONG = """\
[[source]]
type = "http"
name = "prices"
ulr = "http://127.0.0.1:1/prices.csv"
endpiont = "/my/prices"
unit = "MW"
quantity = "price"
evry = 5

[[source]]
type = "simulation"
time_scale = 0.0
zonse = ["GR"]

[[source]]
type = "directory"
name = "market"
path = 1
prefix = "/files"

[source.endpoints."/files/x"]
unti = "MW"

[[plan]]
name = "standard"
per_minutes = 6
per_day = 0

[[plan]]
name = "standard"
prefix = ["/dam"]

[[plans]]
name = "x"
"""


def test_all_faults_are_reported_at_once_with_places_and_hints(tmp_path: Path) -> None:
    file = write(tmp_path, WRONG)
    with pytest.raises(BadConfig) as caught:
        load(file)
    faults = [fault.partition("; known are")[0] for fault in caught.value.faults]
    assert faults == [
        'line 1, [[source]] 1 "prices": missing field `url`',
        'line 1, [[source]] 1 "prices": exactly one of endpoint and prefix is needed',
        'line 4, [[source]] 1 "prices": unknown field `ulr` (did you mean `url`?)',
        'line 5, [[source]] 1 "prices": unknown field `endpiont` (did you mean `endpoint` or `endpoints`?)',
        'line 7, [[source]] 1 "prices", quantity: price is not measured in MW, but in EUR/MWh or EUR/MW or EUR/tCO2',
        'line 8, [[source]] 1 "prices": unknown field `evry` (did you mean `every` or `query`?)',
        "line 12, [[source]] 2, time_scale: must be greater than 0",
        "line 13, [[source]] 2: unknown field `zonse` (did you mean `zones`?)",
        "line 17, [[source]] 3 \"market\", name: another source has the name 'market'",
        'line 18, [[source]] 3 "market", path: expected text in quotes',
        'line 22, [[source]] 3 "market", endpoints./files/x: unknown field `unti` (did you mean `unit` or `quantity`?)',
        (
            'line 26, [[plan]] 1 "standard": unknown field `per_minutes`'
            " (did you mean `per_minute` or `per_user_per_minute`?)"
        ),
        'line 27, [[plan]] 1 "standard", per_day: must be at least 1',
        "line 30, [[plan]] 2 \"standard\", name: another plan has the name 'standard'",
        'line 31, [[plan]] 2 "standard": unknown field `prefix` (did you mean `prefixes`?)',
        "line 33, unknown table `plans` (did you mean `plan`?)",
    ]


DESCRIBED = """\
[[source]]
type = "http"
name = "meteo"
url = "http://127.0.0.1:1/meteo.json"
prefix = "/meteo"
zone = "Europe/Athens"
unit = "K"
quantity = "temperature"

[source.endpoints."/meteo/GR"]
title = "Athens"
area = "GR"

[source.endpoints."/meteo/wind"]
unit = "m/s"
quantity = "wind"
"""


def test_declarations_of_single_endpoints_override_common_ones(tmp_path: Path) -> None:
    (source,) = load(write(tmp_path, DESCRIBED)).source
    assert isinstance(source, HttpConfig)
    assert source.describe("/meteo/GR") == ("K", None, "Athens", "GR", "temperature")
    assert source.describe("/meteo/wind") == ("m/s", None, "", "", "wind")
    assert source.describe("/meteo/BG") == ("K", None, "", "", "temperature")


def test_a_schedule_is_an_interval_or_times_of_day(tmp_path: Path) -> None:
    at = GOOD.replace('endpoint = "/my', 'at = ["06:00"]\nendpoint = "/my')
    (source, _) = load(write(tmp_path, at)).source
    assert isinstance(source, HttpConfig)
    assert source.at == ["06:00"]
    for wrong, expected in (
        (at.replace("06:00", "6:00"), 'line 5, [[source]] 1 "prices", at: expected times such as 06:00'),
        (at.replace("at =", "every = 5.0\nat ="), 'line 6, [[source]] 1 "prices", at: every and at exclude each other'),
    ):
        assert_fault(tmp_path, wrong, expected)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("headers = { Host = 'x' }", "headers: the HTTP client sets Host itself"),
        ("headers = { 'If-None-Match' = 'x' }", "headers: the HTTP client sets If-None-Match itself"),
        ("headers = { content-type = 'x' }", "headers: use content_type, beside body, for content-type"),
        ("headers = { 'a b' = 'x' }", "headers: 'a b' is not the name of a header field"),
        ("headers = { a = 'é' }", "headers: a header field has ASCII characters alone, unlike a"),
        ("headers = { a = 'x', A = 'y' }", "headers: the same field is there twice"),
        ("headers = { a = { fil = 'x' } }", "headers: unknown field `fil` (did you mean `file`?)"),
        ("headers = { a = { prefix = 'x' } }", "headers: missing field `file`"),
        ("headers = { a = [1] }", 'headers: expected text in quotes, a whole number, or { file = "..." }'),
        ("query = { day = '{dat}' }", "query: day: {dat} is not a date such as {date:%Y-%m-%d}, "),
        ("method = 'PUT'", "method: expected 'GET' or 'POST'"),
        ("body = '{date:%Q}'", "body: %Q in {date:%Q} is unknown: use %Y"),
        ("since = '1.1.2026'", "since: expected a date such as 2026-01-31"),
        ("since = 2026", "since: expected a date such as 2026-01-31"),
        ("days = 0", "days: must be at least 1"),
        ("pages = { nxt = 'a' }", "pages: unknown field `nxt` (did you mean `next`?)"),
        ("pages = { most = 3 }", "pages: one of next, link and parameter is needed"),
        ("pages = { link = true, next = 'a' }", "pages: link excludes next and parameter"),
        (
            "pages = { next = 'a', parameter = 'b', first = 1 }",
            "pages: first, step and rows belong to a parameter alone",
        ),
        ("redirects = ['https://a.example/']", "redirects: expected a host, such as cdn.example"),
    ],
)
def test_a_fault_of_a_request_is_named_with_its_place(tmp_path: Path, new: str, expected: str) -> None:
    text = GOOD.replace('endpoint = "/my', f'{new}\nendpoint = "/my')
    assert_fault(tmp_path, text, f'line 5, [[source]] 1 "prices", {expected}')


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("127.0.0.1:1", "{date}.example", "url: dates and {rest} may be in its path and query, not in its host"),
        ("endpoint", "method = 'POST'\nendpoint", "body and method = 'POST' belong together"),
        ("endpoint", "body = 'x'\nendpoint", "body and method = 'POST' belong together"),
        (".csv", ".csv?a=&b=1'\nquery = { a = 1 }#", "query: a is in url, too"),
        (".csv", ".csv?a=&b=1'\npages = { parameter = 'b' }#", "pages: its parameter b is in url or query, too"),
        ("endpoint", "days = 2\nendpoint", "days and since need a date in url, query or body, such as {date:%Y-%m-%d}"),
        (
            "127.0.0.1",
            "u:p@127.0.0.1:1/'\nheaders = { authorization = 'x' }#",
            "headers: Authorization is given by the user name in url, too",
        ),
    ],
)
def test_fields_of_a_request_that_exclude_each_other_are_named(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    text = GOOD.replace('"http://127.0.0.1:1/prices.csv"', "'http://127.0.0.1:1/prices.csv'").replace(old, new, 1)
    assert_fault(tmp_path, text, f'line 1, [[source]] 1 "prices": {expected}')


def test_the_file_of_a_secret_is_relative_to_the_configuration_file(tmp_path: Path) -> None:
    (source, _) = load(
        write(tmp_path, GOOD.replace("endpoint", "headers = { a = { file = 'k' } }\nendpoint", 1))
    ).source
    assert isinstance(source, HttpConfig)
    assert source.headers["a"] == SecretFile(file=str(tmp_path / "k"))


def test_a_backfill_begins_at_a_date_or_its_text(tmp_path: Path) -> None:
    for text in ("2026-01-31", "'2026-01-31'"):
        new = f"since = {text}\nquery = {{ day = '{{date}}' }}\nendpoint"
        (source, _) = load(write(tmp_path, GOOD.replace("endpoint", new, 1))).source
        assert isinstance(source, HttpConfig)
        assert source.since == date(2026, 1, 31)


WATCHED = """\
[[source]]
type = "http"
name = "orders"
url = "https://api.example/v2/orders/{rest}"
prefix = "/orders"
kind = "document"
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("prefix", "endpoint", ": url: {rest} stands for endpoints below a prefix: use prefix in place of endpoint"),
        ("kind", "at = ['06:00']\nkind", ": url: {rest} excludes at, days and since: an endpoint is polled every so"),
        (
            'kind = "document"',
            "mapping = { value = '*' }",
            ": mapping: its rows or columns name several endpoints, and",
        ),
        ("/v2/orders/{rest}", "/v2/orders", ": kind = 'document' is of one endpoint: use endpoint instead of prefix"),
        ('/v2/orders/{rest}"', '"\nconcurrent = 3', ": concurrent needs {rest} in url"),
        ("kind", "unit = 'MW'\nkind", ": unit does not go with kind = 'document', which is the JSON of an answer"),
        ("api.example", "{rest}", ": url: dates and {rest} may be in its path and query, not in its host"),
        ("{rest}", "{id}", ", url: {id} is not a date such as"),
    ],
)
def test_a_fault_of_a_url_for_each_endpoint_has_its_remedy(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(BadConfig) as caught:
        load(write(tmp_path, WATCHED.replace(old, new, 1)))
    (fault,) = caught.value.faults
    assert fault.partition('"orders"')[2].startswith(expected)


def test_the_url_of_an_endpoint_stays_below_that_of_the_source(tmp_path: Path) -> None:
    (source,) = load(write(tmp_path, WATCHED)).source
    assert isinstance(source, HttpConfig)
    own = source.of_endpoint("/orders/a@b/c?d".replace("?", "="))
    assert (own.url, own.endpoint, own.prefix) == ("https://api.example/v2/orders/a%40b/c%3Dd", "/orders/a@b/c=d", None)


DIRECTORY = """\
[[source]]
type = "directory"
name = "files"
path = "incoming"
prefix = "/files"
"""


def test_a_directory_is_relative_to_the_configuration_file(tmp_path: Path) -> None:
    (source,) = load(write(tmp_path, DIRECTORY)).source
    assert isinstance(source, DirectoryConfig)
    assert source.path == str(tmp_path / "incoming")
    (source,) = load(write(tmp_path, DIRECTORY.replace("incoming", "/srv/incoming"))).source
    assert isinstance(source, DirectoryConfig)
    assert source.path == "/srv/incoming"


def test_the_home_directory_of_an_unknown_user_is_a_fault_with_its_place(tmp_path: Path) -> None:
    expected = 'line 4, [[source]] 1 "files", path: expected a path; the home directory in it is unknown'
    assert_fault(tmp_path, DIRECTORY.replace("incoming", "~no-such-user/data"), expected)


def test_a_byte_order_mark_is_skipped_and_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "diem.toml"
    file.write_bytes(DIRECTORY.encode("utf-8-sig"))
    assert [each.name for each in load(file).source] == ["files"]
    file.write_bytes(DIRECTORY.encode("utf-16"))
    with pytest.raises(BadConfig, match="not UTF-8 text: save it as UTF-8"):
        load(file)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ('endpoint = "/a"', 'line 1, [[source]] 1 "files": endpoint needs file'),
        (
            'endpoint = "/a"\nfile = "a.txt"',
            'line 6, [[source]] 1 "files", file: expected the name of a file in the directory, .csv or',
        ),
        (
            'endpoint = "/a"\nfile = "../a.csv"',
            'line 6, [[source]] 1 "files", file: expected the name of a file in the directory, .csv or',
        ),
        ('prefix = "/files"\nevery = 0.0', 'line 6, [[source]] 1 "files", every: must be at least 0.05'),
    ],
)
def test_a_fault_of_a_directory_is_named_with_its_place(tmp_path: Path, new: str, expected: str) -> None:
    assert_fault(tmp_path, DIRECTORY.replace('prefix = "/files"', new), expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Europe/Athens", "Athens", "line 6, [[source]] 1 \"meteo\", zone: 'Athens' is not a time zone like"),
        (
            '"temperature"',
            '"the temperature two metres above ground"',
            'line 8, [[source]] 1 "meteo", quantity: expected at most 32 printable characters',
        ),
        ('"temperature"', '"price"', 'line 8, [[source]] 1 "meteo", quantity: price is not measured in K'),
        (
            'area = "GR"',
            'area = "G\\tR"',
            'line 12, [[source]] 1 "meteo", endpoints./meteo/GR.area: expected at most 64 printable',
        ),
        (
            'title = "Athens"',
            "titel = 1",
            'line 11, [[source]] 1 "meteo", endpoints./meteo/GR: unknown field `titel` (did you mean `title`?)',
        ),
        ('"wind"', '"load"', 'line 1, [[source]] 1 "meteo": endpoints: /meteo/wind: load is not measured in m/s'),
        ('"/meteo/wind"', '"/wind"', 'line 1, [[source]] 1 "meteo": endpoints: /wind is not below the prefix'),
        ('"/meteo/wind"', '"wind"', 'line 14, [[source]] 1 "meteo", endpoints.wind: it must'),
    ],
)
def test_a_fault_in_a_description_is_named_with_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert_fault(tmp_path, DESCRIBED.replace(old, new), expected)


def test_a_table_with_single_brackets_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as caught:
        load(write(tmp_path, GOOD.partition("\n\n")[0].replace("[[source]]", "[source]")))
    assert caught.value.faults == ("line 1, source: write [[source]], with two brackets",)


def test_a_text_that_ends_too_early_has_its_last_line(tmp_path: Path) -> None:
    assert_fault(tmp_path, GOOD + 'zones = ["GR"', "line 13, not TOML: ")


def test_a_missing_file_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as caught:
        load(tmp_path / "diem.toml")
    assert str(caught.value) == f"{tmp_path / 'diem.toml'}: No such file or directory"


class Fake(NamedTuple):
    """A source that has claims and does nothing."""

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
        ClaimIndex([Fake("one", [first]), Fake("two", [second])])
    text = str(caught.value)
    assert text.startswith(f"the endpoint {endpoint} is claimed by two sources: ")
    assert "'one'" in text
    assert "'two'" in text


def test_the_configured_sources_are_checked_against_each_other(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD.replace('"/my/prices"', '"/dam/prices/GR"'))
    with pytest.raises(ClaimedTwice, match="/dam/prices/GR is claimed by two sources: 'prices' and 'market'"):
        SourceRunner.configured(load(file), ManualClock(), convert=FILES.convert)


def test_owners_are_found_by_endpoint_and_by_prefix() -> None:
    claims = ClaimIndex([Fake("one", [Claim("/a"), Claim("/a/b", below=True)]), Fake("two", [Claim("/a/c")])])
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


def test_the_longest_dataset_in_updates_is_set_by_prefix(tmp_path: Path) -> None:
    config = load(write(tmp_path, '[[inline]]\nprefix = "/load"\nmax_bytes = 8192\n'))
    assert [(each.prefix, each.max_bytes) for each in config.inline] == [("/load", 8192)]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('prefix = "/load"', "line 1, [[inline]] 1: missing field `max_bytes`"),
        ('prefix = "load"\nmax_bytes = 1', "line 2, [[inline]] 1, prefix: "),
        ('prefix = "/load"\nmax_bytes = 40000', "line 3, [[inline]] 1, max_bytes: must be at most"),
        (
            'prefix = "/load"\nmaxbytes = 1',
            "line 3, [[inline]] 1: unknown field `maxbytes` (did you mean `max_bytes`?)",
        ),
        (
            'prefix = "/load"\nmax_bytes = 1\n[[inline]]\nprefix = "/load"\nmax_bytes = 2',
            "line 5, [[inline]] 2, prefix: another inline has the prefix '/load'",
        ),
    ],
)
def test_a_fault_of_an_inline_table_is_named_with_its_place(tmp_path: Path, table: str, expected: str) -> None:
    assert_fault(tmp_path, f"[[inline]]\n{table}\n", expected)


def test_the_longest_prefix_decides_in_whole_segments() -> None:
    limits = InlineLimits(100, {"/a": 1, "/a/b": 2})
    names = ["/a", "/a/x", "/a/b", "/a/b/c", "/ab", "/c"]
    assert [limits.limit(name) for name in names] == [1, 1, 2, 2, 100, 100]
    assert limits.greatest == 100


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ('scheme = "hmac"', "header and scheme = 'hmac' belong together"),
        ('header = "X-Shop"', "header and scheme = 'hmac' belong together"),
        ('encoding = "hex"', "encoding needs scheme = 'hmac'"),
        ('id_header = "X-Id"', "id_header needs scheme = 'hmac' or 'bearer': this one has an id of its own"),
        ('scheme = "hmac"\nheader = "X Shop"', "'X Shop' is not the name of a header field"),
        ('on_invalid = "stop"', "expected 'refuse' or 'skip'"),
    ],
)
def test_faults_of_a_webhook_are_named(tmp_path: Path, fields: str, fault: str) -> None:
    table = '[[source]]\ntype = "webhook"\nname = "shop"\nendpoint = "/orders/{id}"\nsecret = { file = "shop.key" }\n'
    file = write(tmp_path, table + fields)
    with pytest.raises(BadConfig) as caught:
        load(file)
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ('url = "http://broker.example"', "expected mqtt://host:1883 or mqtts://host:8883"),
        ('url = "mqtt://user:word@broker.example"', "user and password have keys of their own"),
        ('topics = ["$share/g/a"]', "a shared subscription has no order"),
        ('topics = ["a/#/b"]', "+ stands for one level, # for all levels from the last one on"),
        ('topics = ["a/b+"]', "+ stands for one level"),
        ('topics = ["a/b#"]', "# is a level of its own"),
        ('password_file = "mqtt.key"', "password_file needs username"),
        ('ca_file = "ca.pem"', "ca_file, certificate_file and key_file need mqtts://"),
        ('url = "mqtts://a"\nkey_file = "key.pem"', "key_file needs certificate_file"),
    ],
)
def test_faults_of_an_mqtt_source_are_named(tmp_path: Path, fields: str, fault: str) -> None:
    table = {"url": '"mqtt://broker.example"', "topics": '["a/#"]', "endpoint": '"/a/{topic}"'}
    table |= dict(line.split(" = ", 1) for line in fields.splitlines())
    text = '[[source]]\ntype = "mqtt"\nname = "plant"\n' + "".join(
        f"{name} = {value}\n" for name, value in table.items()
    )
    with pytest.raises(BadConfig) as caught:
        load(write(tmp_path, text))
    assert fault in str(caught.value)
