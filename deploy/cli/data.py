"""The commands of ``diem`` for datasets: ``watch``, ``get``, ``put`` and ``delete``."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.cli.options import (
    ApiKeyOption,
    StateDirOption,
    TokenOption,
    UnusableFile,
    UrlOption,
    run_change,
    run_interactive,
)
from deploy.clients.data_service import (
    MEDIA_TYPES,
    DataService,
    DataServiceUnavailable,
    RequestRefused,
    ServiceRefused,
    Upload,
    data_service,
)
from deploy.clients.updates import ANONYMOUS, Credentials, client_of, credentials_of
from deploy.page_address import data_view
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.errors import ConfigurationError, DiemError
from diem.links.client import CompletedEvents, Event, Fetch, FetchDelayed
from diem.process.auth import SharedKey
from diem.protocol import endpoints
from diem.protocol.update import iso

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Greatest limit of a Data Service (DIEM_DATASET_BYTES): protects memory from a wrong file."""

LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a retry may succeed."""
FIRST_CLOSE_CODE: Final = 1000
"""Lower codes are HTTP statuses of refused handshakes."""

Print = Callable[[str], None]

EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name such as /my/endpoint.")]
WriteKeyOption = Annotated[
    Path | None, typer.Option("--key-file", help="File of a write key. Default: the state directory's.")
]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("watch")(watch_command)
    cli.command("get")(get_command)
    cli.command("put")(put_command)
    cli.command("delete")(delete_command)


def watch_command(
    names: Annotated[list[str], typer.Argument(metavar="ENDPOINT...", help="Names such as /dam/prices/GR.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: ApiKeyOption = None,
    token_file: TokenOption = None,
    with_data: Annotated[
        bool, typer.Option("--data", help="Also print the values; they are fetched if servers do not send them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each event.")] = False,
) -> int:
    """Print updates of endpoints as they arrive, until Ctrl-C. With an API key, client tokens are requested."""
    for name in names:
        endpoints.check(name)
    credentials = credentials_of(key_file, token_file)

    def note(text: str) -> None:
        typer.echo(text, err=True)

    return run_interactive(
        lambda: watch(
            data_service(StateDir(state_dir), url),
            names,
            typer.echo,
            note,
            credentials,
            as_json=as_json,
            with_data=with_data,
        )
    )


def get_command(
    endpoint: EndpointArgument,
    *,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of JSON.")] = False,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="An earlier version. Default: the latest.")
    ] = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", show_default="standard output", help="File to write."),
    ] = "-",
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: ApiKeyOption = None,
    token_file: TokenOption = None,
) -> int:
    """Print the data of an endpoint."""
    endpoints.check(endpoint)
    credentials = credentials_of(key_file, token_file)

    async def fetch() -> None:
        service = data_service(StateDir(state_dir), url)
        write_file(await service.get(credentials.bearer(), endpoint, "csv" if csv else "json", version), output)

    return run_change(fetch)


def delete_command(
    endpoint: EndpointArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Delete an endpoint; its subscribers are notified."""
    endpoints.check(endpoint)
    state = StateDir(state_dir)
    service, key = data_service(state, url), SharedKey.load(key_file or state.write_key_file)
    if not yes:
        confirm_deletion(service, endpoint)

    async def remove() -> None:
        answer = await service.delete(key, endpoint)
        typer.echo(f"{endpoint} deleted as of version {answer.get('version')}")

    return run_change(remove)


