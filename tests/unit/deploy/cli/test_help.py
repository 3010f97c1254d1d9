"""The help of every command: readable in narrow terminals, nothing cut, in groups."""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from deploy.cli.commands import GROUPS, command_line
from deploy.cli.help import help_lines, lay_out

STYLE = re.compile(r"\x1b\[\d*m")
WIDTHS = (60, 80)


def commands(command: Any, context: typer.Context) -> Iterator[tuple[TyperCommand | TyperGroup, typer.Context]]:
    """Yield a command and all below it, each with its context."""
    yield command, context
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, typer.Context(each, info_name=name, parent=context))


@pytest.fixture(scope="module")
def every() -> list[tuple[TyperCommand | TyperGroup, typer.Context]]:
    cli = cast("Any", typer.main.get_command(command_line()))
    return list(commands(cli, typer.Context(cli, info_name="diem")))


def plain(command: TyperCommand | TyperGroup, context: typer.Context, columns: int) -> list[str]:
    return [STYLE.sub("", line) for line in help_lines(command, context, columns)]


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_line_is_longer_than_the_terminal(
    every: list[tuple[TyperCommand | TyperGroup, typer.Context]], columns: int
) -> None:
    assert len(every) > 25
    for command, context in every:
        long = [line for line in plain(command, context, columns) if len(line) > columns]
        assert long == [], context.command_path


@pytest.mark.parametrize("columns", WIDTHS)
def test_names_values_and_variables_are_whole(
    every: list[tuple[TyperCommand | TyperGroup, typer.Context]], columns: int
) -> None:
    for command, context in every:
        lines = plain(command, context, columns)
        words = set(re.split(r"[\s,;\[\]]+", " ".join(lines).replace(". ", " ")))
        assert not any("…" in line for line in lines), context.command_path
        for parameter in command.get_params(context):
            if isinstance(parameter, TyperOption) and not parameter.hidden:
                variables = parameter.envvar or []
                expected = {*parameter.opts, *parameter.secondary_opts}
                expected |= {variables} if isinstance(variables, str) else {*variables}
                assert expected <= words, context.command_path
                assert any(line.startswith(f"  {', '.join(sorted(parameter.opts, key=len))}") for line in lines)


def test_every_parameter_and_command_is_explained(
    every: list[tuple[TyperCommand | TyperGroup, typer.Context]],
) -> None:
    for command, context in every:
        assert command.help, context.command_path
        for parameter in command.get_params(context):
            assert getattr(parameter, "help", None), f"{context.command_path} {parameter.name}"


def test_commands_are_grouped_by_what_one_wants(
    every: list[tuple[TyperCommand | TyperGroup, typer.Context]],
) -> None:
    lines = plain(*every[0], 80)
    headings = [line for line in lines if line and not line.startswith((" ", "Usage"))]
    assert headings == [*GROUPS, "Options"], "a new command needs a place in GROUPS"


def test_many_options_are_grouped(diem: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("up", "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line and not line.startswith((" ", "Usage"))]
    assert headings[0] == "Size"
    assert {"Data and pages", "Addresses", "Clients", "Traffic", "Kafka"} < {*headings}
    assert headings[-1] == "Other options"
    assert "  --mode MODE" in lines
    assert "single, x-broadcast, x, all-to-all," in " ".join(line.strip() for line in lines)


def test_width_is_that_of_the_terminal(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = {}
    for columns in ("60", "90", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        assert diem("up", "--help") == 0
        longest[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert longest["60"] <= 60 < longest["90"] <= 90 < longest["400"] <= 100


class Speed(StrEnum):
    """A choice."""

    SLOW = "slow"
    FAST = "fast"


def test_layout() -> None:
    cli = typer.Typer(add_completion=False)

    @cli.command()
    def go(
        place: Annotated[str, typer.Argument(metavar="PLACE", help="Where to go.")],
        then: Annotated[str | None, typer.Argument(metavar="NEXT", help="And after that.")] = None,
        *,
        speed: Annotated[Speed, typer.Option("--speed", "-s", help="How.")] = Speed.SLOW,
        distance: Annotated[float, typer.Option(envvar="A_DISTANCE", min=0.5, max=1e9, help="How far.")] = 3.0,
        bags: Annotated[int | None, typer.Option(min=1, help="To carry.")] = None,
        note: Annotated[Path | None, typer.Option(help="To leave behind.", rich_help_panel="Notes")] = None,
        back: Annotated[bool, typer.Option(help="Return.")] = True,
        quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False,
        secret: Annotated[bool, typer.Option(hidden=True)] = False,
    ) -> None:
        """Go to a place, with a description that is too long for one line of this terminal.

        A second paragraph.
        """

    lay_out(cli)
    command = cast("Any", typer.main.get_command(cli))
    lines = plain(command, typer.Context(command, info_name="go"), 50)
    assert lines == [
        "Usage: go [OPTIONS] PLACE [NEXT]",
        "",
        "  Go to a place, with a description that is too",
        "  long for one line of this terminal.",
        "",
        "  A second paragraph.",
        "",
        "Arguments",
        "  PLACE",
        "      Where to go.",
        "  NEXT",
        "      And after that.",
        "",
        "Options",
        "  -s, --speed SPEED",
        "      How. One of: slow, fast. [default: slow]",
        "  --distance N",
        "      How far. [default: 3; 0.5 to 1,000,000,000;",
        "      env: A_DISTANCE]",
        "  --bags N",
        "      To carry. [at least 1]",
        "  --back, --no-back",
        "      Return. [default: --back]",
        "  --quiet",
        "      Say nothing.",
        "  --help",
        "      Show this message and exit.",
        "",
        "Notes",
        "  --note PATH",
        "      To leave behind.",
    ]
