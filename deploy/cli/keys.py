"""The commands ``diem keys`` (API keys, write keys, files of internal keys) and ``diem tokens`` (signing keys)."""

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.cli.options import StateDirOption, run_change, run_interactive
from deploy.cli.times import parse_span
from deploy.clients.data_service import AdminService, admin_service
from deploy.system.state_dir import NotUp, StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console, plain_table
from diem.errors import ConfigurationError
from diem.process.key_ring import KeyRing

InternalOption = Annotated[
    str | None,
    typer.Option("--data", help="Base URL of a Data Service's internal listener. Default: that of `diem up`."),
]
KeyFileOption = Annotated[
    Path | None, typer.Option(help="File of the internal key, or of the admin key. Default: the state directory's.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Create, list and revoke API keys and write keys; make the keys of a new system."
    )
    group.command("create")(create_command)
    group.command("list")(list_command)
    group.command("revoke")(revoke_command)
    group.command("internal")(internal_command)
    cli.add_typer(group, name="keys")
    tokens = typer.Typer(no_args_is_help=True, help="List and rotate the keys that sign client tokens.")
    tokens.command("keys")(signing_keys_command)
    tokens.command("rotate")(rotate_command)
    cli.add_typer(tokens, name="tokens")


def create_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use the key.")],
    *,
    plan: Annotated[
        str | None, typer.Option(help="Plan of an API key: a [[plan]] in the Data Service's diem.toml.")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Create a write key instead; it has no plan.")] = False,
    prefix: Annotated[
        list[str] | None,
        typer.Option(help="An endpoint that a write key may write, with all below it. Default: all. Repeatable."),
    ] = None,
    rate: Annotated[int | None, typer.Option(help="Changes a minute that a write key may make.", min=1)] = None,
    endpoints: Annotated[
        int | None,
        typer.Option(
            help="Endpoints that a write key may have below its prefixes. Default with --prefix: 1000.", min=1
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of pages that may use an API key, as https://app.example. Default: all. Repeatable."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="How long the key is valid, such as 90d. Default: until it is revoked.")
    ] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """Create an API key or a write key and print it; it is shown only once."""

    async def create() -> None:
        lists = {"prefixes": prefix or [], "origins": origin or []}
        terms = _terms(plan, write=write, **lists, rate=rate, endpoints=endpoints, expires=expires)
        made = await local_admin(state_dir, data, key_file).create(name, **terms)
        if as_json:
            typer.echo(json.dumps(made))
            return
        typer.echo(made["key"])
        end = f", until {_second(made['expires'])}" if made["expires"] else ""
        typer.echo(f"key {made['id']} of {made['name']} ({_purpose(made)}{end}): it is not shown again", err=True)

    return run_change(create)


def _terms(
    plan: str | None,
    *,
    write: bool,
    prefixes: list[str],
    origins: list[str],
    rate: int | None,
    endpoints: int | None,
    expires: str | None,
) -> dict[str, Any]:
    """Return the fields of a request for a key. Raises ``ConfigurationError`` for mutually exclusive options."""
    lifetime = {} if expires is None else {"lifetime_seconds": max(1, parse_span(expires) // 1000)}
    if write:
        if plan is not None:
            raise ConfigurationError("a write key has no plan: use either --write or --plan")
        if origins:
            raise ConfigurationError("--origin is for API keys, which pages have: a write key has no origins")
        limits = {"per_minute": rate, "endpoints": endpoints}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        return {"writes": True, "prefixes": prefixes, **given, **lifetime}
    if prefixes or rate is not None:
        raise ConfigurationError("--prefix and --rate are for write keys: use --write, or a plan with these limits")
    if endpoints is not None:
        raise ConfigurationError("--endpoints is for write keys: use --write")
    if plan is None:
        raise ConfigurationError("an API key needs --plan, a write key --write")
    pages = {"origins": origins} if origins else {}
    return {"plan": plan, **pages, **lifetime}


def _purpose(key: dict[str, Any]) -> str:
    if not key["writes"]:
        pages = f", pages of {' '.join(key['origins'])}" if key.get("origins") else ""
        return f"plan {key['plan']}{pages}"
    rate = f", {key['per_minute']} a minute" if key["per_minute"] else ""
    bound = f", {key['endpoints']} endpoints" if key.get("endpoints") else ""
    return f"writes {' '.join(key['prefixes']) or 'all'}{rate}{bound}"


def list_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """List API keys and write keys, without their secrets."""

    async def show() -> None:
        found = await local_admin(state_dir, data, key_file).all()
        if as_json:
            typer.echo(json.dumps(found))
            return
        table = plain_table("id", "name", "for", "created", "last used", "expires", "revoked", wrap=("name", "for"))
        for key in found["keys"]:
            times = (_second(key["created"]), _minute(key["last_used"]), _second(key["expires"]))
            table.add_row(key["id"], key["name"], _purpose(key), *times, _second(key["revoked"]))
        plain_console().print(table if found["keys"] else "there are no keys")

    return run_interactive(show)


def revoke_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The 8 characters after diem_; see `diem keys list`.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """Revoke a key, with immediate effect."""

    async def revoke() -> None:
        revoked = await local_admin(state_dir, data, key_file).revoke(key_id)
        text = f"key {revoked['id']} of {revoked['name']} was revoked at {_second(revoked['revoked'])}"
        typer.echo(json.dumps(revoked) if as_json else text)

    return run_change(revoke)


PURPOSES: Final = {
    "internal.key": "for every process; keep it from everybody else",
    "metrics.key": "for every process, and for monitoring",
    "write.key": "for the Data Service, and for programs that may write everything",
    "traffic.salt": "for every process that records traffic",
}
"""Users of the files of ``StateDir.shared_key_files``."""
ROLE_PURPOSES: Final = {
    "feed.key": "for the Data Service, and in place of internal.key for servers, bridges, proxies and composites",
    "metadata.key": "for servers, proxies and the metadata service",
    "plans.key": "in place of internal.key for the metadata service, and for commands about plans",
}
"""Users of the files of ``StateDir.role_key_files``."""


def internal_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where they are made, such as a state directory.")
    ] = DEFAULT_STATE_DIR,
    *,
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="Also make keys that open less than the internal key, for processes that do not get that."
        ),
    ] = False,
) -> None:
    """Make the keys that the processes of a system share, each in a file of mode 0600, where they are missing.

    `diem up` makes them itself. For processes that you start with `diem run` make them once, and copy them to every
    machine. What is there is checked and kept.
    """
    state = StateDir(directory)
    made = state.create_keys(with_roles=roles)
    purposes = PURPOSES | (ROLE_PURPOSES if roles else {})
    width = max(map(len, purposes))
    for name, purpose in purposes.items():
        verb = "made" if directory.absolute() / name in made else "kept"
        typer.echo(f"{verb}  {name:{width}}  {purpose}")


def signing_keys_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the keys that sign client tokens, without their secrets."""

    async def show() -> None:
        found = await local_admin(state_dir, data, key_file).signing_keys()
        if as_json:
            typer.echo(json.dumps(found))
            return
        table = plain_table("id", "algorithm", "created", "state", "until")
        for key in found["keys"]:
            times = (_second(key["created"]), key["state"], _second(key["until"]))
            table.add_row(key["kid"], key["algorithm"], *times)
        plain_console().print(table)

    return run_interactive(show)


def rotate_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """Replace the key that signs client tokens. Tokens signed by the old one stay valid until they expire."""

    async def rotate() -> None:
        made = await local_admin(state_dir, data, key_file).rotate()
        text = f"key {made['kid']} is published and signs tokens from {_second(made['until'])}"
        typer.echo(json.dumps(made) if as_json else text)

    return run_change(rotate)


def local_admin(state_dir: Path, url: str | None, key_file: Path | None) -> AdminService:
    """Return the administration of a Data Service, by the options of the commands.

    Raises:
        NotUp: neither an address nor a key is given, and the state directory has no keys.
        BadKeyFile, BadUrl: the file or the address is invalid.
    """
    state = StateDir(state_dir)
    if url is None and key_file is None and not state.internal_key_file.exists():
        raise NotUp(state.path)  # usually a wrong directory, in which a missing key would mislead
    return admin_service(state, url, KeyRing.load(key_file or state.internal_key_file))


def _minute(time: str | None) -> str:
    return "-" if time is None else time[:16] + "Z"


def _second(time: str | None) -> str:
    return "-" if time is None else time[:19] + "Z"
