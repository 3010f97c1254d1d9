"""Rows of tables to series and documents."""

import orjson
import pytest

from services.data.errors import InvalidDataset, WrongUnit
from services.data.kinds.series import parse_single
from tests.unit.services.data.files.conversion import Declaration, converted, points

BERLIN = Declaration("/x", zone="Europe/Berlin")
BELOW = Declaration()


def test_columns_are_endpoints_with_titles_and_units_of_their_headings() -> None:
    text = "Datum von;Solar [kW];Wind (MW)\n01.06.2026 00:00;1.002,5;-\n01.06.2026 01:00;7;0,5\n"
    marks = 'delimiter=";"\ndecimal=","\nthousands="."\ngaps=["-"]\n'
    mapping = f'{marks}time="Datum von"\ntime_format="%d.%m.%Y %H:%M"\nvalue="*"'
    solar, wind = converted(text, mapping, BELOW._replace(zone="Europe/Berlin", unit=None))
    assert (solar.endpoint, solar.title, solar.label("unit")) == ("/p/Solar", "Solar", "kW")
    assert points(solar) == [("2026-05-31T22:00", 1002.5), ("2026-05-31T23:00", 7)]
    assert (wind.endpoint, wind.label("unit"), points(wind)[0][1]) == ("/p/Wind", "MW", None)


def test_columns_may_be_ignored_and_have_units_of_their_own() -> None:
    text = "time,Note,Load\n2026-01-01T00:00Z,x,1\n"
    (made,) = converted(text, 'value="*"\nignore=["Note", "Other"]\nunits={Load="GW"}', BELOW._replace(unit=None))
    assert (made.endpoint, made.label("unit")) == ("/p/Load", "GW")


def test_rows_name_their_series_and_only_those_of_where_are_read() -> None:
    text = "at,zone,kind,v\n2026-01-01T00:00Z,SE1,P,1\n2026-01-01T00:00Z,SE2,P,2\n2026-01-01T00:00Z,SE1,Q,9\n"
    made = converted(text, 'time="at"\nvalue="v"\nname="{zone}/price"\nwhere={kind="P"}', BELOW)
    assert [(each.endpoint, each.title, points(each)) for each in made] == [
        ("/p/SE1/price", "SE1", [("2026-01-01T00:00", 1)]),
        ("/p/SE2/price", "SE2", [("2026-01-01T00:00", 2)]),
    ]


def test_content_is_that_of_the_same_points_in_json() -> None:
    texts = ["1.50", "", "3.0", "-0.0", "1e-7", "10.05", "-20", "123456789012.0", "0"]
    (made,) = converted("time,value\n" + "".join(f"2026-01-01T0{at}:00Z,{text}\n" for at, text in enumerate(texts)))
    assert made.content == parse_single("/x", orjson.dumps(orjson.loads(made.content))).content
    assert [value for _, value in points(made)] == [1.5, None, 3, 0, 1e-7, 10.05, -20, 123456789012, 0]


def test_repeated_hour_follows_the_order_of_rows_up_and_down() -> None:
    hours = ["01:00", "02:00", "02:00", "03:00"]
    text = "time,value\n" + "".join(f"2026-10-25T{hour},{index}\n" for index, hour in enumerate(hours))
    expected = [("2026-10-24T23:00", 0), ("2026-10-25T00:00", 1), ("2026-10-25T01:00", 2), ("2026-10-25T02:00", 3)]
    (made,) = converted(text, declaration=BERLIN)
    assert points(made) == expected
    head, *rows = text.splitlines()
    (made,) = converted("\n".join([head, *reversed(rows)]), declaration=BERLIN)
    assert points(made) == expected


