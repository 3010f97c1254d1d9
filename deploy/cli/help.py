"""Layout of the help: each option on a line of its own, its description below it; commands and options in groups.

Nothing is ever cut, at any width: a longer word, such as the name of a variable, stays whole. Groups are the values of
``rich_help_panel``; a choice is shown as ``MODE``, with its values in the description. Commands need nothing for all
this: :func:`lay_out` gives the layout to whatever is registered.
"""

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from inspect import cleandoc
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_name

MIN_WIDTH: Final = 40
MAX_WIDTH: Final = 100
"""Columns beyond which lines are too long to read."""
_TITLE: Final = 2 * " "
_TEXT: Final = 6 * " "
_OPTIONS: Final = "Options"
_Context = Any
"""Of the parser; its type is private."""
_NO_GROUPS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})


class Entry(NamedTuple):
    """What the help has on one argument, option or command."""

    title: str
    text: str


class HelpCommand(TyperCommand):
    """A command with this help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002  # their types are private
        """Print the help, as the base class does."""
        _print_help(self, ctx)


class HelpGroup(TyperGroup):
    """A group of commands with this help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002  # their types are private
        """Print the help, as the base class does."""
        _print_help(self, ctx)


def lay_out(cli: typer.Typer, groups: Mapping[str, Sequence[str]] = _NO_GROUPS) -> None:
    """Give this layout to a command line and to all commands in it.

    Args:
        cli: the command line, with everything registered.
        groups: the names of its commands by the title of their group.
    """
    cli.info.cls = HelpGroup
    titles = {name: title for title, names in groups.items() for name in names}
    for command in cli.registered_commands:
        command.cls = HelpCommand
        command.name = command.name or get_command_name(getattr(command.callback, "__name__", ""))
        command.rich_help_panel = command.rich_help_panel or titles.get(command.name)
    # Groups are shown in the order of their first command.
    order = {name: number for number, name in enumerate(titles)}
    cli.registered_commands.sort(key=lambda each: order.get(str(each.name), len(order)))
    for group in cli.registered_groups:
        group.rich_help_panel = group.rich_help_panel or titles.get(str(group.name))
        if group.typer_instance is not None:
            lay_out(group.typer_instance)


def _print_help(command: TyperCommand | TyperGroup, context: _Context) -> None:
    columns = max(MIN_WIDTH, min(shutil.get_terminal_size().columns, MAX_WIDTH))
    typer.echo("\n".join(help_lines(command, context, columns)))


def help_lines(command: TyperCommand | TyperGroup, context: _Context, columns: int) -> Iterator[str]:
    """Yield the lines of a command's help for a terminal; styles are left out where there is none."""
    usage = " ".join(["Usage:", context.command_path, "[OPTIONS]", *_arguments(command)])
    yield from _wrapped(usage, columns, "", _TEXT)
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        yield ""
        yield from _wrapped(paragraph, columns, _TITLE, _TITLE)
    if isinstance(command, TyperGroup):
        yield from _command_lines(command, columns)
    for title, entries in _sections(command, context).items():
        yield from ("", typer.style(title, bold=True))
        for entry in entries:
            yield _TITLE + typer.style(entry.title, bold=True)
            yield from _wrapped(entry.text, columns, _TEXT, _TEXT)


def _arguments(command: TyperCommand | TyperGroup) -> Iterator[str]:
    """Yield the arguments of a command as in its usage: optional ones in brackets."""
    for parameter in command.params:
        if isinstance(parameter, TyperArgument):
            name = _value_name(parameter)
            yield name if parameter.required else f"[{name}]"
    if isinstance(command, TyperGroup):
        yield "[COMMAND ...]" if command.invoke_without_command else "COMMAND ..."


def _command_lines(group: TyperGroup, columns: int) -> Iterator[str]:
    """Yield the commands of a group: the name on the left, the first paragraph of its help on the right."""
    shown = {name: command for name, command in group.commands.items() if not command.hidden}
    sections: dict[str, list[Entry]] = {}
    for name, command in shown.items():
        title = getattr(command, "rich_help_panel", None) or ""
        sections.setdefault(title, []).append(Entry(name, cleandoc(command.help or "").partition("\n\n")[0]))
    others = "Other commands" if len(sections) > 1 else "Commands"
    indent = max(map(len, shown), default=0) + 2 * len(_TITLE)
    for title, entries in sorted(sections.items(), key=lambda section: not section[0]):
        yield from ("", typer.style(title or others, bold=True))
        for entry in entries:
            first, *more = [*_wrapped(entry.text, columns, indent * " ", indent * " "), ""]
            yield _TITLE + typer.style(entry.title, bold=True) + first[len(_TITLE) + len(entry.title) :]
            yield from more[:-1]


