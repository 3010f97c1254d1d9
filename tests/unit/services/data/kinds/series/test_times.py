"""Local times: repeated hours are data, skipped ones are refused; zoneinfo is the oracle."""

from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import islice
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.data.errors import InvalidDataset
from services.data.kinds import labels_of, series
from services.data.kinds.series import Declared, EndpointDeclaration, LocalClock, parse_resolution, zone

ZONES = [
    "UTC", "Europe/Athens", "Europe/Berlin", "Europe/London", "America/New_York", "America/St_Johns",
    "Australia/Lord_Howe", "Asia/Kathmandu", "Asia/Tehran", "Africa/Casablanca", "Pacific/Apia", "America/Sao_Paulo",
]  # fmt: skip
AUTUMN_NIGHT = int(datetime(2026, 10, 24, 23, tzinfo=UTC).timestamp())


@cache
def oracle(key: str) -> ZoneInfo:
    """Return the zone from the package tzdata: the machine's own database may differ."""
    with (files("tzdata") / "zoneinfo" / key).open("rb") as file:
        return ZoneInfo.from_file(file, key)


def wall(seconds: int, key: str) -> datetime:
    """Return the local time of a zone, independently of the code under test."""
    return datetime.fromtimestamp(seconds, UTC).astimezone(oracle(key))


def is_repeat(seconds: int, key: str) -> bool:
    return wall(seconds, key).fold == 1


@cache
def changes(key: str, year: int) -> list[int]:
    """Return the quarter-hours of a year (UTC) at which the offset changes."""
    start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    days = range(start, start + 366 * 86_400, 86_400)
    # No zone changes twice within a day.
    changing = [day for day in days if wall(day - 1, key).utcoffset() != wall(day + 86_399, key).utcoffset()]
    quarters = [at for day in changing for at in range(day, day + 86_400, 900)]
    return [at for at in quarters if wall(at, key).utcoffset() != wall(at - 1, key).utcoffset()]