def test_skipped_hour_is_left_out_if_it_is_empty_and_refused_with_a_value() -> None:
    text = "time,value\n2026-03-29T01:00,1\n2026-03-29T02:00,{}\n2026-03-29T03:00,3\n"
    (made,) = converted(text.format(""), declaration=BERLIN)
    assert points(made) == [("2026-03-29T00:00", 1), ("2026-03-29T01:00", 3)]
    with pytest.raises(InvalidDataset, match=r"^line 3: 2026-03-29T02:00 does not exist in Europe/Berlin"):
        converted(text.format("2"), declaration=BERLIN)


def test_days_of_23_and_25_hours_in_columns_by_period() -> None:
    heads = ";".join(f"Hour {number}" for number in range(1, 26))
    days = {"2026-03-29": 23, "2026-03-30": 24, "2026-10-25": 25}
    rows = "".join(
        f"{day};{';'.join(map(str, range(1, hours + 1)))}{';' * (25 - hours)}\n" for day, hours in days.items()
    )
    mapping = 'delimiter=";"\ntime="Day"\nvalue="*"\nacross="period"'
    (made,) = converted(f"Day;{heads}\n{rows}", mapping, BERLIN)
    found = points(made)
    assert len(found) == 72
    assert found[22:24] == [("2026-03-29T21:00", 23), ("2026-03-29T22:00", 1)]
    assert found[-1] == ("2026-10-25T22:00", 25)
    with pytest.raises(InvalidDataset, match="line 2: 2026-03-29 has fewer periods than values"):
        converted(f"Day;{heads}\n2026-03-29;{';'.join(map(str, range(1, 26)))}\n", mapping, BERLIN)


def test_times_of_day_and_whole_times_in_headings() -> None:
    text = "day,00:00,01:00\n2026-01-01,1,2\n2026-01-02,3,4\n"
    (made,) = converted(text, 'time="day"\nvalue="*"\nacross="time"')
    assert [value for _, value in points(made)] == [1, 2, 3, 4]
    years = "country,2024,2025\nGR,1,2\nIT,3,4\n"
    mapping = 'time=[]\ntime_format="%Y"\nvalue="*"\nacross="time"\nname="{country}"'
    made_by_country = converted(years, mapping, BELOW._replace(resolution="P1Y"))
    assert [(each.endpoint, points(each)) for each in made_by_country] == [
        ("/p/GR", [("2024-01-01T00:00", 1), ("2025-01-01T00:00", 2)]),
        ("/p/IT", [("2024-01-01T00:00", 3), ("2025-01-01T00:00", 4)]),
    ]


def test_periods_are_counted_in_absolute_time_and_values_repeated_until_an_end() -> None:
    period = "2026-03-28T23:00Z,2026-03-29T03:00Z"
    text = f"start,end,n,step,v\n{period},1,PT60M,5\n{period},3,PT60M,7\n"
    mapping = 'time="start"\nperiod="n"\nresolution="step"\nuntil="end"\nvalue="v"'
    (made,) = converted(text, mapping, BERLIN._replace(resolution=None))
    assert points(made) == [
        ("2026-03-28T23:00", 5),
        ("2026-03-29T00:00", 5),
        ("2026-03-29T01:00", 7),
        ("2026-03-29T02:00", 7),
    ]


def test_ends_of_periods_become_their_starts() -> None:
    text = "time,value\n2026-01-01T01:00,1\n2026-01-01 24:00,2\n"
    (made,) = converted(text, 'stamp="end"')
    assert points(made) == [("2026-01-01T00:00", 1), ("2026-01-01T23:00", 2)]


def test_ends_of_local_hours_are_right_where_clocks_change() -> None:
    ends = {"2026-03-29": ["01:00", "02:00", "04:00"], "2026-10-25": ["02:00", "03:00", "03:00", "04:00"]}
    text = "time,value\n" + "".join(f"{day}T{end},1\n" for day, times in ends.items() for end in times)
    (made,) = converted(text, 'stamp="end"', BERLIN)
    assert [time for time, _ in points(made)] == [
        "2026-03-28T23:00",
        "2026-03-29T00:00",
        "2026-03-29T01:00",
        "2026-10-24T23:00",
        "2026-10-25T00:00",
        "2026-10-25T01:00",
        "2026-10-25T02:00",
    ]
    with pytest.raises(InvalidDataset, match=r"periods shorter than a day are needed, not P1D \(keys: stamp"):
        converted(text, 'stamp="end"', BERLIN._replace(resolution="P1D"))


