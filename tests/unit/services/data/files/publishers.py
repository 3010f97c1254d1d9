"""Files in the layouts of their publishers, with our own numbers, and the points that they mean.

Instants come first, as seconds in UTC; the texts of a file are made of them by ``zoneinfo``, so that nothing here reads
a time as the product does. Where a publisher uses local time, the file has the days of 23 and 25 hours.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

HOUR: Final = 3600
Points = list[tuple[int, float | None]]


@dataclass(frozen=True)
class Series:
    """Points of one endpoint: Unix seconds, and values with None for gaps."""

    unit: str
    resolution: str
    points: Points


@dataclass(frozen=True)
class Layout:
    """A file of a publisher.

    Attributes:
        case: its number in the table of layouts. toml: the fields of its source, other than type, name, path and URL.
        preset: instead, the name of the preset, with fields beside it. expected: series by the names of endpoints.
    """

    case: str
    publisher: str
    file: str
    body: bytes
    toml: str
    expected: Mapping[str, Series]
    media_type: str = "text/csv"
    preset: str = ""
    member: str = ""
    """The name of the data's file in an archive."""


def seconds(text: str) -> int:
    """Return the Unix seconds of ``2026-01-01T00:00Z``."""
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC).timestamp())


def every(step_s: int, *ranges: tuple[str, int]) -> list[int]:
    """Return instants: for each range, a number of them from the first."""
    return [seconds(first) + step_s * index for first, count in ranges for index in range(count)]