@given(
    st.sampled_from(ZONES),
    st.integers(2000, 2036),
    st.integers(0, 5),
    st.sampled_from([900, 1800, 3600, 7200]),
    st.tuples(st.integers(1, 12), st.integers(6, 30)),
)
@settings(deadline=None)  # the first use of a zone's year takes a while
@example("Europe/Athens", 2026, 1, 3600, (3, 8))
@example("Australia/Lord_Howe", 2026, 0, 3600, (3, 8))
def test_a_series_without_gaps_is_read_back_as_the_instants_it_was_written_from(
    key: str, year: int, change: int, step: int, rows: tuple[int, int]
) -> None:
    moments = changes(key, year) or [int(datetime(year, 7, 1, tzinfo=UTC).timestamp())]
    first = (moments[change % len(moments)] // step - rows[0]) * step
    instants = [first + index * step for index in range(rows[1])]
    while is_repeat(instants[0], key):  # a series that begins in the repeat cannot be told from one that begins before
        instants = [at - step for at in instants]
    clock = LocalClock(key)
    read: list[int] = []
    for at in instants:
        text = wall(at, key).replace(tzinfo=None).isoformat()
        if wall(at, key).second:
            return
        read.append(clock.instant(text, after=read[-1] if read else -1, grid=step).seconds)
    assert read == instants


@given(st.sampled_from(ZONES), st.integers(0, 366 * 86_400 * 30 // 60))
def test_a_time_is_refused_exactly_when_the_clocks_never_show_it(key: str, minutes: int) -> None:
    naive = datetime(2000, 1, 1) + timedelta(minutes=minutes)  # noqa: DTZ001  # a wall clock's time
    there = naive.replace(tzinfo=oracle(key))
    exists = there.astimezone(UTC).astimezone(oracle(key)).replace(tzinfo=None) == naive
    clock = LocalClock(key)
    if exists:
        read = clock.instant(naive.isoformat(), after=-1, grid=60)
        assert wall(read.seconds, key).replace(tzinfo=None) == naive
    else:
        with pytest.raises(ValueError, match="does not exist"):
            clock.instant(naive.isoformat(), after=-1, grid=60)


@pytest.mark.parametrize("key", [key for key in ZONES if key not in {"UTC", "Asia/Kathmandu"}])
def test_the_missing_hour_of_each_change_is_refused(key: str) -> None:
    missing = 0
    for year in (2005, 2010, 2011, 2026):
        for at in changes(key, year):
            jump = (wall(at, key).utcoffset() or timedelta()) - (wall(at - 1, key).utcoffset() or timedelta())
            if jump > timedelta():
                missing += 1
                skipped = (wall(at, key).replace(tzinfo=None) - jump / 2).isoformat()
                with pytest.raises(ValueError, match=r"does not exist in .*: the clocks were put forward"):
                    LocalClock(key).instant(skipped, after=-1, grid=60)
    assert missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-01T00:00:00Z", "2026-06-01T00:00:00Z"),
        ("2026-06-01 00:00Z", "2026-06-01T00:00:00Z"),
        ("2026-06-01T00:00:00+02:00", "2026-05-31T22:00:00Z"),
        ("2026-06-01T00:00:00-05:30", "2026-06-01T05:30:00Z"),
        ("2026-06-01T00:00", "2026-05-31T21:00:00Z"),
        ("2026-06-01 00:00:00.000", "2026-05-31T21:00:00Z"),
        ("2026-01-01T00:00", "2025-12-31T22:00:00Z"),
        ("2025-12-31T24:00", "2025-12-31T22:00:00Z"),
        ("2025-12-31T24:00:00Z", "2026-01-01T00:00:00Z"),
        ("2025-12-31 24:00+02:00", "2025-12-31T22:00:00Z"),
    ],
)
def test_a_time_without_an_offset_is_local_time_of_the_zone(text: str, expected: str) -> None:
    assert LocalClock("Europe/Athens").instant(text, after=-1, grid=60).text == expected


@pytest.mark.parametrize(
    "text", ["", "01/02/2026", "2026-06-01", "2026-06-01T00", "2026-02-30T00:00", "2026-06-01T00:00:00.5",
             "2026-06-01T24:01", "2026-06-01T00:00+2:00", "1969-12-31T23:00Z", "1970-01-01T00:00+01:00",
             "2199-12-31T23:30-01:00"]
)  # fmt: skip
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|1970"):
        LocalClock("Europe/Athens").instant(text, after=-1, grid=60)


@pytest.mark.parametrize(
    "key", ["", "Athens", "Europe", "../etc/passwd", "/etc/localtime", "Europe/Athens/", "zone.tab"]
)
def test_text_that_is_no_zone_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        zone(key)


def table(rows: str, step: str = "PT1H") -> series.Dataset:
    declared = Declared("/a", EndpointDeclaration("kW", step, "A", "GR", "load"), clock=LocalClock("Europe/Athens"))
    (found,) = series.read_table(series.parse_csv(b"time,value\n" + rows.encode()), declared)
    return found


AUTUMN = "2026-10-25T02:00,1000\n2026-10-25T03:00,2000\n2026-10-25T03:00,3000\n2026-10-25T04:00,4000\n"


def test_the_repeated_hour_of_autumn_is_resolved_by_the_order_of_the_rows() -> None:
    points = [series.Point(AUTUMN_NIGHT + hour * 3600, value) for hour, value in enumerate((1, 2, 3, 4))]
    assert table(AUTUMN).content == series.build("/a", "MW", "PT1H", points).content


def test_a_third_occurrence_of_a_local_time_is_refused() -> None:
    with pytest.raises(InvalidDataset, match="line 5: 2026-10-25T01:00:00Z appears twice"):
        table(AUTUMN.replace("T04:00", "T03:00"))


def test_the_missing_hour_of_spring_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidDataset) as caught:
        table("2026-03-29T02:00,1\n2026-03-29T03:00,2\n2026-03-29T04:00,3\n")
    assert caught.value.where == "line 3"
    assert "2026-03-29T03:00 does not exist in Europe/Athens" in caught.value.reason


def test_local_times_and_declarations_apply_to_json_of_a_source() -> None:
    declared = Declared(
        None,
        EndpointDeclaration(None, "PT1H"),
        {"/a": EndpointDeclaration("GW", "PT1H", "A", "GR", "load")},
        LocalClock(),
    )
    points = '[{"time":"2026-01-01T00:00","value":1.1},{"time":"2026-01-01T01:00","value":null}]'
    own = f'{{"endpoint":"/b","unit":"ct / kWh","points":{points}}}'
    body = f'{{"datasets":[{{"endpoint":"/a","points":{points}}},{own}]}}'
    one, other = series.read_json(body.encode(), declared)
    assert (one.unit, one.title, one.area, one.quantity) == ("MW", "A", "GR", "load")
    assert b'"value":1100},' in one.content
    assert b'"value":null}' in one.content
    # Without a quantity, a unit is its own.
    assert (other.unit, other.area) == ("ct/kWh", "")
    assert b'"value":1.1}' in other.content
    with pytest.raises(InvalidDataset, match=r"\$.points\[0\]: .*out of range"):
        series.read_json(
            b'[{"time":"2026-01-01T00:00","value":1e14}]', Declared("/a", declared.own["/a"], clock=LocalClock())
        )


