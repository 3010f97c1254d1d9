"""The help of every command: nothing cut, everything explained, commands in groups."""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from deploy.cli.commands import command_line
from deploy.cli.help import GROUPS

Each = tuple[TyperCommand | TyperGroup, typer.Context]


def commands(command: Any, context: typer.Context) -> Iterator[Each]:
    """Yield a command and all below it, each with its context."""
    yield command, context
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, typer.Context(each, info_name=name, parent=context))


@pytest.fixture(scope="module")
def every() -> list[Each]:
    cli = cast("Any", typer.main.get_command(command_line()))
    return list(commands(cli, typer.Context(cli, info_name="diem")))


def test_names_values_and_variables_are_whole(every: list[Each]) -> None:
    assert len(every) > 25
    for command, context in every:
        context.terminal_width = 80
        text = command.get_help(context)
        words = set(re.split(r"[\s,;:\[\]]+", text))
        for each in getattr(command, "commands", {}).values():
            assert not each.get_short_help_str(limit=200).endswith("..."), each.name
        for parameter in command.get_params(context):
            if parameter.param_type_name == "option" and not cast("Any", parameter).hidden:
                variables = parameter.envvar or []
                expected = {*parameter.opts, *parameter.secondary_opts}
                expected |= {variables} if isinstance(variables, str) else {*variables}
                assert expected <= words, context.command_path


def test_every_parameter_and_command_is_explained(every: list[Each]) -> None:
    for command, context in every:
        assert command.help, context.command_path
        for parameter in command.get_params(context):
            assert getattr(parameter, "help", None), f"{context.command_path} {parameter.name}"


def test_commands_are_grouped_by_what_one_wants(every: list[Each]) -> None:
    root, context = every[0]
    headings = re.findall(r"^(\w.*):$", root.get_help(context), re.MULTILINE)
    assert headings == ["Options", *GROUPS], "a new command needs a place in GROUPS"


@pytest.mark.parametrize(
    ("group", "names"),
    [("keys", ["create", "list", "revoke", "internal"]), ("pipeline", ["status", "run", "usage", "erase"])],
)
def test_commands_of_a_group_are_listed(every: list[Each], group: str, names: list[str]) -> None:
    (text,) = (each.get_help(context) for each, context in every if context.command_path == f"diem {group}")
    listed = re.findall(r"^  (\w+) ", text.partition("Commands:")[2], re.MULTILINE)
    assert {*names} <= {*listed}


def test_up_shows_the_options_of_a_first_day(every: list[Each]) -> None:
    (up,) = (each for each, context in every if context.info_name == "up")
    shown = [each for each in up.params if each.param_type_name == "option" and not cast("Any", each).hidden]
    assert len(shown) <= 11
    assert {"mode", "servers", "config", "port"} <= {each.name for each in shown}