def test_one_of_several_tables_by_first_cells_or_by_the_text_above_it() -> None:
    aemo = "C,NEM\nI,A,P,1,T,V\nD,A,P,1,2026-01-01T00:00Z,5\nI,A,Q,1,T,V\nD,A,Q,1,2026-01-01T00:00Z,6\nC,END\n"
    (made,) = converted(aemo, 'table=["D","A","Q"]\ntime="T"\nvalue="V"')
    assert points(made) == [("2026-01-01T00:00", 6)]
    report = "Report\n\nLoad\ntime,v\n2026-01-01T00:00Z,1\n\nPrices by hour\ntime,v\n2026-01-01T00:00Z,2\n\nfooter\n"
    (made,) = converted(report, 'section="Prices"\nvalue="v"')
    assert points(made) == [("2026-01-01T00:00", 2)]


def test_lines_below_the_table_are_left_out() -> None:
    (made,) = converted("time,value\n2026-01-01T00:00Z,1\n\nTotal: 1\nSource, as of today, 2026\n\n", "footer=2")
    assert points(made) == [("2026-01-01T00:00", 1)]


def test_rows_out_of_order_are_sorted_and_equal_points_kept_once() -> None:
    text = "time,value\n2026-01-01T01:00Z,2\n2026-01-01T00:00Z,1\n2026-01-01T01:00Z,2\n"
    (made,) = converted(text)
    assert points(made) == [("2026-01-01T00:00", 1), ("2026-01-01T01:00", 2)]


@pytest.mark.parametrize(("policy", "kept"), [("first", 1), ("last", 3)])
def test_of_different_values_at_one_time_the_mapping_keeps_one(policy: str, kept: int) -> None:
    text = "time,value\n" + "".join(f"2026-01-01T00:00Z,{value}\n" for value in (1, 2, 3))
    (made,) = converted(text, f'duplicates="{policy}"')
    assert points(made) == [("2026-01-01T00:00", kept)]
    with pytest.raises(
        InvalidDataset, match=r"^line 3: 2026-01-01T00:00:00Z appears twice in /x, with 1 and 2 \(keys: duplicates"
    ):
        converted(text)


def test_units_and_resolutions_of_columns() -> None:
    text = (
        "time,value,unit,zone\n2026-01-01T00:00Z,1,EUR / MWh,a\n2026-01-01T01:00Z,2,€/MWh,a\n2026-01-01T00:00Z,3,MW,b\n"
    )
    first, second = converted(text, 'unit="unit"\nname="{zone}"', BELOW._replace(unit=None))
    assert (first.label("unit"), second.label("unit")) == ("EUR/MWh", "MW")
    with pytest.raises(WrongUnit, match="line 4: the unit is EUR/MWh, not 'MW'"):
        converted(text, 'unit="unit"\nname="{zone}"', BELOW._replace(unit="EUR/MWh"))


def test_documents_of_rows() -> None:
    text = "id,price,when\nab c,1.5,now\nd,,-\n"
    made = converted(text, 'kind="document"\nname="{id}"\nnumbers=["price"]\ngaps=["-"]', BELOW)
    assert [(each.endpoint, each.title, orjson.loads(each.content)) for each in made] == [
        ("/p/ab-c", "ab c", {"id": "ab c", "price": 1.5, "when": "now"}),
        ("/p/d", "d", {"id": "d", "price": None, "when": None}),
    ]
    with pytest.raises(InvalidDataset, match=r"line 3: another row is /p/a \(keys: name, duplicates\)"):
        converted("id\na\na\n", 'kind="document"\nname="{id}"', BELOW)