def test_bodies_of_the_api_are_in_utc_and_not_converted() -> None:
    with pytest.raises(InvalidDataset, match="a local time needs its zone"):
        series.rows_to_datasets(
            series.parse_csv(b"time,value\n2026-01-01T00:00,1\n"), endpoint="/a", unit_="MW", resolution="PT1H"
        )
    (own,) = series.rows_to_datasets(
        series.parse_csv(b"time,value\n2026-01-01T00:00Z,1\n"), endpoint="/a", unit_="EUR/kWh", resolution="PT1H"
    )
    assert own.unit == "EUR/kWh"
    assert b'"value":1}' in own.content


def test_area_and_quantity_are_not_part_of_the_content() -> None:
    points = [series.Point(AUTUMN_NIGHT, 1)]
    plain = series.build("/a", "MW", "PT1H", points)
    described = series.build("/a", "MW", "PT1H", points, area="GR", quantity="load")
    assert (described.area, described.quantity) == ("GR", "load")
    assert (described.content, described.digest) == (plain.content, plain.digest)


def days(key: str, rows: str) -> list[str]:
    """Return the instants of a table of days."""
    declared = Declared("/a", EndpointDeclaration("MWh", "P1D"), clock=LocalClock(key))
    (found,) = series.read_table(series.parse_csv(b"time,value\n" + rows.encode()), declared)
    return [point["time"] for point in orjson.loads(found.content)["points"]]


@pytest.mark.parametrize("month", ["2026-03-28", "2026-10-24"])
@pytest.mark.parametrize("key", [*ZONES, "Africa/Cairo", "Asia/Beirut", "America/Havana", "Atlantic/Azores"])
def test_days_of_a_zone_begin_when_its_clocks_first_show_the_date(key: str, month: str) -> None:
    dates = [datetime.fromisoformat(month) + timedelta(days=number) for number in range(3)]
    expected = []
    for day in dates:
        midnight = int(day.replace(tzinfo=UTC).timestamp())
        first = next(
            at for at in range(midnight - 86_400, midnight + 86_400, 900) if wall(at, key).date() == day.date()
        )
        expected.append(datetime.fromtimestamp(first, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    local = "".join(f"{day:%Y-%m-%dT00:00},1\n" for day in dates)
    assert days(key, local) == expected
    assert days(key, "".join(f"{text},1\n" for text in expected)) == expected


def test_json_accepts_days_of_23_and_25_hours() -> None:
    declared = Declared("/a", EndpointDeclaration("MWh", "P1D"), clock=LocalClock("Europe/Athens"))
    body = orjson.dumps([{"time": f"2026-{day}T00:00", "value": 1} for day in ("03-29", "03-30", "10-25", "10-26")])
    (found,) = series.read_json(body, declared)
    first, second, third, fourth = (
        datetime.fromisoformat(point["time"]).timestamp() for point in orjson.loads(found.content)["points"]
    )
    assert ((second - first) / 3600, (fourth - third) / 3600) == (23, 25)
    with pytest.raises(InvalidDataset, match=r"\$.points\[1\]: .* is not the start of a day"):
        series.read_json(body.replace(b"03-30T00", b"03-30T01"), declared)


def test_a_source_with_a_zone_may_have_days_of_utc() -> None:
    rows = "2026-06-01T00:00Z,1\n2026-06-02T00:00Z,2\n"
    assert days("Europe/Athens", rows) == ["2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z"]
    # In winter London's days are those of UTC: which are meant is seen in April.
    assert days("Europe/London", "2026-03-01T00:00Z,1\n2026-04-02T00:00Z,2\n")[1] == "2026-04-02T00:00:00Z"
    assert days("Europe/London", "2026-03-01T00:00,1\n2026-04-02T00:00,2\n")[1] == "2026-04-01T23:00:00Z"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            "2026-06-01T00:00,1\n2026-06-02T00:00Z,2\n",
            "line 3: 2026-06-02T00:00:00Z is not the start of a day in Europe",
        ),
        ("2026-06-01T00:00Z,1\n2026-06-02T00:00,2\n", "line 3: 2026-06-01T21:00:00Z is not the start of a day in UTC"),
        ("2026-06-01T12:00,1\n", "line 2: 2026-06-01T09:00:00Z is not the start of a day in Europe/Athens or UTC"),
        ("2026-06-01T00:00,1\n2026-06-01T00:00,2\n", "line 3: 2026-05-31T21:00:00Z appears twice"),
        ("2026-06-02T00:00,1\n2026-06-01T00:00,2\n", "line 3: 2026-05-31T21:00:00Z is earlier"),
    ],
)
def test_a_series_has_days_of_one_kind_in_order(rows: str, why: str) -> None:
    with pytest.raises(InvalidDataset, match=why):
        days("Europe/Athens", rows)


