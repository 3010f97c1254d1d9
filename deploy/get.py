"""`diem get` and `diem delete`: read an endpoint's data, and remove it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from deploy.found import DataService
from deploy.put import TYPES, UnusableFile, refusal
from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.process.faults import ConfigurationError


@dataclass(eq=False)
class NotConfirmed(DiemError):
    """Whoever was asked does not want the endpoint deleted."""

    template = "{endpoint} was not deleted"

    endpoint: str


class NotInteractive(ConfigurationError):
    """A deletion has to be confirmed, and there is no terminal."""

    template = "there is no terminal to ask at: confirm the deletion with --yes"


async def get(service: DataService, key: SharedKey | None, endpoint: str, form: str, version: int | None) -> bytes:
    """Return the data of a checked name, now or as it was in a version that is kept.

    Args:
        service: where it is.
        key: an API key, or None to read as everybody may.
        endpoint: the name.
        form: a key of `TYPES`.
        version: None for the current one.

    Raises:
        DataServiceUnavailable: the Data Service does not answer.
        RequestRefused: it answers something else than 200.
    """
    reply = await service.request(
        "GET",
        f"/v1/data{endpoint}",
        params={} if version is None else {"version": version},
        headers={"Accept": TYPES[form]} | ({} if key is None else {"Authorization": key.header}),
    )
    if reply.status_code != 200:
        raise refusal(endpoint, "read", reply)
    return reply.content if reply.content.endswith(b"\n") else reply.content + b"\n"


def write(content: bytes, file: str) -> None:
    """Write to a file, or to standard output for `-`. Raises `UnusableFile`."""
    if file == "-":
        typer.echo(content, nl=False)
        return
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from error


async def delete(service: DataService, key: SharedKey, endpoint: str) -> dict[str, Any]:
    """Remove what is stored under a checked name, and return the Data Service's answer.

    Raises:
        DataServiceUnavailable: the Data Service does not answer.
        RequestRefused: it answers something else than 200.
    """
    reply = await service.request("DELETE", f"/v1/data{endpoint}", headers={"Authorization": key.header})
    if reply.status_code != 200:
        raise refusal(endpoint, "deleted", reply)
    answer: dict[str, Any] = reply.json()
    return answer


def confirm(service: DataService, endpoint: str, *, terminal: bool) -> None:
    """Ask whether an endpoint shall be deleted.

    Raises:
        NotInteractive: there is no terminal.
        NotConfirmed: the answer is no.
    """
    if not terminal:
        raise NotInteractive
    if not typer.confirm(f"Delete {endpoint} at {service.base}?", err=True):
        raise NotConfirmed(endpoint)
