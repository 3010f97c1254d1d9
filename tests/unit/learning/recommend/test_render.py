"""Tables and sentences of a recommendation."""

import pytest
from rich.console import Console

from learning.costs import ROLES, RoleCosts
from learning.modes.configuration import Configuration, Size
from learning.modes.load import Load
from learning.modes.recommend import Requirements
from learning.recommend.advice import Advice
from learning.recommend.render import lines, modes_table, resources_table, roles_table
from learning.recommend.source import LoadSource
from tests.unit.learning.recommend.test_advice import LOAD, advice


def shown(capsys: pytest.CaptureFixture[str], load: Load = LOAD, width: int = 200, **more: object) -> list[str]:
    console = Console(width=width, highlight=False, markup=False, no_color=True)
    for each in lines(advice(load, **more), width):  # type: ignore[arg-type]
        console.print(each)
    return capsys.readouterr().out.splitlines()


def test_tables_fit_into_a_hundred_columns() -> None:
    found = advice(Load(100_000, 10_000, 1000, batch=50))
    console = Console(width=100)
    tables = [modes_table(found.candidates, 1), roles_table(found, 1), resources_table(found.candidates, 1)]
    for table in tables:
        assert console.measure(table, options=console.options.update(width=500)).maximum <= 100


def test_each_mode_has_its_size_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line for line in shown(capsys, needs=Requirements(survive=1)) if line.startswith("xz ")]
    assert rows[0].split()[:4] == ["xz", "3", "x", "1"]
    assert rows[0].split()[-1] == "Kafka"
    assert rows[1].split()[-1] != "-"
    assert rows[2].split()[1] == "12"


def test_what_was_not_measured_is_not_shown_as_nothing() -> None:
    lacking = {**ROLES.constants, "composite_idle_us_per_s": None}
    memory = {name: size for name, size in ROLES.memory.items() if name != "proxy"}
    found = Advice(LoadSource(LOAD, "a test"), RoleCosts(lacking, "lacking", memory=memory), Requirements())
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        for each in lines(found, 200):
            console.print(each)
    rows = [line for line in capture.get().splitlines() if line.startswith("z-composite ")]
    assert "?" in rows[1].split()
    assert rows[0].split()[4].startswith(">")
    assert "Not measured, and missing in the CPU above: composite: being there" in capture.get()


def test_next_and_present_mode_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, present=Configuration.X, size=Size(3))
    assert any(line.startswith("Run:   diem up --mode single") for line in text)
    assert any(line.startswith("Next:  diem up --mode x-broadcast") for line in text)
    assert any(line.startswith("Now:   diem up --mode single would take ") for line in text)


def test_what_a_mode_requires_of_others_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(shown(capsys, Load(100_000, 1000, 500, batch=50), width=400))
    assert "Run:   diem up --mode z-client " in text
    assert "--one-address excludes this mode" in text
    assert "hosts of 4 cores; `diem up` runs everything on one" in text
    assert "Beyond what was measured: 100,000 clients (measured to 10,000); " in text


def test_where_no_mode_holds_the_reason_of_the_closest_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(shown(capsys, Load(100, 100_000, 50_000, batch=50), width=400))
    assert "No mode holds this load: single: the Data Service would use " in text
    assert "Run:" not in text
    assert "then no mode" in text


def test_requirements_that_rest_on_few_runs_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(shown(capsys, needs=Requirements(p99_s=1.0), width=400))
    assert "and the delay of committed runs; there is none for z-client, " in text