def _sections(command: TyperCommand | TyperGroup, context: _Context) -> dict[str, list[Entry]]:
    """Return arguments and options by group: arguments first, then groups in the order of their first option."""
    options: dict[str, list[Entry]] = {}
    arguments: dict[str, list[Entry]] = {}
    for parameter in command.get_params(context):  # those of the command, and --help
        match parameter:
            case TyperArgument(hidden=False):
                entry = Entry(_value_name(parameter), _description(parameter, context))
                arguments.setdefault(parameter.rich_help_panel or "Arguments", []).append(entry)
            case TyperOption(hidden=False):
                entry = Entry(_option_title(parameter), _description(parameter, context))
                options.setdefault(parameter.rich_help_panel or _OPTIONS, []).append(entry)
    if next(iter(options), _OPTIONS) != _OPTIONS and _OPTIONS in options:
        options[f"Other {_OPTIONS.lower()}"] = options.pop(_OPTIONS)
    return arguments | options


def _option_title(option: TyperOption) -> str:
    names = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
    return names if option.is_flag or option.count else f"{names} {_value_name(option)}"


def _value_name(parameter: TyperArgument | TyperOption) -> str:
    """Return what stands for the value: as declared, else by type, else the last word of the name."""
    if parameter.metavar is not None:
        return parameter.metavar
    kind = parameter.type_descriptor
    if kind.is_path:
        return "PATH"
    if kind.is_datetime:
        return "DATE" if kind.parameter_info.formats == ["%Y-%m-%d"] else "TIME"
    if kind.annotation in {int, float}:
        return "N"
    return re.split("[-_]", max(parameter.opts, key=len))[-1].upper()


def _description(parameter: TyperArgument | TyperOption, context: _Context) -> str:
    """Return the help of a parameter, with its values, default, range and variable."""
    choices = parameter.type_descriptor.choices
    values = "" if choices is None else f"One of: {', '.join(map(_as_text, choices))}."
    notes = [*_default(parameter, context), *_range(parameter), *_variable(parameter)]
    if parameter.required and isinstance(parameter, TyperOption):
        notes.append("required")
    return " ".join(filter(None, (parameter.help, values, f"[{'; '.join(notes)}]" if notes else "")))


def _default(parameter: TyperArgument | TyperOption, context: _Context) -> Iterator[str]:
    shown, value = parameter.show_default, parameter.get_default(context, call=False)
    if isinstance(shown, str):
        yield f"default: {shown}"
    elif isinstance(value, bool):
        # The name of an option that is off says so.
        if value and isinstance(parameter, TyperOption) and parameter.secondary_opts:
            yield f"default: {parameter.opts[0]}"
    elif shown and value is not None and (text := _as_text(value)):
        yield f"default: {text}"


def _range(parameter: TyperArgument | TyperOption) -> Iterator[str]:
    match parameter.min, parameter.max:
        case (None, None):
            return
        case (None, most):
            yield f"at most {_as_text(most)}"
        case (least, None):
            yield f"at least {_as_text(least)}"
        case (least, most):
            yield f"{_as_text(least)} to {_as_text(most)}"


def _variable(parameter: TyperArgument | TyperOption) -> Iterator[str]:
    if parameter.envvar and parameter.show_envvar:
        names = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar
        yield f"env: {', '.join(names)}"


def _as_text(value: object) -> str:
    match value:
        case Enum():
            return str(value.value)
        case float():
            return f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case int():
            return f"{value:,}" if value >= 100_000 else str(value)
        case datetime():
            return value.date().isoformat()
        case list() | tuple():
            return ", ".join(map(_as_text, value))
        case _:
            return str(value)


def _wrapped(text: str, columns: int, first: str, others: str) -> Iterable[str]:
    return textwrap.wrap(
        text,
        columns,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