def clock_change_days(first_spring: str, first_autumn: str, step_s: int = HOUR) -> list[int]:
    """Return the instants of a day of 23 hours and one of 25."""
    return every(step_s, (first_spring, 23 * HOUR // step_s), (first_autumn, 25 * HOUR // step_s))


def written(at: int, zone: str, pattern: str) -> str:
    """Return the text of an instant in local time."""
    return datetime.fromtimestamp(at, ZoneInfo(zone)).strftime(pattern)


def numbers(count: int, first: int, step: int, digits: int = 2) -> list[float]:
    """Return values with that many decimals: first, first + step, ... in units of the last."""
    return [(first + step * index) / 10**digits for index in range(count)]


def comma(value: float | None, digits: int = 2, gap: str = "", thousands: str = "") -> str:
    """Return a number with a decimal comma."""
    if value is None:
        return gap
    text = f"{value:,.{digits}f}"
    return text.replace(",", "_").replace(".", ",").replace("_", thousands)


def lines(rows: Iterable[str], end: str = "\n") -> str:
    """Return lines, each with its end."""
    return "".join(row + end for row in rows)


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members.items():
            file.writestr(name, body)
    return made.getvalue()


def series(unit: str, resolution: str, times: Sequence[int], values: Sequence[float | None]) -> Series:
    """Return a series."""
    return Series(unit, resolution, list(zip(times, values, strict=True)))


BERLIN: Final = "Europe/Berlin"
DAYS_2025: Final = ("2025-03-29T23:00Z", "2025-10-25T22:00Z")
"""The days on which the clocks of central Europe changed, by their first hours."""


def smard_table() -> Layout:
    """Wide, by the quarter hour, with three columns of the time."""
    times = clock_change_days("2024-03-30T23:00Z", "2024-10-26T22:00Z", HOUR // 4)
    biomass, wind = numbers(len(times), 101000, 25), [None, *numbers(len(times) - 1, 0, 175)]
    rows = [
        f"{written(at, BERLIN, '%Y-%m-%d;%H:%M;%Y-%m-%d %H:%M:%S')};{comma(a)};{comma(b)}"
        for at, a, b in zip(times, biomass, wind, strict=True)
    ]
    return Layout(
        "D1",
        "SMARD, one table of several years",
        "smard_2024_complete.csv",
        lines(["Datum;Uhrzeit;DateTime;Biomasse [MWh];Wind Onshore [MWh]", *rows]).encode(),
        """
        resolution = "PT15M"
        zone = "Europe/Berlin"
        [mapping]
        delimiter = ";"
        decimal = ","
        time = "DateTime"
        value = "*"
        ignore = ["Datum", "Uhrzeit"]
        """,
        {"Biomasse": series("MWh", "PT15M", times, biomass), "Wind-Onshore": series("MWh", "PT15M", times, wind)},
    )


def smard() -> Layout:
    """The publisher's own export: a byte order mark, points between thousands, a dash for a gap."""
    times = clock_change_days(*DAYS_2025)
    german = [1002.16, -13.52, *numbers(len(times) - 2, 9010, 37)]
    austrian = [None, *numbers(len(times) - 2, 8500, -12), None]
    rows = [
        f"{written(at, BERLIN, '%d.%m.%Y %H:%M')};{written(at + HOUR, BERLIN, '%d.%m.%Y %H:%M')};"
        f"{comma(a, 2, '-', '.')};{comma(b, 2, '-', '.')}"
        for at, a, b in zip(times, german, austrian, strict=True)
    ]
    unit = "[€/MWh] Originalauflösungen"
    header = f"Datum von;Datum bis;Deutschland/Luxemburg {unit};Österreich {unit}"
    return Layout(
        "D2",
        "SMARD, download",
        "Gro_handelspreise_202503300000_202510270000_Stunde.csv",
        b"\xef\xbb\xbf" + lines([header, *rows]).encode(),
        "",
        {
            "Deutschland-Luxemburg-Originalauflosungen": series("EUR/MWh", "PT1H", times, german),
            "Osterreich-Originalauflosungen": series("EUR/MWh", "PT1H", times, austrian),
        },
        preset="smard",
    )


def transnetbw() -> Layout:
    """A date and a time of day, CRLF, and a delimiter at the end of each line."""
    times = clock_change_days(*DAYS_2025, HOUR // 4)
    forecast, actual = numbers(len(times), 23000, -75), [float(7 * index % 160) for index in range(len(times))]
    pattern = "%d.%m.%Y;%H:%M:%S"
    rows = [
        f"{written(at, BERLIN, pattern)};{written(at + HOUR // 4, BERLIN, pattern)};{comma(a)};{b:.0f};"
        for at, a, b in zip(times, forecast, actual, strict=True)
    ]
    header = "Datum von;Uhrzeit von;Datum bis;Uhrzeit bis;Prognose (MW);Ist-Wert (MW);"
    return Layout(
        "D3",
        "TransnetBW, wind",
        "mwindeinsp_ist_prognose_2025_10.csv",
        lines([header, *rows], "\r\n").encode(),
        """
        resolution = "PT15M"
        zone = "Europe/Berlin"
        [mapping]
        delimiter = ";"
        decimal = ","
        time = ["Datum von", "Uhrzeit von"]
        time_format = "%d.%m.%Y %H:%M:%S"
        value = ["Prognose", "Ist-Wert"]
        """,
        {"Prognose": series("MW", "PT15M", times, forecast), "Ist-Wert": series("MW", "PT15M", times, actual)},
    )


def entsoe_2024() -> Layout:
    """Intervals as times; the hour that the clocks skip is there, without a value."""
    times = clock_change_days(*DAYS_2025)
    prices: list[float | None] = [None, None, *numbers(len(times) - 2, -1250, 133)]
    rows = []
    for at, price in zip(times, prices, strict=True):
        start, end = (written(each, BERLIN, "%d.%m.%Y %H:%M") for each in (at, at + HOUR))
        if at == seconds("2025-03-30T00:00Z"):
            rows.append(f'"{start} - 30.03.2025 02:00","-"')
            rows.append('"30.03.2025 02:00 - 30.03.2025 03:00",""')
        else:
            rows.append(f'"{start} - {end}","{"n/e" if price is None else f"{price:.2f}"}"')
    return Layout(
        "D4",
        "ENTSO-E, export until 2024",
        "Day-ahead Prices_202503300000-202503310000.csv",
        lines(['"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]"', *rows]).encode(),
        """
        resolution = "PT1H"
        zone = "Europe/Brussels"
        [mapping]
        time = "MTU (CET/CEST)"
        interval = " - "
        time_format = "%d.%m.%Y %H:%M"
        value = "Day-ahead Price"
        gaps = ["-", "n/e"]
        """,
        {"": series("EUR/MWh", "PT1H", times, prices)},
    )


def entsoe() -> Layout:
    """The export since 2025: more columns, several areas, and names of offsets where the clocks change."""
    times = clock_change_days(*DAYS_2025)
    prices: dict[str, list[float | None]] = {
        "BZN|BG": [*numbers(47, 9310, -57), None],
        "BZN|GR": [None, *numbers(47, 10144, -61)],
    }
    change = range(seconds("2025-10-26T00:00Z"), seconds("2025-10-26T02:00Z"))
    rows = []
    for area, values in prices.items():
        for at, price in zip(times, values, strict=True):
            start, end = (
                written(each, BERLIN, "%d/%m/%Y %H:%M:%S" + (" (%Z)" if each in change else ""))
                for each in (at, at + HOUR)
            )
            shown = "" if price is None else f"{price:.2f}"
            rows.append(f'"{start} - {end}","{area}","Without Sequence","{shown}","",""')
            if area == "BZN|GR":
                rows.append(f'"{start} - {end}","{area}","Sequence 2","999.99","",""')
    header = (
        '"MTU (CET/CEST)","Area","Sequence","Day-ahead Price (EUR/MWh)","Intraday Period (CET/CEST)",'
        '"Intraday Price (EUR/MWh)"'
    )
    return Layout(
        "D4",
        "ENTSO-E, export",
        "GUI_ENERGY_PRICES_202503292300-202510262300.csv",
        lines([header, *rows]).encode(),
        "",
        {area.replace("|", "-"): series("EUR/MWh", "PT1H", times, values) for area, values in prices.items()},
        preset="entsoe",
    )


_ENTSOE_XML: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Publication_MarketDocument xmlns="urn:iec62325.351:tc57wg16:451-3:publicationdocument:7:3">
  <mRID>0f1e2d3c4b5a</mRID>
  <type>A44</type>
  <createdDateTime>2025-03-29T12:00:00Z</createdDateTime>
  <period.timeInterval>
    <start>{start}</start>
    <end>{end}</end>
  </period.timeInterval>
{series}</Publication_MarketDocument>
"""
_ENTSOE_SERIES: Final = """  <TimeSeries>
    <mRID>{number}</mRID>
    <businessType>A62</businessType>
    <in_Domain.mRID codingScheme="A01">{domain}</in_Domain.mRID>
    <out_Domain.mRID codingScheme="A01">{domain}</out_Domain.mRID>
    <currency_Unit.name>EUR</currency_Unit.name>
    <price_Measure_Unit.name>MWH</price_Measure_Unit.name>
    <curveType>A03</curveType>
    <Period>
      <timeInterval>
        <start>{start}</start>
        <end>{end}</end>
      </timeInterval>
      <resolution>PT60M</resolution>
{points}    </Period>
  </TimeSeries>
"""


def entsoe_xml() -> Layout:
    """Curve type A03: a position that is missing has the value before it, until the end of its period."""
    domain = "10Y1001A1001A82H"
    days = (("2025-03-29T23:00Z", "2025-03-30T22:00Z", 23), ("2025-10-25T22:00Z", "2025-10-26T23:00Z", 25))
    points: Points = []
    found = ""
    for number, (start, end, count) in enumerate(days, 1):
        # The last hours, and one of three others, repeat the value before.
        values = [50 + number + (index - index % 3) * 1.25 for index in range(count - 2)]
        values += [values[-1]] * 2
        points += zip(every(HOUR, (start, count)), values, strict=True)
        shown = [(index, value) for index, value in enumerate(values) if index == 0 or value != values[index - 1]]
        found += _ENTSOE_SERIES.format(
            number=number,
            domain=domain,
            start=start,
            end=end,
            points="".join(
                f"      <Point>\n        <position>{index + 1}</position>\n"
                f"        <price.amount>{value:.2f}</price.amount>\n      </Point>\n"
                for index, value in shown
            ),
        )
    text = _ENTSOE_XML.format(start=days[0][0], end=days[-1][1], series=found)
    return Layout(
        "D5",
        "ENTSO-E, XML",
        "day-ahead.xml",
        text.encode(),
        "",
        {domain: Series("EUR/MWh", "PT1H", points)},
        media_type="text/xml",
        preset="entsoe-xml",
    )


def opsd() -> Layout:
    """Wide, with times in UTC and again in local time."""
    times = clock_change_days(*DAYS_2025)
    load = numbers(len(times), 594600, 1050, 1)
    solar: list[float | None] = [None, *numbers(len(times) - 1, 0, 2225, 1)]
    rows = [
        f"{written(at, 'UTC', '%Y-%m-%dT%H:%M:%SZ')},{written(at, BERLIN, '%Y-%m-%dT%H:%M:%S%z')},{a},"
        f"{'' if b is None else b}"
        for at, a, b in zip(times, load, solar, strict=True)
    ]
    header = "utc_timestamp,cet_cest_timestamp,AT_load_actual_entsoe_transparency,DE_solar_generation_actual"
    return Layout(
        "D6",
        "Open Power System Data, time series",
        "time_series_60min_singleindex.csv",
        lines([header, *rows]).encode(),
        "",
        {
            "AT_load_actual_entsoe_transparency": series("MW", "PT1H", times, load),
            "DE_solar_generation_actual": series("MW", "PT1H", times, solar),
        },
        preset="opsd",
    )


def elexon() -> Layout:
    """Settlement periods of the half hour: 46 and 50 of them on the days of 23 and 25 hours."""
    days = (("2025-03-30", "2025-03-30T00:00Z", 46), ("2025-10-26", "2025-10-25T23:00Z", 50))
    points: Points = []
    data = []
    for day, first, count in days:
        for index, at in enumerate(every(HOUR // 2, (first, count))):
            price = (7250 + 31 * index) / 100
            points.append((at, price))
            data.append(
                {
                    "settlementDate": day,
                    "settlementPeriod": index + 1,
                    "startTime": written(at, "UTC", "%Y-%m-%dT%H:%M:%SZ"),
                    "createdDateTime": written(at + HOUR, "UTC", "%Y-%m-%dT%H:%M:%SZ"),
                    "systemSellPrice": price,
                    "systemBuyPrice": price,
                    "bsadDefaulted": False,
                    "priceDerivationCode": "P",
                    "netImbalanceVolume": -12.5 - index,
                    "replacementPrice": None,
                }
            )
    return Layout(
        "D7",
        "Elexon, system prices",
        "system-prices.json",
        json.dumps({"metadata": {"datasets": ["DISEBSP"]}, "data": data}).encode(),
        "",
        {"": Series("GBP/MWh", "PT30M", points)},
        media_type="application/json",
        preset="elexon",
    )


def eia() -> Layout:
    """Numbers as texts, nulls, the newest first, and times at the ends of hours."""
    times = every(HOUR, ("2025-01-02T00:00Z", 30))
    demand: dict[str, list[float | None]] = {
        "BPAT": [float(6400 + 11 * index) for index in range(30)],
        "PGE": [None if index in {3, 4, 29} else float(2100 + 7 * index) for index in range(30)],
    }
    data = [
        {
            "period": written(at + HOUR, "UTC", "%Y-%m-%dT%H"),
            "respondent": name,
            "respondent-name": f"{name} Area",
            "type": "D",
            "type-name": "Demand",
            "value": None if demand[name][index] is None else f"{demand[name][index]:.0f}",
            "value-units": "megawatthours",
        }
        for index, at in reversed(list(enumerate(times)))
        for name in demand
    ]
    answer = {"response": {"total": str(len(data)), "frequency": "hourly", "data": data}, "apiVersion": "2.1.7"}
    return Layout(
        "D8",
        "EIA, hourly electric grid monitor",
        "region-data.json",
        json.dumps(answer).encode(),
        "",
        {f"{name}/D": series("MWh", "PT1H", times, values) for name, values in demand.items()},
        media_type="application/json",
        preset="eia",
    )


def energy_charts() -> Layout:
    """Two arrays beside each other, with times in Unix seconds."""
    times = every(HOUR // 4, ("2026-06-30T22:00Z", 96))
    prices: list[float | None] = [*numbers(95, 16442, -217), None]
    answer = {
        "license_info": "of our own making",
        "unix_seconds": times,
        "price": prices,
        "unit": "EUR / MWh",
        "deprecated": False,
    }
    return Layout(
        "D9",
        "energy-charts.info, prices",
        "price.json",
        json.dumps(answer).encode(),
        "",
        {"": series("EUR/MWh", "PT15M", times, prices)},
        media_type="application/json",
        preset="energy-charts",
    )


def open_meteo() -> Layout:
    """Arrays in an object of an answer, with times without an offset, in UTC."""
    times = every(HOUR, ("2026-01-01T00:00Z", 48))
    temperature: list[float | None] = [*numbers(46, 84, -7, 1), None, 3.0]
    wind = numbers(48, 31, 5, 1)
    answer = {
        "latitude": 52.52,
        "longitude": 13.42,
        "utc_offset_seconds": 0,
        "timezone": "GMT",
        "hourly_units": {"time": "iso8601", "temperature_2m": "°C", "wind_speed_10m": "km/h"},
        "hourly": {
            "time": [written(at, "UTC", "%Y-%m-%dT%H:%M") for at in times],
            "temperature_2m": temperature,
            "wind_speed_10m": wind,
        },
    }
    return Layout(
        "D10",
        "Open-Meteo, forecast",
        "forecast.json",
        json.dumps(answer, ensure_ascii=False).encode(),
        "",
        {
            "temperature_2m": series("°C", "PT1H", times, temperature),
            "wind_speed_10m": series("km/h", "PT1H", times, wind),
        },
        media_type="application/json",
        preset="open-meteo",
    )


_AEMO_MEMBER: Final = "PUBLIC_DISPATCHIS_202401020200_0000000406500001.CSV"
_CAISO_MEMBER: Final = "20250309_20250310_PRC_LMP_DAM_LMP_v12.csv"
_DWD_MEMBER: Final = "produkt_tu_stunde_20240101_20240102_00044.txt"


def aemo() -> Layout:
    """Several tables in a file in an archive; times of the ends of intervals, in eastern standard time all year."""
    times = every(300, ("2024-01-01T13:00Z", 24))
    regions = {"NSW1": numbers(24, 4520, 31), "SA1": numbers(24, -851, 77)}
    rows = [
        "C,NEMP.WORLD,DISPATCHIS,AEMO,PUBLIC,2024/01/02,02:00:05,0000000406500001,DISPATCHIS,0000000406500000",
        "I,DISPATCH,CASE_SOLUTION,2,SETTLEMENTDATE,RUNNO,INTERVENTION,CASESUBTYPE",
        'D,DISPATCH,CASE_SOLUTION,2,"2024/01/02 00:00:00",1,0,',
        "I,DISPATCH,PRICE,5,SETTLEMENTDATE,RUNNO,REGIONID,DISPATCHINTERVAL,INTERVENTION,RRP,EEP,ROP,LASTCHANGED",
    ]
    for index, at in enumerate(times):
        end = written(at + 300, "Etc/GMT-10", "%Y/%m/%d %H:%M:%S")
        changed = written(at, "Etc/GMT-10", "%Y/%m/%d %H:%M:%S")
        for region, values in regions.items():
            row = f'D,DISPATCH,PRICE,5,"{end}",1,{region},20240101{index:03},'
            rows.append(f'{row}0,{values[index]},0,{values[index]},"{changed}"')
            if index == 7:  # an intervention: what the market would have paid without it has its own row
                rows.append(f'{row}1,{values[index] + 300},0,{values[index] + 300},"{changed}"')
    rows += [
        "I,DISPATCH,REGIONSUM,9,SETTLEMENTDATE,RUNNO,REGIONID,DISPATCHINTERVAL,INTERVENTION,TOTALDEMAND",
        'D,DISPATCH,REGIONSUM,9,"2024/01/02 00:00:00",1,NSW1,20240101287,0,7989.37',
    ]
    text = lines([*rows, f'C,"END OF REPORT",{len(rows) + 1}'], "\r\n")
    return Layout(
        "D11",
        "AEMO, dispatch prices",
        "PUBLIC_DISPATCHIS_202401020200.zip",
        archive({_AEMO_MEMBER: text.encode()}),
        "",
        {region: series("AUD/MWh", "PT5M", times, values) for region, values in regions.items()},
        media_type="application/zip",
        preset="aemo",
        member=_AEMO_MEMBER,
    )


def caiso() -> Layout:
    """An archive with a table of all parts of the price, one part after the other, its hours in no order."""
    times = every(HOUR, ("2025-03-09T08:00Z", 23))  # a day of 23 hours in California
    nodes = {"TH_NP15_GEN-APND": numbers(23, 3550, 105), "TH_SP15_GEN-APND": numbers(23, 3490, 93)}
    header = (
        "INTERVALSTARTTIME_GMT,INTERVALENDTIME_GMT,OPR_DT,OPR_HR,OPR_INTERVAL,NODE_ID_XML,NODE_ID,NODE,"
        "MARKET_RUN_ID,LMP_TYPE,XML_DATA_ITEM,PNODE_RESMRID,GRP_TYPE,POS,MW,GROUP"
    )
    rows = []
    for group, (part, share) in enumerate({"LMP": 1.0, "MCC": 0.0, "MCE": 0.9, "MCL": 0.1}.items(), 1):
        for node, values in nodes.items():
            for index in sorted(range(23), key=lambda hour: hour * 7 % 23):
                start, end = (written(times[index] + shift, "UTC", "%Y-%m-%dT%H:%M:%S-00:00") for shift in (0, HOUR))
                hour = int(written(times[index], "America/Los_Angeles", "%H")) + 1
                rows.append(
                    f"{start},{end},2025-03-09,{hour},0,{node},{node},{node},DAM,{part},{part}_PRC,{node},ALL,0,"
                    f"{round(values[index] * share, 5)},{group}"
                )
    text = lines([header, *rows])
    return Layout(
        "D12",
        "CAISO, OASIS prices",
        "20250309_20250310_PRC_LMP_DAM_LMP_v12.zip",
        archive({_CAISO_MEMBER: text.encode()}),
        "",
        {node: series("USD/MWh", "PT1H", times, values) for node, values in nodes.items()},
        media_type="application/zip",
        preset="caiso",
        member=_CAISO_MEMBER,
    )


def dwd() -> Layout:
    """Padded cells, -999 for a gap, the end of a row as a column; an archive with texts that are no data."""
    times = every(HOUR, ("2024-01-01T00:00Z", 48))
    temperature: list[float | None] = [*numbers(20, 45, 3, 1), None, *numbers(27, -12, 2, 1)]
    humidity: list[float | None] = [None, *[float(60 + index % 40) for index in range(47)]]
    rows = [
        f"{44:>11};{written(at, 'UTC', '%Y%m%d%H')};    3;{-999 if a is None else a:>6.1f};"
        f"{-999 if b is None else b:>6.1f};eor".replace("-999.0", "-999")
        for at, a, b in zip(times, temperature, humidity, strict=True)
    ]
    text = lines(["STATIONS_ID;MESS_DATUM;QN_9;TT_TU;RF_TU;eor", *rows], "\r\n")
    return Layout(
        "D13",
        "DWD, hourly temperature",
        "stundenwerte_TU_00044_akt.zip",
        archive(
            {
                "Metadaten_Geographie_00044.txt": b"Stations_id;Stationshoehe\r\n44;44.00\r\n",
                "Metadaten_Parameter_tu_stunde_00044.html": b"<html><body>no data</body></html>",
                _DWD_MEMBER: text.encode("latin-1"),
            }
        ),
        "",
        {"TT_TU": series("°C", "PT1H", times, temperature), "RF_TU": series("%", "PT1H", times, humidity)},
        media_type="application/zip",
        preset="dwd",
        member=_DWD_MEMBER,
    )


def aeso() -> Layout:
    """Local time of Alberta; what has not happened yet has no value."""
    edmonton = "America/Edmonton"
    times = clock_change_days("2025-03-09T07:00Z", "2025-11-02T06:00Z")
    low, likely = numbers(len(times), 30012, 104), numbers(len(times), 41025, 113)
    actual: list[float | None] = [*numbers(40, 40050, 117), *[None] * (len(times) - 40)]
    rows = [
        f"{written(at, edmonton, '%Y-%m-%d %H:%M')},{a},{b},{b + 100:.2f},{'' if c is None else c}"
        for at, a, b, c in zip(times, low, likely, actual, strict=True)
    ]
    return Layout(
        "D15",
        "AESO, wind forecast",
        "wind_rpt_longterm.csv",
        lines(["Forecast Transaction Date,Min,Most Likely,Max,Actual", *rows]).encode(),
        """
        unit = "MW"
        resolution = "PT1H"
        zone = "America/Edmonton"
        [mapping]
        time = "Forecast Transaction Date"
        value = ["Min", "Most Likely", "Actual"]
        """,
        {
            "Min": series("MW", "PT1H", times, low),
            "Most-Likely": series("MW", "PT1H", times, likely),
            "Actual": series("MW", "PT1H", times, actual),
        },
    )


def smart_meter() -> Layout:
    """The portal of an Austrian grid operator: energy by the quarter hour, and a mark beside estimates."""
    vienna = "Europe/Vienna"
    times = clock_change_days(*DAYS_2025, HOUR // 4)
    energy: list[float | None] = [*numbers(150, 20, 1, 3), None, *numbers(len(times) - 151, 300, -1, 3)]
    rows = [
        f"{written(at, vienna, '%d.%m.%Y %H:%M')};{written(at + HOUR // 4, vienna, '%d.%m.%Y %H:%M')};"
        f"{comma(value, 3)};{'L1' if index % 9 == 4 else ''}"
        for index, (at, value) in enumerate(zip(times, energy, strict=True))
    ]
    return Layout(
        "D16",
        "Smart meter, Austria",
        "AT0031000000000000000000000000001_QH_20250330_20251026.csv",
        lines(["Datum von;Datum bis;Energiemenge in kWh;Ersatzwert", *rows], "\r\n").encode(),
        """
        unit = "kWh"
        resolution = "PT15M"
        zone = "Europe/Vienna"
        [mapping]
        delimiter = ";"
        decimal = ","
        time = "Datum von"
        time_format = "%d.%m.%Y %H:%M"
        value = "Energiemenge in kWh"
        """,
        {"": series("kWh", "PT15M", times, energy)},
    )


def nord_pool() -> Layout:
    """Two lines above the header, a column without a heading, Latin-1, and the skipped hour without a value."""
    stockholm = "Europe/Stockholm"
    times = clock_change_days(*DAYS_2025)
    third: list[float | None] = [1050.25, *numbers(len(times) - 1, 1050, 41)]
    fourth: list[float | None] = [None, *numbers(len(times) - 1, 1275, 39)]
    rows = []
    for at, a, b in zip(times, third, fourth, strict=True):
        hour = int(written(at, stockholm, "%H"))
        if at == seconds("2025-03-30T01:00Z"):
            rows.append("30-03-2025;02 - 03;;")
        day, until = written(at, stockholm, "%d-%m-%Y"), (hour + 1) % 24
        rows.append(f"{day};{hour:02} - {until:02};{comma(a)};{comma(b, 2, '-')}")
    header = ["Elspot Prices in SEK/MWh;;;", "Data was last updated 27-10-2025;;;", ";Hours;SE3;SE4 Malmö"]
    return Layout(
        "D17",
        "Nord Pool, hourly prices",
        "elspot-prices_2025_hourly_sek.csv",
        lines([*header, *rows], "\r\n").encode("latin-1"),
        "",
        {"SE3": series("SEK/MWh", "PT1H", times, third), "SE4-Malmo": series("SEK/MWh", "PT1H", times, fourth)},
        preset="nord-pool",
    )


ALL: Final[Sequence[Callable[[], Layout]]] = (
    smard_table,
    smard,
    transnetbw,
    entsoe_2024,
    entsoe_xml,
    opsd,
    elexon,
    eia,
    energy_charts,
    open_meteo,
    aemo,
    caiso,
    dwd,
    aeso,
    smart_meter,
    nord_pool,
)