@pytest.mark.parametrize(
    ("text", "mapping", "message"),
    [
        ("time;value\n1;2\n", "", "there is no column 'time', but time;value (delimiter = ';')"),
        ("a,b\nx,2\n", "", "there is no column 'time', but a, b (key: time)"),
        ("01/01/2026 00:00,5.1\n", "", "but 01/01/2026 00:00, 5.1 (key: time; header = 0, if the file has none)"),
        ("# made today\ntime,value\n", "", "there is no column 'time', but # made today (comment = '#')"),
        ("My plant\n\ntime,value\n", "", "there is no column 'time', but My plant (keys: header, delimiter)"),
        ("time,value\n2026-01-01T00:00Z;1\n", "", "line 2: 1 cells instead of 2 (delimiter = ';')"),
        ("time,value\n1767225600,1\n", "", "line 2: '1767225600' is not a time like 2026-01-01T00:00 (key: time_for"),
        ("time,value\n01.02.2026,1\n", "", "line 2: '01.02.2026' is not a time like 2026-01-01T00:00 (key: time_form"),
        ("time,value\n2026-01-01T00:00Z,1\n2026-01-01T01:00Z,n/e\n", "", "line 3: 'n/e' is no number (key: gaps"),
        ("time,value\n2026-01-01T00:00Z,\"1,5\"\n", "", "line 2: '1,5' has a comma (keys: decimal, thousands)"),
        ("time,value\n2026-01-01T00:07Z,1\n", "", "line 2: 2026-01-01T00:07:00Z is not on the grid of PT1H in UTC"),
        ("time,value\n", "", "there are no rows (keys: header, where, rows)"),
        ("time,value\n2026-01-01T00:00Z,1\n", 'value="*"', "use prefix in place of endpoint"),
        ("time,value\n2026-01-01T00:00Z,nan\n", "", "line 2: 'nan' is no number"),
        ("time,value\n2026-01-01T00:00Z,1_0\n", "", "line 2: '1_0' is no number"),
        ("time,value\n2026-01-01T00:00Z,\u0663\n", "", "line 2: '\u0663' is no number"),
        ("x\n", 'section="Y"', "no line begins with 'Y' (key: section)"),
        ("x\n", 'table=["D"]', "no rows begin with 'D' below a header (key: table)"),
    ],
)  # fmt: skip
def test_faults_name_the_place_the_text_and_the_key(text: str, mapping: str, message: str) -> None:
    with pytest.raises(InvalidDataset) as caught:
        converted(text, mapping)
    assert message in str(caught.value)


def test_a_column_without_a_heading_is_named_by_its_number() -> None:
    (made,) = converted(",value\n2026-01-01T00:00Z,1\n", 'time = "1"')
    assert points(made) == [("2026-01-01T00:00", 1)]


def test_a_gap_may_be_a_number() -> None:
    (made,) = converted("time,value\n2026-01-01T00:00Z, -999\n2026-01-01T01:00Z,1\n", 'gaps = ["-999"]')
    assert points(made) == [("2026-01-01T00:00", None), ("2026-01-01T01:00", 1)]


def test_all_columns_are_those_of_the_rows_not_of_what_is_around_them() -> None:
    text = '{"zone":"GMT","units":{"a":"MW"},"hourly":{"time":["2026-01-01T00:00"],"a":[1],"b":[2]}}'
    made = converted(text, 'rows="hourly"\nvalue="*"', BELOW, "f.json")
    assert [(each.endpoint, points(each)) for each in made] == [
        ("/p/a", [("2026-01-01T00:00", 1)]),
        ("/p/b", [("2026-01-01T00:00", 2)]),
    ]


def test_two_headings_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidDataset, match=r"/p/A-B would be both 'A B' and 'A/B' \(key: name\)"):
        converted("time,A B,A/B\n2026-01-01T00:00Z,1,2\n", 'value="*"', BELOW)
