"""Clients that need a token, and accepted tokens: one policy for all processes of a system; pure.

Servers behind a proxy and the metadata service listen on this machine, too: one with a weaker rule than the proxy would
be a way around it. So the variable of any of these processes is a setting of all.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.topology.public_address import BadTopology
from diem.process.modes import ACCESS
from diem.process.settings import parse_collection
from services.data.access.plans import ANONYMOUS

PROCESSES: Final = ("websocket", "proxy", "composite", "metadata")
"""Processes with clients, whether or not a mode has them."""
READS: Final = "DIEM_DATA_ANONYMOUS_READS"
DATA: Final = "ANONYMOUS_DATA"
"""Setting of processes that send updates."""
VARIABLES: Final = {
    f"DIEM_{process.upper()}_{name}": name
    for process in PROCESSES
    for name in (*ACCESS, DATA)
    if name != DATA or process != "metadata"
}
"""Setting by variable."""


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """The operator's policy on clients."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Values of variables by their names in ``ACCESS``, without the keys."""
    token_keys: tuple[str, ...] = ()
    """Files and URLs of keys, besides those of the Data Service."""
    anonymous_reads: str = "auto"
    """True if readers of the Data Service need no key."""
    data: str | None = None
    """Which clients may be sent data without a token; None: those that may read it without a key."""
    anonymous_plan: bool = False
    """Readers without a key have a plan: endpoints and quotas that only the Data Service knows."""

    @property
    def anonymous(self) -> str:
        """Clients exempt from tokens."""
        return self.settings.get("ANONYMOUS", "auto")

    def anonymous_data(self, *, trusts_loopback: bool) -> str:
        """Return which clients may be sent data without a token: as set, else those that may read it without a key."""
        if self.data is not None:
            return self.data
        if self.anonymous_plan or (self.anonymous_reads == "auto" and not trusts_loopback):
            return "off"
        return self.anonymous_reads

    def values(self, own_keys: Sequence[str], *, trusts_loopback: bool) -> dict[str, str]:
        """Return the values of the settings for a process.

        Args:
            own_keys: files or URLs with the keys of the Data Service.
            trusts_loopback: clients with an address of this machine need no token, unless something else is set.
        """
        closed = {"ANONYMOUS": "off"} if self.anonymous == "auto" and not trusts_loopback else {}
        return {**self.settings, **closed, "TOKEN_KEYS": json.dumps([*own_keys, *self.token_keys])}


def client_access(
    environ: Mapping[str, str], anonymous: str | None = None, *, anonymous_plan: bool = False
) -> ClientAccess:
    """Return what the environment of ``diem up`` says; ``anonymous`` is that of the command line, which has priority.

    ``off`` is for readers of the Data Service, too, unless they have a setting of their own.

    Raises:
        BadTopology: variables of two processes differ, or keys are not a list.
    """
    given: dict[str, tuple[str, str]] = {}
    found = {name.upper(): value for name, value in environ.items()}
    for variable, name in VARIABLES.items():
        value = found.get(variable)
        if not value or (name == "ANONYMOUS" and anonymous is not None):
            continue
        first, before = given.setdefault(name, (variable, value))
        if before != value:
            raise BadTopology(f"{first} and {variable} differ: all processes must have the same setting")
    keys = _locations(*given.pop("TOKEN_KEYS", ("", "[]")))
    settings = {name: value for name, (_, value) in given.items()}
    if anonymous is not None:
        settings["ANONYMOUS"] = anonymous
    reads = found.get(READS) or ("off" if settings.get("ANONYMOUS") == "off" else "auto")
    return ClientAccess(settings, keys, reads, settings.pop(DATA, None), anonymous_plan)


def has_anonymous_plan(config: Path | None) -> bool:
    """Return whether a diem.toml has a plan for readers without a key; faults are for the Data Service to report."""
    try:
        plans = tomllib.loads(config.read_text(encoding="utf-8-sig")).get("plan", []) if config is not None else []
    except (OSError, ValueError):
        return False
    return any(isinstance(plan, dict) and plan.get("name") == ANONYMOUS for plan in plans)


def _locations(variable: str, text: str) -> tuple[str, ...]:
    try:
        keys = parse_collection(text, list[str])
    except ValueError:
        keys = None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise BadTopology(f"{variable}: a list of files and URLs is needed")
    return tuple(keys)
