"""The commands of ``diem`` for single endpoints: ``get``, ``put``, ``patch``, ``notify`` and ``delete``."""

import json
import re
import shlex
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.cli.media_types import PATCHES, PIPE, alias, type_of_file
from deploy.cli.options import ApiKeyOption, StateDirOption, TokenOption, UnusableFile, UrlOption, run_change
from deploy.clients.data_service import DataService, RequestRefused, StoredContent, Upload, data_service
from deploy.clients.updates import credentials_of
from deploy.page_address import data_view
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.errors import ConfigurationError, DiemError
from diem.process.auth import SharedKey
from diem.protocol import endpoints
from diem.protocol.media_types import CSV, essence, kind_of
from services.data.files.grid import InputFile
from services.data.files.mapping import FILE_SUFFIXES
from services.data.files.reader import FileReader
from services.data.kinds import labels_of
from services.data.limits import MAX_DATASET_BYTES
from services.data.sources.config import layout_of
from services.data.sources.tables import MappedTable

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

_NOT_READ: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name such as /my/endpoint.")]
WriteKeyOption = Annotated[
    Path | None, typer.Option("--key-file", help="File of a write key. Default: the state directory's.")
]
TtlOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="SECONDS", help="Delete the endpoint after this time, unless it is written again."),
]
TitleOption = Annotated[str | None, typer.Option(help="Title in the catalogue. Default: as it is stored.")]
IfMatchOption = Annotated[
    int | None,
    typer.Option("--if-match", min=1, metavar="VERSION", help="Only if this is the current version."),
]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("get")(get_command)
    cli.command("put")(put_command)
    cli.command("patch")(patch_command)
    cli.command("notify")(notify_command)
    cli.command("delete")(delete_command)


def get_command(
    endpoint: EndpointArgument,
    *,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of JSON; only for series.")] = False,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="An earlier version. Default: the latest.")
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", show_default="standard output", help="File to write."),
    ] = PIPE,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: ApiKeyOption = None,
    token_file: TokenOption = None,
) -> int:
    """Print the data of an endpoint as it is stored, or the members of a collection such as /game/42/."""
    endpoints.check(endpoint)
    credentials = credentials_of(key_file, token_file)

    async def fetch() -> None:
        service = data_service(StateDir(state_dir), url)
        found = await service.get(credentials.bearer(), endpoint, version, CSV if csv else "*/*")
        if csv and essence(found.media_type) != CSV:
            raise ConfigurationError(f"--csv is for series, and {endpoint} is {found.media_type}")
        write_file(printed(found), output)

    return run_change(fetch)


