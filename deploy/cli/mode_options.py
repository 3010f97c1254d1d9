"""Options shared by the commands that run a mode: ``diem up`` here, ``diem config --hosts`` on several hosts.

Options with different meanings, such as paths on the hosts, are declared with the commands.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy import topology as plan
from deploy.cli.system_table import read_defaults
from diem.process.edge_settings import Anonymous
from diem.process.settings import by_process


def servers_option(default: str, **more: Any) -> Any:  # noqa: ANN401  # as typer.Option, of which each command makes its own
    """Return the option of the number of servers; ``default`` completes a sentence, here and below."""
    return typer.Option(help=f"WebSocket servers, in each clone or composite. Default: {default}.", **more)


def max_servers_option(default: str) -> Any:  # noqa: ANN401
    """Return the option of the maximum number of servers."""
    return typer.Option(
        hidden=True,
        help="Most servers, in mode xz composites, that there may be without a new start: proxies and nginx are "
        f"prepared for them. Default: {default}.",
    )


def clones_option(composites: str) -> Any:  # noqa: ANN401
    """Return the option of the number of groups; ``composites`` is the default number in mode xz."""
    return typer.Option(
        hidden=True,
        help="Groups that each hold every endpoint: groups of servers in z-client (default: 1), composites in xz "
        f"(default: {composites}).",
    )


def traffic_option(otherwise: str) -> Any:  # noqa: ANN401
    """Return the option of the traffic's destination; ``otherwise`` is the default in modes without Kafka."""
    return typer.Option(
        hidden=True,
        envvar="DIEM_TRAFFIC_SINK",
        help=f"Where clients' subscriptions are recorded. Default: kafka in the modes that use it, else {otherwise}.",
    )


def _check_proxy(value: str | None) -> str | None:
    """Accept the default of the last release."""
    if value not in {None, "shared"}:
        raise typer.BadParameter(f"{value} has ended: proxies share one connection to each server; drop the option")
    return value


ProxyOption = Annotated[
    str | None,
    typer.Option(hidden=True, callback=_check_proxy, help="Only shared, as all proxies are."),
]
HotOption = Annotated[
    list[str] | None,
    typer.Option(
        hidden=True,
        metavar="ENDPOINT",
        help="An endpoint to hold on every server, in partitioned modes. Repeatable.",
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Port of the page and of REST; behind nginx, of everything."),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option(hidden=True, metavar="FILE", help="Private key of the certificate. Default: in the same file."),
]
OriginOption = Annotated[
    list[str] | None,
    typer.Option(
        hidden=True,
        metavar="URL",
        help="Origin whose pages may connect and read: https://NAME of the page, if it is no name of the "
        "certificate, or http://localhost:5173 of a dev server. Repeatable.",
    ),
]
FrontProxyOption = Annotated[
    list[str] | None,
    typer.Option(
        hidden=True,
        metavar="CIDR",
        help="Proxy or TLS terminator in front, whose X-Forwarded-For is trusted. Repeatable.",
    ),
]
AnonymousOption = Annotated[
    Anonymous | None,
    typer.Option(
        hidden=True,
        help="Clients that need no token: all of them, none, or (auto) those on the same machine, which are none "
        "behind --front-proxy. off is for reads, too, without DIEM_DATA_ANONYMOUS_READS. Default: auto.",
    ),
]
ClientsPerAddressOption = Annotated[
    int | None,
    typer.Option(
        hidden=True,
        envvar=["DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS", "DIEM_CONNECTIONS_PER_ADDRESS"],
        min=1,
        max=100_000,
        help="Clients of one address that a server or proxy takes. Default: 50; from the same machine any number, "
        "unless others may connect, too.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME:VARIABLE=VALUE",
        help="A setting for one process, such as websocket-1:DIEM_LOG_LEVEL=debug (see `diem config`). Repeatable.",
    ),
]
LogLevelOption = Annotated[
    str,
    typer.Option(
        hidden=True, envvar="DIEM_LOG_LEVEL", metavar="LEVEL", help="Level of the logs: debug, info, warning or error."
    ),
]
DrainSecondsOption = Annotated[
    float,
    typer.Option(
        hidden=True, envvar="DIEM_DRAIN_SECONDS", min=0, max=600, help="Time that clients get to leave before a stop."
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Data sources. Default: ./diem.toml if it exists, else a simulated market.",
    ),
]
"""For the file found by :func:`config_file`."""
SystemOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        is_eager=True,
        callback=lambda context, value: read_defaults(context, config_file(value)) or value,
        help="Data sources and options. Default: ./diem.toml if it exists, else a simulated market.",
    ),
]
"""The same, with a table ``[system]`` of defaults for the command's options."""


def clients_of(
    public: plan.PublicAddress,
    front_proxy: list[str] | None,
    anonymous: Anonymous | None,
    per_address: int | None,
    sources: Path | None,
) -> plan.Clients:
    """Return the admission rules by these options, the environment and a diem.toml's plans. Raises ``BadTopology``.

    Clients of other machines connect with TLS.
    """
    proxies = plan.parse_networks(front_proxy or [], "--front-proxy")
    public = replace(public, behind_proxy=bool(proxies))
    public.check()
    environ = by_process(os.environ)
    return plan.Clients(
        public,
        origins=plan.origins_in(environ, plan.CLIENT_ORIGINS),
        readers=plan.origins_in(environ, ["DIEM_DATA_CORS_ORIGINS"]),
        front_proxies=proxies,
        access=plan.client_access(environ, anonymous, anonymous_plan=plan.has_anonymous_plan(sources)),
        per_address=per_address,
    )


def config_file(given: Path | None) -> Path | None:
    """Return the diem.toml for the Data Service of ``diem up``; None: the built-in one."""
    if given is not None:
        return given
    local, named = Path("diem.toml"), by_process(os.environ).get("DIEM_DATA_CONFIG")
    return Path(named) if named else local if local.is_file() else None


def read_config(file: Path) -> str:
    """Return the text of a diem.toml; raise ``ConfigurationError`` with all faults.

    From a process's log only the last line would be shown.
    """
    from services.data.sources.config import load  # noqa: PLC0415  # only where there is a file

    load(file)
    return file.read_text(encoding="utf-8-sig")
