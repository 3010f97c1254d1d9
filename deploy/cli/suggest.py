"""The command ``diem sources suggest``: find the mapping of a file or a feed, and show what it would publish."""

import asyncio
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import httpx
import typer
from rich.console import RenderableType
from rich.text import Text

from deploy.cli.mode_options import ConfigOption, config_file
from deploy.cli.options import UnusableFile, run_change
from deploy.cli.suggest_table import SCHEMES, suggest_table
from deploy.cli.suggest_topic import SCHEME, commented, suggest_topic
from deploy.terminal import amount, data_size, plain_console, plain_table
from diem.errors import ConfigurationError
from diem.process import lifecycle
from services.data.errors import DataError
from services.data.files.grid import InputFile
from services.data.files.layout_text import layout_text, source_text
from services.data.files.mapping import FILE_SUFFIXES
from services.data.files.presets import load_preset
from services.data.files.reader import FileReader
from services.data.files.sample import FileSample, read_sample
from services.data.files.suggested_source import as_json, points_of
from services.data.files.suggestion import ANSWERS, Question, Suggestion
from services.data.kinds import SERIES
from services.data.kinds.series import parse_resolution
from services.data.sources.config import BadConfig, load
from services.data.sources.fetch import PollingClient, Request, fetch
from services.data.sources.tables import SUFFIXES

MAX_SHOWN: Final = 5
"""Maximum number of displayed endpoints; ``--json`` has all."""
CHART_COLUMNS: Final = 48
URL_BYTES: Final = 16 * 1024 * 1024
TIMEOUT_S: Final = 30.0
SOURCE_BYTES: Final = 4 * 1024 * 1024
"""Default of ``max_bytes``, which larger files need."""
MAX_SOURCE_BYTES: Final = 64 * 1024 * 1024
_SCHEMES: Final = ("http://", "https://")
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


class Origin(NamedTuple):
    """Where a file is: the fields of its source before, and those after its endpoints."""

    fields: dict[str, Any]
    polling: dict[str, Any]
    sample: FileSample
    problems: tuple[str, ...] = ()


def suggest_command(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="A file, a feed's address, kafka://HOST:PORT/TOPIC or postgresql://USER@HOST/DATABASE.",
        ),
    ],
    *,
    zone: Annotated[
        str | None, typer.Option(help="Time zone of times without an offset, such as Europe/Athens.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the values, such as MW.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Time between values, such as PT1H or PT15M.")] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help=f"Another answer: {', '.join(ANSWERS)}; for topics and databases any key of docs/sources.md.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the source and its endpoints. Default: that of the file.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Add the table to diem.toml.")] = False,
    layout: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Write the layout to a file, for `diem put --preset FILE.toml`."),
    ] = None,
    config: ConfigOption = None,
    as_json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Find the layout of a file or a feed; print its [[source]] table, and what it would publish."""
    is_file = not place.startswith((SCHEME, *SCHEMES))
    known = _known(answers or [], {"zone": zone, "unit": unit, "resolution": resolution}) if is_file else {}
    target = config_file(config) or Path("diem.toml")
    failed: list[str] = []

    async def attempt_records() -> None:
        own_name, table, problems = await _suggest_records(place, answers or [], name, json=as_json_)
        failed.extend(problems)
        if write and not failed:
            _add(target, own_name, table)

    async def attempt() -> None:
        origin = await find_origin(place, target)
        try:
            async with FileReader() as reader:
                made = await reader.suggest(
                    origin.sample.file, known=known, name=name or "", template=_template(origin)
                )
        except DataError as error:
            raise UnusableFile(place, str(error)) from None
        table = "" if made.problem else source_table(origin, made)
        failed.extend([made.problem, *origin.problems] if made.problem else origin.problems)
        if as_json_:
            typer.echo(json.dumps(as_json(made, table), ensure_ascii=False))
        else:
            console = plain_console()
            for part in render(place, origin, made, table):
                console.print(part, soft_wrap=True)
        if layout is not None and not made.problem:
            write_layout(layout, made)
        if write and not failed:
            _add(target, made.name, _commented(table, made.questions))

    code = run_change(attempt if is_file else attempt_records)
    if code == lifecycle.EXIT_OK and not (failed or write or layout or as_json_):
        typer.echo(f"--write adds the table to {target}", err=True)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and failed else code


def _known(answers: Sequence[str], options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the answers of the user by key. Raises ``typer.BadParameter``."""
    known = {key: value for key, value in options.items() if value is not None}
    for answer in answers:
        key, mark, value = answer.partition("=")
        if not mark or key not in ANSWERS:
            raise typer.BadParameter(f"--set takes KEY=VALUE with one of {', '.join(ANSWERS)}, not {answer!r}")
        known[key] = value
    return known


async def find_origin(place: str, config: Path) -> Origin:
    """Read a sample of a file or the answer of a server.

    Raises:
        UnusableFile: it cannot be read.
    """
    if place.startswith(_SCHEMES):
        return Origin({"type": "http", "url": place}, {}, await _download(place))
    return await asyncio.to_thread(_read, place, config)