def test_a_day_that_a_zone_skipped_is_refused() -> None:
    with pytest.raises(InvalidDataset, match="line 3: 2011-12-30T00:00 does not exist in Pacific/Apia"):
        days("Pacific/Apia", "2011-12-29T00:00,1\n2011-12-30T00:00,2\n")


def test_without_a_zone_days_are_those_of_utc() -> None:
    with pytest.raises(InvalidDataset, match=r"not on the grid of P1D \(in UTC\)"):
        days("UTC", "2026-06-01T21:00Z,1\n")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("PT1S", "PT1S"), ("PT5S", "PT5S"), ("PT90S", "PT90S"), ("PT60S", "PT1M"), ("PT3600S", "PT1H"),
        ("PT15M", "PT15M"), ("PT60M", "PT1H"), ("PT90M", "PT90M"), ("PT24H", "P1D"), ("PT86400S", "P1D"),
        ("P1D", "P1D"), ("P1W", "P1W"), ("P7D", "P1W"), ("P1M", "P1M"), ("P3M", "P3M"), ("P1Y", "P1Y"),
        ("P12M", "P1Y"), ("irregular", "irregular"),
    ],
)  # fmt: skip
def test_a_resolution_has_one_form(text: str, canonical: str) -> None:
    assert parse_resolution(text).text == canonical
    assert parse_resolution(canonical) == parse_resolution(text)


@pytest.mark.parametrize(
    "text", ["", "PT0S", "PT7S", "PT7H", "PT25H", "PT86401S", "PT1.5S", "P2D", "P2W", "P2M", "P2Y", "P1Q", "1h",
             "Irregular", "PT\u0661H"]
)  # fmt: skip
def test_what_is_no_resolution_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"resolution|the day is not a whole number"):
        parse_resolution(text)


def put(resolution: str, times: list[str], zone: str = "") -> series.Dataset:
    """Return a series as a PUT makes it."""
    points = [{"time": time, "value": number} for number, time in enumerate(times)]
    return series.parse_single("/a", orjson.dumps({"unit": "1", "resolution": resolution, "points": points}), zone)


def times_of(dataset: series.Dataset) -> list[str]:
    return [point["time"] for point in orjson.loads(dataset.content)["points"]]


def test_an_irregular_series_has_points_at_any_second() -> None:
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:59+00:00", "2026-07-01T12:34:56Z"]
    made = put("irregular", times)
    assert times_of(made)[2:] == ["2026-01-01T00:00:59Z", "2026-07-01T12:34:56Z"]
    assert "zone" not in labels_of(made.labels)
    with pytest.raises(InvalidDataset, match="appears twice"):
        put("irregular", [*times, times[-1]])
    with pytest.raises(InvalidDataset, match="is earlier than"):
        put("irregular", times[::-1])


def test_local_times_of_an_irregular_series_repeat_in_autumn() -> None:
    times = ["2026-10-25T03:10", "2026-10-25T03:50", "2026-10-25T03:20", "2026-10-25T04:00"]
    assert times_of(put("irregular", times, "Europe/Athens")) == [
        "2026-10-25T00:10:00Z", "2026-10-25T00:50:00Z", "2026-10-25T01:20:00Z", "2026-10-25T02:00:00Z",
    ]  # fmt: skip


def test_a_series_may_have_a_point_each_second() -> None:
    assert len(times_of(put("PT1S", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]))) == 2
    with pytest.raises(InvalidDataset, match=r"2026-01-01T00:00:01Z is not on the grid of PT5S \(in UTC\)"):
        put("PT5S", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])


