"""The command ``diem watch``."""

import base64
import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final

import typer

from deploy.cli.options import ApiKeyOption, StateDirOption, TokenOption, UrlOption, run_interactive
from deploy.clients.data_service import (
    DataService,
    DataServiceUnavailable,
    RequestRefused,
    ServiceRefused,
    data_service,
)
from deploy.clients.updates import ANONYMOUS, Credentials, client_of, credentials_of
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.client import CompletedEvents, EndpointSnapshot, Event, Fetch, FetchDelayed
from diem.errors import DiemError
from diem.protocol import endpoints
from diem.protocol.media_types import kind_of
from diem.protocol.update import iso

LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which a retry may succeed."""
FIRST_CLOSE_CODE: Final = 1000
"""Lower codes are HTTP statuses of refused handshakes."""
MAX_VALUE_CHARS: Final = 1000
"""Longest printed value; ``--json`` has all of it."""

Print = Callable[[str], None]


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("watch")(watch_command)


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


async def _unlisted(service: DataService, names: Sequence[str], credentials: Credentials) -> list[str]:
    """Return the endpoints missing in the catalogue, collections apart; none if the token gives no access to it."""
    try:
        listed = await service.endpoints(credentials.bearer())
    except ServiceRefused:
        # Servers accept tokens of other issuers, the Data Service only its own.
        if credentials.token_file is None:
            raise
        return []
    return [name for name in names if name not in listed and not endpoints.is_collection(name)]


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
        ServiceRefused: it refuses the API key, or anonymous access.
        DiemError: the server does not accept this client again.
    """
    token = credentials.token_function(service)
    edges = await service.edges()
    if not edges.servers:
        raise DataServiceUnavailable(service.base, "its configuration has no WebSocket server")
    for name in await _unlisted(service, names, credentials):
        note(f"{name} is not in the catalogue yet: watching it anyway")
    for name in names:
        if with_data and endpoints.is_collection(name):
            note(f"{name} is a collection, whose data are its members: for the value of one, watch {name}NAME")
    printer = EventPrinter(write, note, as_json=as_json)
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
            printer.print(event)
            # The first status of the next connection is always news.
            closed, live = (event, None) if event.kind == "closed" else (closed, live)
    code, reason = (closed.code, closed.message) if closed else (None, "")
    raise DiemError(f"the server closed the connection ({code}{': ' if reason else ''}{reason})")


def _fetch_with(service: DataService, credentials: Credentials) -> Fetch:
    """Return a function that requests data."""

    async def fetch(endpoint: str, version: int | None) -> EndpointSnapshot | None:
        try:
            content = await service.get(credentials.bearer(), endpoint, version)
        except RequestRefused as error:
            if version is not None and error.status == HTTPStatus.NOT_FOUND:
                return None  # this version is not kept
            if error.status in LATER:
                raise FetchDelayed(str(error)) from error
            raise
        except DataServiceUnavailable as error:
            raise FetchDelayed(str(error)) from error
        try:
            return EndpointSnapshot.of_answer(content.headers, content.body)
        except ValueError as error:
            raise DataServiceUnavailable(service.base, str(error)) from error

    return fetch


class EventPrinter:
    """Prints events: updates with ``write``, other ones with ``note``; as JSON, all with ``write``."""

    def __init__(self, write: Print, note: Print, *, as_json: bool) -> None:
        self._write = write
        self._note = note
        self._as_json = as_json
        self._last = ""
        self._members: dict[str, Collection[str]] = {}
        """Of each collection, as printed last."""

    def print(self, event: Event) -> None:
        """Print an event; repeated ones, such as failed attempts to connect, once."""
        if self._as_json:
            self._write(json.dumps(as_object(event)))
            return
        name = event.endpoint or ""
        text = describe(event, self._members.get(name))
        if event.kind == "update":
            if event.gone:
                self._members.pop(name, None)
            elif event.has_value and kind_of(event.media_type) == "collection":
                self._members[name] = frozenset(event.value["members"])
            self._write(f"{_time_of_day()}  {text}")
        elif text != self._last:
            self._note(f"{_time_of_day()}  {text}")
        self._last = text


def describe(event: Event, members: Collection[str] | None = None) -> str:
    """Return an event as one line for people; ``members``: of the collection before, None if unknown."""
    match event.kind:
        case "update":
            version = event.version or 0
            text = f"{event.endpoint}  {'gone' if event.gone else 'version'} {version}  {event.time or iso(version)}"
            if event.has_value:
                text += f"  {_shortened(describe_value(event, members))}"
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


def describe_value(event: Event, members: Collection[str] | None = None) -> str:
    """Return the value of an update as text without control characters."""
    value = event.value
    match kind_of(event.media_type):
        case "series":
            values = (point["value"] for point in value["points"])
            text = f"{value['unit']}: {' '.join('-' if each is None else str(each) for each in values)}"
        case "notice":
            text = str(value.get("url") or "changed")
        case "collection":
            text = _describe_members(event.endpoint or "", value["members"], members)
        case "bytes" if not isinstance(value, str):
            text = f"{event.media_type}, {len(value):,} bytes"
        case _:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Of others: it must not control the terminal.
    return "".join(each if each.isprintable() else " " for each in text)


def _describe_members(collection: str, now: Collection[str], before: Collection[str] | None) -> str:
    def names(chosen: Collection[str]) -> str:
        return " ".join(name.removeprefix(collection) for name in sorted(chosen))

    if before is None:
        return f"members: {names(now)}"
    changes = ("added", set(now) - set(before)), ("removed", set(before) - set(now))
    return ", ".join(f"{what}: {names(chosen)}" for what, chosen in changes if chosen) or f"members: {names(now)}"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"


def as_object(event: Event) -> dict[str, Any]:
    """Return an event in the form of ``--json``, without absent fields; bytes are base64, as in updates."""
    fields: dict[str, object] = {
        "event": event.kind,
        "endpoint": event.endpoint,
        "version": event.version,
        "time": event.time or None,
        "gone": event.gone or None,
        "media_type": event.media_type or None,
        "live": event.live,
        "code": event.code,
        "message": event.message or None,
    }
    found: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds")}
    found |= {name: value for name, value in fields.items() if value is not None}
    if not event.has_value:
        return found
    if isinstance(event.value, bytes):
        return found | {"value": base64.b64encode(event.value).decode(), "encoding": "base64"}
    return found | {"value": event.value}


def _time_of_day() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
