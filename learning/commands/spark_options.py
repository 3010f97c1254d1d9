"""Options of commands that use Spark: its location, settings and tables."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlsplit

import typer

from learning.jobs.spark_options import SparkSettings, is_uri


def parse_folder(text: str) -> Path:
    """Return the folder of a path or ``file:`` URI.

    Raises:
        typer.BadParameter: any other URI.
    """
    if not is_uri(text):
        return Path(text).absolute()
    uri = urlsplit(text)
    if uri.scheme != "file" or uri.netloc not in {"", "localhost"} or not uri.path.startswith("/"):
        raise typer.BadParameter(f"{text} is not a path or file: URI: mount other stores")
    return Path(unquote(uri.path))


WarehouseOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the tables, or its file: URI. Default: traffic/warehouse in the state directory.",
        parser=parse_folder,
        metavar="FOLDER",
    ),
]
_OPTIONS: Final[dict[str, Any]] = {
    "master": Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs: spark://HOST:PORT, yarn, k8s://URL or local[N]. Default: as configured for "
            "spark-submit, else this machine.",
        ),
    ],
    "conf": Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Any setting of Spark, such as spark.driver.memory=4g. Repeatable."),
    ],
}


def with_spark_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of ``SparkSettings`` to a command, which receives them as ``settings``."""
    own = inspect.signature(command)

    @functools.wraps(command)
    def run(**values: Any) -> int:  # noqa: ANN401  # values of the command line parser
        given = {name: values.pop(name) for name in _OPTIONS}
        return command(settings=SparkSettings(**{**given, "conf": parse_conf(given["conf"] or ())}), **values)

    others = [parameter for parameter in own.parameters.values() if parameter.name != "settings"]
    added = [_parameter(name) for name in _OPTIONS]
    run.__signature__ = own.replace(parameters=[*others, *added])  # type: ignore[attr-defined]
    return run


def _parameter(name: str) -> inspect.Parameter:
    default = next(field.default for field in fields(SparkSettings) if field.name == name)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None if name == "conf" else default, annotation=_OPTIONS[name]
    )


def parse_conf(settings: "list[str] | tuple[str, ...]") -> tuple[tuple[str, str], ...]:
    """Parse ``NAME=VALUE``. Raises ``typer.BadParameter``."""
    found = []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"--conf is spark.NAME=VALUE, not {setting!r}")
        found.append((name, value))
    return tuple(found)
