"""Files in layouts of further publishers and devices, by public descriptions, with our own numbers and what they mean.

Instants come first, as in :mod:`publishers`; ``unproven`` has what such a file does not state.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.unit.services.data.files.publishers import (
    BERLIN,
    DAYS_2025,
    HOUR,
    Series,
    clock_change_days,
    comma,
    every,
    lines,
    numbers,
    series,
    written,
)

CHICAGO: Final = "America/Chicago"


@dataclass(frozen=True)
class Sample:
    """A file. ``expected``: its series; ``unproven``: keys of the source and its mapping which the file leaves open."""

    publisher: str
    file: str
    body: bytes
    expected: Sequence[Series]
    unproven: frozenset[str] = frozenset()


def ercot() -> Sample:
    """Prices of settlement points, hours by their ends up to 24:00, month before day."""
    times = every(HOUR, ("2025-01-14T06:00Z", 48))
    hub, zone = numbers(len(times), 2512, 31), numbers(len(times), 2733, 29)
    rows = []
    for at, a, b in zip(times, hub, zone, strict=True):
        day, end = written(at, CHICAGO, "%m/%d/%Y"), int(written(at, CHICAGO, "%H")) + 1
        rows += [f"{day},{end:02}:00,{name},{value},N" for name, value in (("HB_HOUSTON", a), ("LZ_NORTH", b))]
    header = "DeliveryDate,HourEnding,SettlementPoint,SettlementPointPrice,DSTFlag"
    expected = [series("1", "PT1H", times, values) for values in (hub, zone)]
    body = lines([header, *rows], "\r\n").encode()
    return Sample("ERCOT, settlement point prices", "cdr.dam_spp.csv", body, expected, frozenset({"unit", "zone"}))


def pjm() -> Sample:
    """Times in UTC beside local ones, identifiers beside values, half days."""
    times = every(HOUR, ("2025-01-14T05:00Z", 48))
    price, losses = numbers(len(times), 3011, 17, 2), numbers(len(times), 11, 3, 2)
    rows = [
        f"{_half_days(at, 'UTC')},{_half_days(at, 'America/New_York')},51288,WESTERN HUB,HUB,{a},{b},TRUE,1"
        for at, a, b in zip(times, price, losses, strict=True)
    ]
    header = (
        "datetime_beginning_utc,datetime_beginning_ept,pnode_id,pnode_name,type,total_lmp_da,marginal_loss_price_da,"
        "row_is_current,version_nbr"
    )
    expected = [series("1", "PT1H", times, values) for values in (price, losses)]
    return Sample(
        "PJM, day-ahead LMP", "da_hrl_lmps.csv", lines([header, *rows]).encode(), expected, frozenset({"unit"})
    )


def _half_days(at: int, zone: str) -> str:
    hour = int(written(at, zone, "%H"))
    date = "/".join(str(int(part)) for part in written(at, zone, "%m/%d/%Y").split("/"))
    return f"{date} {(hour + 11) % 12 + 1}:00:00 {'AM' if hour < 12 else 'PM'}"


def omie() -> Sample:
    """A title, no header, the date in three columns, hours by number, an asterisk as the last line."""
    times = clock_change_days("2025-03-29T23:00Z", "2025-10-25T22:00Z")
    spain, portugal = numbers(len(times), 4012, 23), numbers(len(times), 4010, 21)
    rows, count, before = [], 0, ""
    for at, a, b in zip(times, spain, portugal, strict=True):
        day = written(at, "Europe/Madrid", "%Y;%m;%d")
        count = count + 1 if day == before else 1
        before = day
        rows.append(f"{day};{count};{b};{a};")
    body = lines(["MARGINALPDBC;", *rows, "*"], "\r\n").encode()
    expected = [series("1", "PT1H", times, values) for values in (portugal, spain)]
    return Sample("OMIE, marginal prices", "marginalpdbc_20250330.1", body, expected, frozenset({"unit", "zone"}))


def knmi() -> Sample:
    """Comments with the header in the last of them, hours by number in UT, padded cells."""
    times = every(HOUR, ("2025-01-01T00:00Z", 48))
    temperature, rain = numbers(len(times), 31, 2, 0), numbers(len(times), 0, 1, 0)
    rows = [
        f"  260,{written(at, 'UTC', '%Y%m%d')},{int(written(at, 'UTC', '%H')) + 1:5},{a:5.0f},{b:5.0f}"
        for at, a, b in zip(times, temperature, rain, strict=True)
    ]
    head = [
        "# BRON: KONINKLIJK NEDERLANDS METEOROLOGISCH INSTITUUT (KNMI)",
        "# HH        : tijd (HH uur UT, 12 UT=13 MET, 14 MEZT. Uurvak 05 loopt van 04.00 UT tot 5.00 UT)",
        "# T         : Temperatuur (in 0.1 graden Celsius)",
        "# RH        : Uursom van de neerslag (in 0.1 mm)",
        "# ",
        "# STN,YYYYMMDD,   HH,    T,   RH",
    ]
    expected = [series("1", "PT1H", times, values) for values in (temperature, rain)]
    body = lines([*head, *rows]).encode()
    return Sample("KNMI, hourly weather", "uurgeg_260.txt", body, expected, frozenset({"unit", "zone"}))


def ndbc() -> Sample:
    """Columns aligned by blanks, units in a second header line: no key of a mapping reads that."""
    times = every(HOUR, ("2025-01-01T00:00Z", 30))
    wind = numbers(len(times), 51, 1, 1)
    rows = [
        f"{written(at, 'UTC', '%Y %m %d %H %M')} {190 + i:3}  {a:4}    MM"
        for i, (at, a) in enumerate(zip(times, wind, strict=True))
    ]
    head = ["#YY  MM DD hh mm WDIR WSPD   GST", "#yr  mo dy hr mn degT m/s   m/s"]
    body = lines([*head, *rows]).encode()
    return Sample("NDBC, buoys", "44013.txt", body, [series("m/s", "PT1H", times, wind)], frozenset({"delimiter"}))


def ecb() -> Sample:
    """SDMX: a row for each observation, working days, twenty columns of which two have data."""
    times = [at for at in every(24 * HOUR, ("2025-01-01T00:00Z", 60)) if written(at, "UTC", "%w") not in "06"]
    usd, gbp = numbers(len(times), 10321, 7, 4), numbers(len(times), 8312, 3, 4)
    rows = [
        f"EXR.D.{unit}.EUR.SP00.A,D,{unit},EUR,SP00,A,{written(at, 'UTC', '%Y-%m-%d')},{value},A,F,,,4,0,"
        f'"ECB reference exchange rate, {unit}/Euro",{unit}'
        for unit, values in (("GBP", gbp), ("USD", usd))
        for at, value in zip(times, values, strict=True)
    ]
    header = (
        "KEY,FREQ,CURRENCY,CURRENCY_DENOM,EXR_TYPE,EXR_SUFFIX,TIME_PERIOD,OBS_VALUE,OBS_STATUS,OBS_CONF,OBS_PRE_BREAK,OBS_COM,"
        "DECIMALS,UNIT_MULT,TITLE,UNIT"
    )
    expected = [series("GBP", "P1D", times, gbp), series("USD", "P1D", times, usd)]
    return Sample("ECB, exchange rates", "data.csv", lines([header, *rows]).encode(), expected)


def eurostat() -> Sample:
    """SDMX: months, an area a row, flags."""
    months = [f"2024-{month:02}" for month in range(1, 13)]
    times = [_at(f"{month}-01T00:00Z") for month in months]
    greece, spain = numbers(12, 1181, 3, 1), numbers(12, 1192, 2, 1)
    rows = [
        f"ESTAT:PRC_HICP_MIDX(1.0),17/01/25 11:00:00,M,I15,CP00,{geo},{month},{value},{'p' * (month == '2024-12')}"
        for geo, values in (("EL", greece), ("ES", spain))
        for month, value in zip(months, values, strict=True)
    ]
    header = "DATAFLOW,LAST UPDATE,freq,unit,coicop,geo,TIME_PERIOD,OBS_VALUE,OBS_FLAG"
    body = lines([header, *rows], "\r\n").encode()
    expected = [series("I15", "P1M", times, greece), series("I15", "P1M", times, spain)]
    return Sample("Eurostat, prices", "prc_hicp_midx_linear.csv", body, expected)


def _at(text: str) -> int:
    return every(1, (text, 1))[0]


def fmi() -> Sample:
    """Year, month, day and time in columns; units in brackets."""
    times = every(HOUR, ("2025-02-10T00:00Z", 72))
    temperature: list[float | None] = [*numbers(40, -151, 3, 1), None, *numbers(31, 11, 2, 1)]
    wind = numbers(len(times), 21, 1, 1)
    rows = [
        f'"Helsinki Kaisaniemi","{written(at, "UTC", "%Y")}","2","{int(written(at, "UTC", "%d"))}",'
        f'"{written(at, "UTC", "%H:%M")}","{"-" if a is None else a}","{b}"'
        for at, a, b in zip(times, temperature, wind, strict=True)
    ]
    header = '"Observation station","Year","Month","Day","Time [UTC]","Average temperature [°C]","Wind speed [m/s]"'
    expected = [series("°C", "PT1H", times, temperature), series("m/s", "PT1H", times, wind)]
    return Sample("FMI, observations", "Helsinki Kaisaniemi.csv", lines([header, *rows]).encode(), expected)


def awattar() -> Sample:
    """JSON: beginnings and ends in milliseconds, the unit in every row."""
    times = every(HOUR, ("2025-06-01T22:00Z", 24))
    price = numbers(len(times), 4209, 111)
    rows = [
        {"start_timestamp": at * 1000, "end_timestamp": (at + HOUR) * 1000, "marketprice": value, "unit": "Eur/MWh"}
        for at, value in zip(times, price, strict=True)
    ]
    body = json.dumps({"object": "list", "data": rows, "url": "/at/v1/marketdata"}).encode()
    return Sample("aWATTar, prices", "marketdata.json", body, [series("Eur/MWh", "PT1H", times, price)])


def octopus() -> Sample:
    """Values before times, blanks behind commas, offsets of summer time, beginnings and ends."""
    times = clock_change_days("2025-03-30T00:00Z", "2025-10-25T23:00Z", HOUR // 2)
    used, cost = numbers(len(times), 112, 3, 3), numbers(len(times), 265, 7)
    zone, pattern = "Europe/London", "%Y-%m-%dT%H:%M:%S"
    rows = [
        f"{a}, {b}, {written(at, zone, pattern)}{_offset(at, zone)}, "
        f"{written(at + HOUR // 2, zone, pattern)}{_offset(at + HOUR // 2, zone)}"
        for at, a, b in zip(times, used, cost, strict=True)
    ]
    body = lines(["Consumption (kWh), Estimated Cost Inc. Tax (p), Start, End", *rows]).encode()
    expected = [series("kWh", "PT30M", times, used), series("p", "PT30M", times, cost)]
    return Sample("Octopus Energy, consumption", "consumption.csv", body, expected)


def _offset(at: int, zone: str) -> str:
    text = written(at, zone, "%z")
    return f"{text[:3]}:{text[3:]}"


def load_profile() -> Sample:
    """A day a row, a column for each end of a quarter hour, the unit above the header."""
    times = every(HOUR // 4, ("2025-01-12T23:00Z", 96 * 3))
    energy = numbers(len(times), 1250, 7, 1)
    head = ["Lastgang;Zaehlpunkt 1", "Einheit;kWh", "Zeitzone;MEZ/MESZ", ""]
    ends = [f"{(quarter * 15) // 60:02}:{quarter * 15 % 60:02}" for quarter in range(1, 97)]
    rows = [
        ";".join(
            [
                written(times[day * 96], BERLIN, "%d.%m.%Y"),
                *(comma(each, 1) for each in energy[day * 96 : day * 96 + 96]),
            ]
        )
        for day in range(3)
    ]
    body = lines([*head, ";".join(["Datum", *ends]), *rows], "\r\n").encode()
    return Sample("Meter operator, load profile", "lastgang.csv", body, [series("kWh", "PT15M", times, energy)])


def hours_across() -> Sample:
    """A day a row, hours as numbered columns, 25 of them."""
    times = clock_change_days(*DAYS_2025)
    price = numbers(len(times), 6101, -37)
    first = [f"{value}" for value in price[:23]] + ["", ""]
    rows = [",".join(["2025-03-30", *first]), ",".join(["2025-10-26", *map(str, price[23:])])]
    header = ",".join(["Day", *(f"H{hour}" for hour in range(1, 26))])
    text = lines(["Day-ahead prices of the zone (EUR/MWh); time zone CET/CEST", header, *rows])
    return Sample(
        "Exchange, hours as columns", "prices_h25.csv", text.encode(), [series("EUR/MWh", "PT1H", times, price)]
    )


def historian() -> Sample:
    """Tags as rows, day before month, a column of units, one of quality."""
    times = every(600, ("2025-01-30T20:00Z", 60))
    pressure, flow = numbers(len(times), 5812, 5, 2), numbers(len(times), 120, 2, 1)
    rows = [
        f"{tag},{written(at, 'UTC', '%d/%m/%Y %H:%M:%S')} +00:00,{value},{unit},Good"
        for at, a, b in zip(times, pressure, flow, strict=True)
        for tag, value, unit in (("PLANT.P101", a, "bar"), ("PLANT.F7", b, "m3/h"))
    ]
    body = lines(["TagName,Timestamp,Value,EngUnit,Quality", *rows]).encode()
    expected = [series("bar", "PT10M", times, pressure), series("m3/h", "PT10M", times, flow)]
    return Sample("Historian, tags", "export.csv", body, expected)


def logger() -> Sample:
    """Milliseconds of the epoch, tabs, units as ends of headings."""
    times = every(60, ("2025-05-05T10:00Z", 90))
    power, humidity = numbers(len(times), 1012, 13, 1), numbers(len(times), 401, 1, 1)
    rows = [f"{at * 1000}\t{a}\t{b}" for at, a, b in zip(times, power, humidity, strict=True)]
    body = lines(["timestamp\tpower_kw\thumidity_pct", *rows]).encode()
    expected = [series("kW", "PT1M", times, power), series("%", "PT1M", times, humidity)]
    return Sample("Data logger", "log.tsv", body, expected)


def inverter() -> Sample:
    """Irregular times with offsets, comments between rows, UTF-16."""
    times = [at + (index * 7) % 5 for index, at in enumerate(every(300, ("2025-07-01T04:00Z", 40)))]
    power, total = numbers(len(times), 0, 37, 0), numbers(len(times), 123456, 1, 1)
    rows = [
        f"{written(at, 'UTC', '%Y-%m-%dT%H:%M:%SZ')};{a:.0f};{comma(b, 1)}"
        for at, a, b in zip(times, power, total, strict=True)
    ]
    rows.insert(20, "# restarted")
    body = lines(["Time;Power [W];Yield [kWh]", *rows], "\r\n").encode("utf-16")
    expected = [series("W", "irregular", times, power), series("kWh", "irregular", times, total)]
    return Sample("Inverter, log", "inverter.csv", body, expected)


def gas_prices() -> Sample:
    """Days with points, quoted decimal commas between commas, Windows-1252."""
    times = every(24 * HOUR, ("2025-02-01T00:00Z", 40))
    price: list[float | None] = [*numbers(20, 2735, 11), None, *numbers(19, 3011, -7)]
    rows = [
        f'"{written(at, "UTC", "%d.%m.%Y")}","{comma(value, 2, "k.A.")}"'
        for at, value in zip(times, price, strict=True)
    ]
    body = lines(['"Tag","Preis für Gas in €/MWh"', *rows], "\r\n").encode("cp1252")
    return Sample("Exchange, gas", "gas.csv", body, [series("EUR/MWh", "P1D", times, price)])


def weather_xml() -> Sample:
    """XML: attributes with times and units."""
    times = every(3 * HOUR, ("2025-03-01T00:00Z", 16))
    warm, wind = numbers(len(times), 51, 4, 1), numbers(len(times), 30, 2, 1)
    rows = [
        f'<observation time="{written(at, "UTC", "%Y-%m-%dT%H:%M:%SZ")}"><temperature unit="°C">{a}</temperature>'
        f'<wind unit="m/s">{b}</wind></observation>'
        for at, a, b in zip(times, warm, wind, strict=True)
    ]
    text = f'<?xml version="1.0"?><weather><station id="7">{"".join(rows)}</station></weather>'
    expected = [series("°C", "PT3H", times, warm), series("m/s", "PT3H", times, wind)]
    return Sample("Weather service, XML", "weather.xml", text.encode(), expected)


def months() -> Sample:
    """Months by their names."""
    names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    times = [_at(f"{year}-{month:02}-01T00:00Z") for year in (2023, 2024) for month in range(1, 13)]
    values = numbers(len(times), 91, 3, 1)
    rows = [f"{names[index % 12]} {2023 + index // 12},{value}" for index, value in enumerate(values)]
    body = lines(["Month,Heating degree days (days)", *rows]).encode()
    return Sample("Statistics, months", "hdd.csv", body, [series("days", "P1M", times, values)])


def gas_days() -> Sample:
    """Newest first, thousands with apostrophes, a footnote behind an empty line."""
    times = every(24 * HOUR, ("2025-04-01T00:00Z", 30))
    entry, out = numbers(len(times), 1234567, 1111, 0), numbers(len(times), 987654, 1313, 0)
    rows = [
        f"{written(at, 'UTC', '%Y-%m-%d')};{a:,.0f};{b:,.0f}".replace(",", "'")
        for at, a, b in zip(times, entry, out, strict=True)
    ]
    text = lines(["Physical flows", "Gas day;Entry [kWh/d];Exit [kWh/d]", *rows[::-1], "", "Provisional data"])
    expected = [series("kWh/d", "P1D", times, entry), series("kWh/d", "P1D", times, out)]
    return Sample("Gas grid, flows", "flows.csv", text.encode(), expected)


def freight() -> Sample:
    """Bars between cells, routes as rows, weeks."""
    times = every(7 * 24 * HOUR, ("2025-01-06T00:00Z", 12))
    west, north = numbers(len(times), 2110, 13, 0), numbers(len(times), 3410, -9, 0)
    rows = [
        f"{written(at, 'UTC', '%Y-%m-%d')}|{route}|{value:.0f}"
        for at, a, b in zip(times, west, north, strict=True)
        for route, value in (("Shanghai - Los Angeles", a), ("Shanghai - Rotterdam", b))
    ]
    body = lines(["date|route|rate_usd", *rows]).encode()
    expected = [series("USD", "P1W", times, west), series("USD", "P1W", times, north)]
    return Sample("Logistics, freight rates", "rates.psv", body, expected)


def ratings() -> Sample:
    """JSON by date, a member for each team."""
    times = every(24 * HOUR, ("2025-08-01T00:00Z", 20))
    home, away = numbers(len(times), 1712, 2, 0), numbers(len(times), 1655, -1, 0)
    rows = [
        {"date": written(at, "UTC", "%Y-%m-%d"), "team": team, "rating": value, "unit": "points"}
        for at, a, b in zip(times, home, away, strict=True)
        for team, value in (("Athens", a), ("Patras", b))
    ]
    body = json.dumps({"season": "2025/26", "ratings": rows}).encode()
    expected = [series("points", "P1D", times, home), series("points", "P1D", times, away)]
    return Sample("Sports, ratings", "ratings.json", body, expected)


ALL: Final[Sequence[Callable[[], Sample]]] = (
    ercot,
    pjm,
    omie,
    knmi,
    ndbc,
    ecb,
    eurostat,
    fmi,
    awattar,
    octopus,
    load_profile,
    hours_across,
    historian,
    logger,
    inverter,
    gas_prices,
    weather_xml,
    months,
    gas_days,
    freight,
    ratings,
)