def put_command(
    endpoint: EndpointArgument,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="The data. Default: standard input, as JSON.")] = PIPE,
    *,
    media_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="json, series, csv, text, or a media type such as image/png. Default: by the suffix of the file, "
            "never by its content; of standard input json, because anything else is then refused.",
        ),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit, such as MW, for CSV that does not name it.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Time between values, such as PT1H or PT15M, for CSV.")] = None,
    zone: Annotated[
        str | None, typer.Option(help="Time zone of times without an offset, such as Europe/Athens, for CSV.")
    ] = None,
    area: Annotated[str | None, typer.Option(help="Area of a series, such as a city or GR.")] = None,
    quantity: Annotated[str | None, typer.Option(help="What a series measures, such as price or load.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="Layout of the file: that of a publisher, or a table of your own. Rows and columns may name endpoints "
            "below ENDPOINT.",
        ),
    ] = None,
    title: TitleOption = None,
    ttl: TtlOption = None,
    if_match: IfMatchOption = None,
    create: Annotated[bool, typer.Option("--create", help="Only if there is no such endpoint.")] = False,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Store a file as the data of an endpoint. CSV is a series; so is JSON with --unit or another option of series."""
    of_series = _given(unit=unit, resolution=resolution, zone=zone, area=area, quantity=quantity)
    terms = of_series | _given(title=title, ttl=ttl)
    conditions = _conditions(if_match, create=create)
    service = _writable(endpoint, state_dir, url)
    # An event loop would delay Ctrl-C and SIGTERM until the end of standard input.
    content = read_file(file)
    if preset is not None:
        if media_type is not None or conditions:
            raise typer.BadParameter("--preset excludes --type, --create and --if-match")
        layout = layout_of(preset, endpoint, of_series | _given(title=title))
        return run_change(
            lambda: _put_converted(service, _write_key(state_dir, key_file), layout, (file, content), ttl)
        )
    chosen = type_of_file(file, content, media_type, [f"--{name}" for name in of_series])

    if media_type is None and kind_of(chosen) == "bytes" and file.lower().endswith(FILE_SUFFIXES):
        typer.echo(
            f"stored as bytes; for its values as series: diem sources suggest {file} --layout own.toml", err=True
        )

    async def store() -> None:
        key = _write_key(state_dir, key_file)
        try:
            answer = await service.put(key, endpoint, Upload(content, chosen, terms, conditions))
        except RequestRefused as error:
            if file == PIPE and media_type is None and error.status == HTTPStatus.BAD_REQUEST:
                error.detail += "; standard input is JSON: name another type with --type, such as csv or text"
            elif file != PIPE and kind_of(chosen) == "series" and error.status in _NOT_READ:
                error.detail += f"; `diem sources suggest {shlex.quote(file)}` finds the mapping of other layouts"
            raise
        _print_outcome(service, endpoint, "stored as", answer)

    return run_change(store)


async def _put_converted(
    service: DataService, key: SharedKey, layout: MappedTable, file: tuple[str, bytes], ttl: int | None
) -> None:
    """Store the endpoints of a file with a mapping, one after another."""
    async with FileReader() as reader:
        found = await reader.convert(InputFile(*file), layout.mapping, layout.target)
    for made in found:
        labels = {name: text for name, text in labels_of(made.labels).items() if name in {"area", "quantity", "zone"}}
        terms = labels | ({"title": made.title} if made.title else {}) | _given(ttl=ttl)
        answer = await service.put(key, made.endpoint, Upload(made.content, made.media_type, terms))
        _print_outcome(service, made.endpoint, "stored as", answer)


def patch_command(
    endpoint: EndpointArgument,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="The patch. Default: standard input.")] = PIPE,
    *,
    media_type: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="merge (RFC 7396) or json-patch (RFC 6902), both for documents; points, for series.",
        ),
    ] = "merge",
    title: TitleOption = None,
    ttl: TtlOption = None,
    if_match: IfMatchOption = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Change a part of the data of an endpoint."""
    chosen, terms, conditions = alias(media_type, PATCHES), _given(title=title, ttl=ttl), _conditions(if_match)
    service = _writable(endpoint, state_dir, url)
    content = read_file(file)

    async def change() -> None:
        key = _write_key(state_dir, key_file)
        answer = await service.patch(key, endpoint, Upload(content, chosen, terms, conditions))
        _print_outcome(service, endpoint, "changed to", answer)

    return run_change(change)


