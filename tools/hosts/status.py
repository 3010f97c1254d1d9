"""Reads the status of a system's hosts, in the form of the status of ``diem up``."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from diem.errors import ConfigurationError
from diem.links.internal_client import fetch_status, internal_client
from diem.process.key_ring import KeyRing, KeyRole
from tools.hosts.keys import role_file
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
            found = {"state": "running", "pid": None, "uptime_seconds": 0.0, "restarts": "-", "report": report}
            if internal is None:
                found["state"] = "listening" if await _listens(process["address"]) else "no answer"
            elif report is not None:
                found |= {name: report[name] for name in ("pid", "uptime_seconds") if name in report}
            return {**process, **found, "name": f"{process['name']} on {process['host']}"}

        found = await asyncio.gather(*map(read, described["processes"]))
        return {**described, "processes": [each for each in found if each["report"] or not each.get("spare")]}


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