def _read(place: str, config: Path) -> Origin:
    path = Path(place)
    try:
        if path.is_dir():
            raise UnusableFile(place, "it is a directory: name one of its files, the source then has all of them")
        sample = read_sample(path)
    except OSError as error:
        raise UnusableFile(place, error.strerror or "it cannot be read") from None
    except DataError as error:
        raise UnusableFile(place, str(error)) from None
    directory = os.path.relpath(path.resolve().parent, config.resolve().parent)
    if directory.startswith(".."):
        directory = str(path.resolve().parent)
    problems = []
    if not path.name.lower().endswith(FILE_SUFFIXES):
        problems.append(f"sources read files named {', '.join(FILE_SUFFIXES)}: rename {path.name}")
    if sample.size > MAX_SOURCE_BYTES:
        problems.append(f"sources read at most {data_size(MAX_SOURCE_BYTES)} of a file: split it")
    size = {"max_bytes": MAX_SOURCE_BYTES} if sample.size > SOURCE_BYTES else {}
    fields = {"type": "directory", "path": directory, "file": path.name}
    return Origin(fields, size, sample, tuple(problems))


async def _download(url: str) -> FileSample:
    try:
        async with asyncio.timeout(TIMEOUT_S), PollingClient(TIMEOUT_S) as client:
            answer = await fetch(client, Request("GET", httpx.URL(url)), {}, max_bytes=URL_BYTES)
    except TimeoutError:
        raise UnusableFile(url, f"no answer within {TIMEOUT_S:.0f} seconds") from None
    except (DataError, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise UnusableFile(url, str(error) or type(error).__name__) from None
    if answer is None:
        raise UnusableFile(url, "an answer without content")
    file = InputFile(httpx.URL(url).path, answer.body, answer.content_type)
    return FileSample(file, len(answer.body), is_whole=True)


def _template(origin: Origin) -> str:
    return "{column}" if origin.fields["type"] == "http" else "{file}/{column}"


def source_table(origin: Origin, made: Suggestion) -> str:
    """Return the table of a suggestion as TOML."""
    fields, keys = {**origin.fields}, dict(made.keys)
    polling = dict(origin.polling)
    if fields["type"] == "http":
        polling["every"] = _interval(made)
        if origin.sample.size > SOURCE_BYTES:
            polling["max_bytes"] = MAX_SOURCE_BYTES
    first = {"type": fields.pop("type"), "name": made.name}
    named = {"preset": made.preset} if made.preset else {}
    is_own_form = origin.sample.file.name.lower().endswith(SUFFIXES)
    mapping = keys if keys or not (made.preset or is_own_form) else None
    return source_text({**first, **fields, **named, **_ordered(made.fields), **polling}, mapping)


def _ordered(fields: Mapping[str, Any]) -> dict[str, Any]:
    order = ("endpoint", "prefix", "unit", "resolution", "zone")
    return {key: fields[key] for key in order if key in fields}


def _interval(made: Suggestion) -> float:
    """Return the seconds between two polls: a period, but a minute at least and an hour at most."""
    found = {each.label("resolution") for each in made.found if each.media_type == SERIES}
    seconds = [parse_resolution(text).seconds for text in found if text]
    return float(min(max(60, *seconds), 3600)) if seconds else 3600.0


def render(place: str, origin: Origin, made: Suggestion, table: str) -> Iterator[RenderableType]:
    """Yield the table, the endpoints with their points, what the file shows, and what is unsure."""
    sample = "" if origin.sample.is_whole else f", by a sample: its size is {data_size(origin.sample.size)}"
    if made.problem:
        yield Text(f"{place}: no source is found{sample}: {made.problem}")
    else:
        series = [each for each in made.found if each.media_type == SERIES]
        what = amount(len(series), "series") if series else amount(len(made.found), "document")
        yield Text(f"{place}: {what.replace('seriess', 'series')}{sample}\n")
        yield Text(table)
        yield from _endpoints(made)
    for problem in origin.problems:
        yield Text(f"but: {problem}")
    if made.notes:
        yield Text("the file shows:")
        yield from (Text(f"  {each.key}: {each.reason}") for each in made.notes)
    if made.questions:
        yield Text("unsure:")
        yield from (Text(f"  {question_text(each)}") for each in made.questions)
    elif not made.problem:
        yield Text("nothing is unsure")


def _endpoints(made: Suggestion) -> Iterator[RenderableType]:
    headings = ("endpoint", "unit", "resolution", "first", "last", "points", "gaps")
    table = plain_table(*headings, right=("points", "gaps"), wrap=("endpoint",))
    charts = []
    for each in made.found[:MAX_SHOWN]:
        points = points_of(each)
        if not points:
            yield Text(f"{each.endpoint}  {each.content.decode('utf-8', 'replace')[:100]}")
            continue
        gaps = sum(point["value"] is None for point in points)
        ends = (
            f"{point['time'][:16].replace('T', ' ')}  {_number(point['value'])}" for point in (points[0], points[-1])
        )
        own = (each.label("unit"), each.label("resolution"), *ends, f"{len(points):,}", f"{gaps:,}")
        table.add_row(Text(each.endpoint), *map(Text, own))
        charts.append(Text(f"{block_chart([point['value'] for point in points], CHART_COLUMNS)}  {each.endpoint}"))
    if charts:
        yield table
        yield Text("times are in UTC")
        yield from charts
    if (more := len(made.found) - MAX_SHOWN) > 0:
        yield Text(f"and {amount(more, 'endpoint')} more")
    yield Text("")


def _number(value: object) -> str:
    return "-" if value is None else str(value)


def question_text(question: Question) -> str:
    """Return what is unsure in one line, with the option or key that answers it."""
    assumed = f"{question.key} = {question.assumed!r}" if question.assumed else question.key
    text = f"{assumed}: {question.reason}"
    if question.key in {"zone", "unit", "resolution"}:
        option = f"--{question.key} {'VALUE' if question.key == 'unit' else ''}".strip()
        choices = " or ".join(f"--{question.key} {each}" for each in question.others) or option
        return f"{text}; answer with {choices}"
    if question.key in ANSWERS and question.others:
        return f"{text}; answer with {' or '.join(f'--set {question.key}={each!r}' for each in question.others)}"
    others = f", as {' or '.join(map(repr, question.others))}" if question.others else ""
    return f"{text}; change the key {question.key}{others}"


async def _suggest_records(
    place: str, answers: Sequence[str], name: str | None, *, json: bool
) -> tuple[str, str, Sequence[str]]:
    """Suggest the table of a topic or a database; return its name, its text and its problems."""
    if place.startswith(SCHEMES):
        found = await suggest_table(place, answers, name, json=json)
        return found.name, found.commented, [found.problem] if found.problem else []
    draft = await suggest_topic(place, answers, name, json=json)
    return draft.name, commented(draft), [*filter(None, (draft.suggestion.problem, *draft.faults))]


def _add(target: Path, name: str, table: str) -> None:
    add_table(target, name, table)
    typer.echo(f"added to {target}: try it with `diem sources check`, and restart `diem up`", err=True)


def _commented(table: str, questions: Sequence[Question]) -> str:
    return "".join(f"# unsure: {each.key}: {' '.join(each.reason.split())}\n" for each in questions) + table


def add_table(config: Path, name: str, table: str) -> None:
    """Add a table to the end of a diem.toml, of which no byte changes; create it if there is none.

    Raises:
        ConfigurationError: the file has faults, or a source of this name, and was left alone.
    """
    try:
        before = config.read_bytes() if config.exists() else b""
        text = before.decode("utf-8-sig")
        names = {each.get("name") for each in tomllib.loads(text).get("source", []) if isinstance(each, dict)}
    except OSError as error:
        raise UnusableFile(config, error.strerror or "it cannot be read") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnusableFile(config, f"not valid, and left alone: {error}") from None
    if name in names:
        raise UnusableFile(config, f"there is a source named {name!r} already: give another name with --name")
    end = "\r\n" if b"\r\n" in before else "\n"
    gap = "" if not before else end if before.endswith(b"\n") else end * 2
    made = before + (gap + table.replace("\n", end)).encode()
    draft = config.with_name(f".{config.name}.new")
    try:
        draft.write_bytes(made)
        load(draft)
        if before:
            draft.chmod(config.stat().st_mode & 0o7777)
        draft.replace(config)
    except BadConfig as error:
        raise ConfigurationError(
            f"{config} was left alone, because it would have faults: {'; '.join(error.faults)}"
        ) from None
    except OSError as error:
        raise UnusableFile(config, error.strerror or "it cannot be written") from None
    finally:
        draft.unlink(missing_ok=True)


def write_layout(file: Path, made: Suggestion) -> None:
    """Write the layout of a suggestion. Raises ``UnusableFile``."""
    preset = load_preset(made.preset, Path()) if made.preset else {}
    mapping = {**preset.pop("mapping", {}), **made.keys}
    try:
        file.write_text(_commented(layout_text({**preset, **made.layout}, mapping), made.questions), encoding="utf-8")
    except OSError as error:
        raise UnusableFile(file, error.strerror or "it cannot be written") from None
    typer.echo(f"written: {file}; store the file with `diem put ENDPOINT FILE --preset {file}`", err=True)


def block_chart(values: Sequence[float | None], width: int) -> str:
    """Return values as a line of block characters, each for the mean of some; blanks are gaps."""
    means = [*_means(values, width)]
    known = [each for each in means if each is not None]
    if not known:
        return " " * len(means)
    low, high = min(known), max(known)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(" " if each is None else _BLOCKS[round((each - low) * scale)] for each in means)


def _means(values: Sequence[float | None], width: int) -> Iterator[float | None]:
    count = min(width, len(values))
    for index in range(count):
        part = values[index * len(values) // count : (index + 1) * len(values) // count]
        known = [each for each in part if each is not None]
        yield sum(known) / len(known) if known else None