def put_command(
    endpoint: EndpointArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV or JSON; `-` reads standard input.")],
    *,
    unit: Annotated[str | None, typer.Option(help="Unit, such as MW, for CSV that does not name it.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Time between values, such as PT1H or PT15M, for CSV.")] = None,
    zone: Annotated[
        str | None, typer.Option(help="Time zone of times without an offset, such as Europe/Athens, for CSV.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title in the catalogue. Default: as it is stored.")] = None,
    area: Annotated[str | None, typer.Option(help="Bidding zone or other area, such as GR, or FROM>TO.")] = None,
    quantity: Annotated[str | None, typer.Option(help="What is measured, such as price or load.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv or json. Default: by the name of the file or its content.")
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Store a file as the data of an endpoint."""
    if form not in {None, "csv", "json"}:
        raise typer.BadParameter(f"--format is csv or json, not {form}")
    endpoints.check_written(endpoint)
    state = StateDir(state_dir)
    given = {"unit": unit, "resolution": resolution, "zone": zone, "title": title, "area": area, "quantity": quantity}
    declared = {name: value for name, value in given.items() if value is not None}
    service = data_service(state, url)
    # An event loop would delay Ctrl-C and SIGTERM until the end of standard input.
    content = read_file(file)

    async def store() -> None:
        key = SharedKey.load(key_file or state.write_key_file)
        answer = await service.put(key, endpoint, Upload(content, form or guess_form(file, content), declared))
        outcome = "stored as" if answer.get("changed", True) else "unchanged since"
        typer.echo(f"{endpoint} {outcome} version {answer.get('version')}")
        typer.echo(f"on the page: {data_view(f'{service.base}/', endpoint)}", err=True)

    return run_change(store)


def read_file(file: str) -> bytes:
    """Return the content of a file, or of standard input for ``-``. Raises ``UnusableFile``."""
    try:
        if file == "-":
            content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from error
    if len(content) > MAX_FILE_BYTES:
        raise UnusableFile(file, f"larger than {MAX_FILE_BYTES} bytes, which no endpoint holds: split it, as by month")
    return content


def write_file(content: bytes, file: str) -> None:
    """Write to a file, or to standard output for ``-``. Raises ``UnusableFile``."""
    if file == "-":
        typer.echo(content, nl=False)
        return
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from error


def guess_form(file: str, content: bytes) -> str:
    """Return ``json`` or ``csv``, by the suffix of the file, else by the first character of the content."""
    suffix = Path(file).suffix.lower().removeprefix(".")
    if suffix in MEDIA_TYPES:
        return suffix
    return "json" if content.lstrip()[:1] == b"{" else "csv"


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


async def _unlisted(service: DataService, names: Sequence[str], credentials: Credentials) -> list[str]:
    """Return the names missing in the catalogue; none if the token gives no access to it."""
    try:
        listed = await service.endpoints(credentials.bearer())
    except ServiceRefused:
        # Servers accept tokens of other issuers, the Data Service only its own.
        if credentials.token_file is None:
            raise
        return []
    return [name for name in names if name not in listed]


async def watch(
    service: DataService,
    names: Sequence[str],
    write: Print,
    note: Print,
    credentials: Credentials = ANONYMOUS,
    *,
    as_json: bool = False,
    with_data: bool = False,
) -> None:
    """Print updates with ``write``, with values if ``with_data``, and other events with ``note``, until cancelled.

    Raises:
        BadName: a name is invalid. BadKeyFile: the file of the key or token is invalid.
        DataServiceUnavailable: the Data Service does not name WebSocket servers.
        DiemError: the server does not accept this client again.
    """
    token = credentials.token_function(service)
    edges = await service.edges()
    if not edges.servers:
        raise DataServiceUnavailable(service.base, "its configuration has no WebSocket server")
    for name in await _unlisted(service, names, credentials):
        note(f"{name} is not in the catalogue yet: watching it anyway")
    last: Event | None = None
    closed: Event | None = None
    live: bool | None = None
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(edges, service.base, token, service.tls, data=with_data))
        await client.subscribe(dict.fromkeys(names))
        events: AsyncIterator[Event] = client
        if with_data:
            completed = CompletedEvents(client, _fetch_with(service, credentials), client.correct)
            events = await stack.enter_async_context(completed)
        async for event in events:
            # The server repeats an unchanged status every 25 s.
            if event.kind == "status" and not event.endpoint:
                if event.live == live:
                    continue
                live = event.live
            text = describe(event)
            if as_json:
                write(json.dumps(as_object(event)))
            elif event.kind == "update":
                write(f"{_time_of_day()}  {text}")
            elif last is None or text != describe(last):  # one line for any number of failed attempts
                note(f"{_time_of_day()}  {text}")
            last = event
            # The first status of the next connection is always news.
            closed, live = (event, None) if event.kind == "closed" else (closed, live)
    code, reason = (closed.code, closed.message) if closed else (None, "")
    raise DiemError(f"the server closed the connection ({code}{': ' if reason else ''}{reason})")


def _fetch_with(service: DataService, credentials: Credentials) -> Fetch:
    """Return a function that requests data."""

    async def fetch(endpoint: str, version: int | None) -> Mapping[str, Any] | None:
        try:
            content = await service.get(credentials.bearer(), endpoint, "json", version)
        except RequestRefused as error:
            if version is not None and error.status == HTTPStatus.NOT_FOUND:
                return None  # this version is not kept
            if error.status in LATER:
                raise FetchDelayed(str(error)) from error
            raise
        except DataServiceUnavailable as error:
            raise FetchDelayed(str(error)) from error
        data: Mapping[str, Any] = json.loads(content)
        return data

    return fetch


def describe(event: Event) -> str:
    """Return an event as text for people."""
    match event.kind:
        case "update":
            version = event.version or 0
            text = f"{event.endpoint}  {'gone' if event.gone else 'version'} {version}  {iso(version)}"
            if event.data is not None:
                values = (point["value"] for point in event.data["points"])
                text += f"  {event.data['unit']}: {' '.join('-' if value is None else str(value) for value in values)}"
        case "subscribed":
            held = "no data yet" if event.version is None else f"at version {event.version}"
            text = f"{event.endpoint}  subscribed, {held}"
        case "open":
            text = f"connected to {event.message}"
        case "closed":
            why = "no connection" if event.code is None else f"connection closed ({event.code})"
            if event.code is not None and event.code < FIRST_CLOSE_CODE:
                why = "refused"
            text = f"{why}{f': {event.message}' if event.message else ''}"
        case "status":
            state = "live" if event.live else "not live: data may be out of date"
            text = f"{event.endpoint}  {state}" if event.endpoint else state
        case "resync":
            text = f"{event.endpoint}  resync: fetch it again"
        case _:
            text = f"{event.endpoint or 'server'}  {event.kind}: {event.message}"
    return text


def as_object(event: Event) -> dict[str, Any]:
    """Return an event in the form of ``--json``, without absent fields."""
    fields = {
        "event": event.kind,
        "endpoint": event.endpoint,
        "version": event.version,
        "gone": event.gone or None,
        "data": event.data,
        "live": event.live,
        "code": event.code,
        "message": event.message or None,
    }
    return {"at": datetime.now(UTC).isoformat(timespec="milliseconds")} | {
        name: value for name, value in fields.items() if value is not None
    }


def _time_of_day() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
