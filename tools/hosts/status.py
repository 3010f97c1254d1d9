"""Reads the status of a system's hosts, in the form of the status of ``diem up``."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import httpx

from diem.errors import ConfigurationError
from diem.links.internal_client import InternalTransport, fetch_status, internal_client
from diem.process.key_ring import KeyRing, KeyRole
from tools.hosts.keys import INTERNAL, role_file
from tools.hosts.output import DESCRIPTION

TIMEOUT_S: Final = 3.0
"""Longest wait for one process: its host may be down."""


class NoSystem(ConfigurationError):
    """A directory was not written by ``diem config``."""


def read_description(directory: Path) -> dict[str, Any]:
    """Return the placement by ``diem config`` (:func:`~tools.hosts.output.describe`).

    Raises:
        NoSystem: the directory has no such description.
    """
    try:
        described: dict[str, Any] = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8"))
        list(described["processes"])
    except (OSError, ValueError, LookupError, TypeError):
        raise NoSystem(f"--hosts {directory}: this is no directory of `diem config MODE --hosts ... --out`") from None
    return described


def metrics_key(directory: Path) -> Path:
    """Return the file of the key for the metrics and the status of all processes."""
    return directory / "keys" / role_file(KeyRole.METRICS)


class _OtherTransport(httpx.AsyncBaseTransport):
    """Transport to listeners of which a system's description has no address that other hosts reach."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("it listens for its own host alone", request=request)


def hosts_client(directory: Path, timeout: httpx.Timeout | float) -> httpx.AsyncClient:
    """Return an HTTP client of the internal listeners of all hosts, which proves each host's internal key.

    The children of composites give no answer: they listen for their own host alone.

    Raises:
        ConfigurationError: the directory has no description of a system, or not the key of a host.
    """
    placed = [each for each in read_description(directory)["processes"] if each["urls"]["internal"]]
    keys = {
        label: KeyRing.load(directory / "hosts" / label / "keys" / INTERNAL)
        for label in {each["host"] for each in placed}
    }
    transports = {each["urls"]["internal"]: InternalTransport(keys[each["host"]], KeyRole.ADMIN) for each in placed}
    return httpx.AsyncClient(mounts=transports, transport=_OtherTransport(), timeout=timeout, trust_env=False)


async def read_status(directory: Path) -> dict[str, Any]:
    """Return the status of all processes placed by ``diem config``; without an answer it is missing.

    Unresponsive spare ones are left out: they do not run unless started by somebody.

    Raises:
        ConfigurationError: the directory has no description of a system, or no key.
    """
    described = read_description(directory)
    key = KeyRing.load(metrics_key(directory))
    async with internal_client(key, TIMEOUT_S, role=KeyRole.METRICS) as http:

        async def read(process: dict[str, Any]) -> dict[str, Any]:
            internal = process["urls"]["internal"]
            report = await fetch_status(http, internal) if internal else None
            found = {"state": "no answer", "pid": None, "uptime_seconds": 0.0, "restarts": None, "report": report}
            if report is not None:
                found |= {name: report[name] for name in ("pid", "uptime_seconds") if name in report}
                found["state"] = "running"
            elif internal is None and await _listens(process["address"]):
                found["state"] = "listening"
            return {**process, **found, "name": f"{process['name']} on {process['host']}"}

        found = await asyncio.gather(*map(read, described["processes"]))
        placed = {**described, "up": True, "uptime_seconds": None}
        return {**placed, "processes": [each for each in found if each["report"] or not each.get("spare")]}


async def _listens(address: str) -> bool:
    """Return whether connections to an address with a port are accepted."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
