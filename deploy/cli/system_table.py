"""The table ``[system]`` of diem.toml: options of ``diem up`` and ``diem config MODE --hosts``, by name.

An option of the command line, or its variable, has priority.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from diem.errors import ConfigurationError, did_you_mean

TABLE: Final = "system"
OF_ONE_COMMAND: Final = frozenset(
    {"admin_port", "brokers", "free_ports", "nginx", "pages", "quiet", "mode", "time_factor", "websocket_port"}
    | {"config_dir", "database_url", "hosts", "out", "program", "standby", "user"}
)
"""Options of only one of the two commands, ignored by the other."""


def read_defaults(context: typer.Context, file: Path | None) -> None:
    """Use the table's values as defaults of the command's options; the whole file is checked later.

    Raises:
        ConfigurationError: a key is no option of the command.
    """
    try:
        table = {} if file is None else tomllib.loads(file.read_text(encoding="utf-8-sig")).get(TABLE, {})
    except (OSError, ValueError):
        return
    if not isinstance(table, dict):
        raise ConfigurationError(f"{file}: write [{TABLE}] with one pair of brackets")
    names = option_names(context.command)
    for key in table:
        if key not in names and key not in OF_ONE_COMMAND:
            raise ConfigurationError(f"{file}: [{TABLE}]: no option is called {key!r}{did_you_mean(key, names)}")
    context.default_map = {names[key]: value for key, value in table.items() if key in names}


def option_names(command: Any) -> dict[str, str]:  # noqa: ANN401  # the parser's types are private
    """Return the parameters of a command by their keys in the table: the options without leading dashes."""
    return {key_of(each): each.name for each in command.params if each.param_type_name == "option"}


def key_of(option: Any) -> str:  # noqa: ANN401
    """Return the key of an option: ``max_servers`` of ``--max-servers``."""
    return str(max(option.opts, key=len)).removeprefix("--").replace("-", "_")


def reference_lines(command: Any, context: typer.Context) -> Iterator[str]:  # noqa: ANN401
    """Yield the keys with their meanings, including those omitted in the help."""
    for option in command.params:
        if option.param_type_name == "option" and key_of(option) not in {"config", "help"}:
            option.hidden = False
            names, text = option.get_help_record(context)
            yield f"{key_of(option)}  ({names})"
            yield f"    {text}"