def first_days(resolution: str, start: date, count: int) -> list[date]:
    """Return the first days of periods from a date on, by counting days."""
    begins = {
        "P1D": lambda day: True,
        "P1W": lambda day: f"{day:%a}" == "Mon",
        "P1M": lambda day: f"{day:%d}" == "01",
        "P3M": lambda day: f"{day:%m-%d}" in {"01-01", "04-01", "07-01", "10-01"},
        "P1Y": lambda day: f"{day:%m-%d}" == "01-01",
    }[resolution]
    days = (start + timedelta(days=number) for number in range(366 * (count + 1)))
    return list(islice(filter(begins, days), count))


@given(
    st.sampled_from(["P1D", "P1W", "P1M", "P3M", "P1Y"]),
    st.sampled_from([key for key in ZONES if key != "Pacific/Apia"]),  # it skipped a day
    st.dates(date(1975, 1, 1), date(2190, 1, 1)),
    st.integers(1, 5),
)
@settings(deadline=None)  # the first use of a zone's year takes a while
def test_periods_of_the_calendar_begin_in_the_zone(resolution: str, key: str, start: date, count: int) -> None:
    days = first_days(resolution, start, count)
    made = put(resolution, [day.isoformat() for day in days], key)
    for day, text in zip(days, times_of(made), strict=True):
        seconds = int(datetime.fromisoformat(text).timestamp())
        assert wall(seconds, key).date() == day
        assert wall(seconds - 1, key).date() < day
    # The same as local times and as instants.
    assert put(resolution, [f"{day}T00:00" for day in days], key) == made
    assert put(resolution, times_of(made), key) == made
    assert made.label("zone") == key
    utc = put(resolution, [f"{day}T00:00:00Z" for day in days])
    assert put(resolution, [day.isoformat() for day in days]) == utc
    assert utc.label("zone") == "UTC"


@pytest.mark.parametrize(
    ("resolution", "time", "zone", "period"),
    [
        ("P1W", "2026-01-06T00:00Z", "", r"week \(a Monday\) in UTC"),
        ("P1M", "2026-01-02", "", "month in UTC"),
        ("P1M", "2026-01-01T00:00Z", "Asia/Kathmandu", None),
        ("P1M", "2026-01-02", "Asia/Kathmandu", "month in Asia/Kathmandu or UTC"),
        ("P3M", "2026-02-01", "", "quarter in UTC"),
        ("P1Y", "2026-02-01", "Europe/Athens", "year in Europe/Athens or UTC"),
        ("P1Y", "2025-12-31T22:00Z", "", "year in UTC"),
        ("P1M", "2026-01-01T00:00:01Z", "", "month in UTC"),
    ],
)
def test_a_time_that_begins_no_period_is_refused(resolution: str, time: str, zone: str, period: str | None) -> None:
    if period is None:
        # Points in UTC may be put with the zone of others.
        assert put(resolution, [time], zone).label("zone") == "UTC"
        return
    with pytest.raises(InvalidDataset, match=f"is not the start of a {period}$"):
        put(resolution, [time], zone)


def test_periods_of_one_series_are_of_one_zone() -> None:
    with pytest.raises(InvalidDataset, match=r"2026-02-01T00:00:00Z is not the start of a month in Europe/Athens$"):
        put("P1M", ["2026-01-01", "2026-02-01T00:00Z"], "Europe/Athens")


@pytest.mark.parametrize("resolution", ["PT1H", "PT1S", "irregular"])
def test_a_date_is_a_time_of_the_calendar_only(resolution: str) -> None:
    for key in ("", "Europe/Athens"):
        with pytest.raises(InvalidDataset, match="'2026-01-01' is not a time like"):
            put(resolution, ["2026-01-01"], key)


@pytest.mark.parametrize("text", ["2026-13-01", "2026-02-30", "26-01-01", "2026-1-1", "\u0662026-01-01"])
def test_what_is_no_date_is_refused(text: str) -> None:
    for key in ("", "Europe/Athens"):
        with pytest.raises(InvalidDataset, match="is not a time"):
            put("P1M", [text], key)


def test_a_source_of_another_package_has_the_days_of_its_zone() -> None:
    athens = int(datetime(2026, 5, 31, 21, tzinfo=UTC).timestamp())
    made = series.build("/a", "1", "P1M", [series.Point(athens, 1)], zone="Europe/Athens")
    assert (times_of(made), made.label("zone")) == (["2026-05-31T21:00:00Z"], "Europe/Athens")
    with pytest.raises(InvalidDataset, match="is not the start of a month in UTC"):
        series.build("/a", "1", "P1M", [series.Point(athens, 1)])