def notify_command(
    endpoint: EndpointArgument,
    *,
    title: TitleOption = None,
    ttl: TtlOption = None,
    if_match: IfMatchOption = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Announce a change of data that lives elsewhere. A table [[prefix]] of diem.toml may have its URL."""
    terms, conditions = _given(title=title, ttl=ttl), _conditions(if_match)
    service = _writable(endpoint, state_dir, url)

    async def announce() -> None:
        key = _write_key(state_dir, key_file)
        answer = await service.notify(key, endpoint, Upload(terms=terms, conditions=conditions))
        typer.echo(f"{endpoint} announced as version {answer.get('version')}")

    return run_change(announce)


def delete_command(
    endpoint: EndpointArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    if_match: IfMatchOption = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Delete an endpoint; its subscribers are notified."""
    service, key = _writable(endpoint, state_dir, url), _write_key(state_dir, key_file)
    if not yes:
        confirm_deletion(service, endpoint)

    async def remove() -> None:
        answer = await service.delete(key, endpoint, Upload(conditions=_conditions(if_match)))
        typer.echo(f"{endpoint} deleted as of version {answer.get('version')}")

    return run_change(remove)


def _writable(endpoint: str, state_dir: Path, url: str | None) -> DataService:
    """Return the service for writes of an endpoint, which may be an old one with ``*``. Raises ``BadName``."""
    endpoints.check_single(endpoint)
    return data_service(StateDir(state_dir), url)


def _write_key(state_dir: Path, key_file: Path | None) -> SharedKey:
    return SharedKey.load(key_file or StateDir(state_dir).write_key_file)


def _given(**terms: str | int | None) -> dict[str, str]:
    return {name: str(value) for name, value in terms.items() if value is not None}


def _conditions(if_match: int | None, *, create: bool = False) -> dict[str, str]:
    """Return the header fields of a condition. Raises ``typer.BadParameter`` for both."""
    if create and if_match is not None:
        raise typer.BadParameter("--create and --if-match: choose one of them")
    if create:
        return {"If-None-Match": "*"}
    # The service compares the version in an entity tag alone.
    return {} if if_match is None else {"If-Match": f'"{if_match}-json"'}


def _print_outcome(service: DataService, endpoint: str, outcome: str, answer: Mapping[str, Any]) -> None:
    text = outcome if answer.get("changed", True) else "unchanged since"
    typer.echo(f"{endpoint} {text} version {answer.get('version')}")
    typer.echo(f"on the page: {data_view(f'{service.base}/', endpoint)}", err=True)


def read_file(file: str) -> bytes:
    """Return the content of a file, or of standard input for ``-``. Raises ``UnusableFile``."""
    try:
        if file == "-":
            if sys.stdin.isatty():
                sys.stderr.write("reading standard input, until Ctrl-D\n")
            content = sys.stdin.buffer.read(MAX_DATASET_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MAX_DATASET_BYTES + 1)
    except OSError as error:
        remedy = (
            "; JSON itself is read from standard input: echo '...' | diem ..." if file.startswith(("{", "[")) else ""
        )
        raise UnusableFile(file, f"{error.strerror or error}{remedy}") from error
    if len(content) > MAX_DATASET_BYTES:
        raise UnusableFile(
            file, f"larger than {MAX_DATASET_BYTES} bytes, which no endpoint holds: split it, as by month"
        )
    return content


def printed(content: StoredContent) -> bytes:
    """Return what ``diem get`` prints: content as it is, text in full lines; of a collection its members, one a line.

    Raises:
        ValueError: a collection is none.
    """
    kind, body = kind_of(content.media_type), content.body
    if kind == "collection":
        return "".join(f"{name}\n" for name in json.loads(body)["members"]).encode()
    return body if kind == "bytes" or body.endswith(b"\n") else body + b"\n"


def write_file(content: bytes, file: str) -> None:
    """Write to a file, or to standard output for ``-``.

    Raises:
        UnusableFile: the file cannot be written, or the terminal would be sent other things than text.
    """
    if file == PIPE:
        if sys.stdout.isatty() and not is_text(content):
            raise UnusableFile(
                "the terminal", "this is no text, and could change its settings: name a file with --output"
            )
        typer.echo(content, nl=False)
        return
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from error


def is_text(content: bytes) -> bool:
    """Return whether bytes are UTF-8 without control characters but tabs and ends of lines."""
    try:
        return _CONTROL.search(content.decode()) is None
    except UnicodeDecodeError:
        return False


def confirm_deletion(service: DataService, endpoint: str) -> None:
    """Ask whether to delete an endpoint.

    Raises:
        ConfigurationError: there is no terminal.
        DiemError: the answer is no.
    """
    if not sys.stdin.isatty():
        raise ConfigurationError("this needs confirmation, and there is no terminal: add --yes")
    if not typer.confirm(f"Delete {endpoint} at {service.base}?", err=True):
        raise DiemError(f"{endpoint} was not deleted")
