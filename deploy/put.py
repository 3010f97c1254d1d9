"""`diem put`: stores a file as the data of an endpoint."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from deploy.found import DataService
from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.process.faults import ConfigurationError

MAX_BYTES: Final = 1024 * 1024
"""The Data Service's own limits are lower; this one keeps a wrong file out of memory."""
TYPES: Final = {"json": "application/json", "csv": "text/csv"}


class Upload(NamedTuple):
    """What is stored: `form` is a key of `TYPES`, `declared` the unit and resolution where CSV does not say them."""

    content: bytes
    form: str
    declared: dict[str, str]


@dataclass(eq=False)
class UnusableFile(ConfigurationError):
    """The file cannot be read or is too large."""

    template = "{file}: {reason}"

    file: str
    reason: str


@dataclass(eq=False)
class RequestRefused(DiemError):
    """The Data Service did not do what was asked; `status` is the HTTP status, `detail` what it says.

    `outcome` is what the endpoint was not: stored, read or deleted.
    """

    template = "{endpoint} was not {outcome} ({status}): {detail}"

    endpoint: str
    outcome: str
    status: int
    detail: str


def read(file: str) -> bytes:
    """Return the content of a file, or of standard input for `-`. Raises `UnusableFile`."""
    try:
        if file == "-":
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise UnusableFile(file, f"larger than {MAX_BYTES} bytes")
    return content


def guess_form(file: str, content: bytes) -> str:
    """Return `json` or `csv` by the file's name, or else by how the content begins."""
    suffix = Path(file).suffix.lower().removeprefix(".")
    if suffix in TYPES:
        return suffix
    return "json" if content.lstrip()[:1] == b"{" else "csv"


async def put(service: DataService, key: SharedKey, endpoint: str, upload: Upload) -> dict[str, Any]:
    """Store data under a checked name and return the Data Service's answer.

    Raises:
        DataServiceUnavailable: the Data Service does not answer.
        RequestRefused: it answers something else than 200.
    """
    reply = await service.request(
        "PUT",
        f"/v1/data{endpoint}",
        content=upload.content,
        params=upload.declared,
        headers={"Content-Type": TYPES[upload.form], "Authorization": key.header},
    )
    if reply.status_code != 200:
        raise refusal(endpoint, "stored", reply)
    answer: dict[str, Any] = reply.json()
    return answer


def refusal(endpoint: str, outcome: str, reply: httpx.Response) -> RequestRefused:
    """Return the error for an answer other than 200."""
    return RequestRefused(endpoint, outcome, reply.status_code, _detail(reply))


def _detail(reply: httpx.Response) -> str:
    """Return what a problem document says, in one line (RFC 9457)."""
    try:
        problem = reply.json()
        detail = str(problem.get("detail") or problem.get("title") or reply.reason_phrase)
        line = problem.get("line")
    except (ValueError, AttributeError):
        return reply.reason_phrase
    return " ".join(detail.split()) + (f" (line {line})" if line and f"line {line}" not in detail else "")
