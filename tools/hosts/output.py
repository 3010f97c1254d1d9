"""Writes the files of all hosts into a directory: only changed ones, and keys only once."""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from diem.errors import ConfigurationError
from diem.process.private_files import replace_private
from tools.hosts import readme
from tools.hosts.assignment import HostedSystem
from tools.hosts.files import PRIVATE, HostFile, host_files
from tools.hosts.keys import make_keys
from tools.hosts.units import WRITTEN

DESCRIPTION: Final = "system.json"
"""Description of the placement, for ``diem status --hosts``."""


class Changes(NamedTuple):
    """Files that were written and removed, relative to the directory."""

    written: list[str]
    removed: list[str]


def write_system(system: HostedSystem, out: Path, database_url: str | None, sources: str | None) -> Changes:
    """Write changed files; remove files of earlier runs that are no longer needed.

    Raises:
        ConfigurationError: a file cannot be written, or an existing key cannot be used.
    """
    planned = {
        **{
            f"hosts/{host.label}/{file.path}": file
            for host in system.hosts
            for file in host_files(system, host, database_url, sources)
        },
        readme.NAME: HostFile(readme.NAME, readme.render_readme(system)),
        DESCRIPTION: HostFile(DESCRIPTION, f"{json.dumps(describe(system), indent=2)}\n"),
    }
    written = []
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, file in planned.items():
            if _write(out / name, file):
                written.append(name)
        removed = [name for name in _of_earlier_runs(out) if name not in planned]
        for name in removed:
            (out / name).unlink()
    except OSError as error:
        raise ConfigurationError(f"{error.filename or out}: {error.strerror}") from error
    keys = make_keys(system, out)
    written += [str(path.relative_to(out)) for path in keys if path.exists()]
    removed += [str(path.relative_to(out)) for path in keys if not path.exists()]
    return Changes(written, removed)


def describe(system: HostedSystem) -> dict[str, Any]:
    """Return the placement in the form of the status of ``diem up``, without the processes' reports."""
    wanted = system.wanted
    return {
        "mode": str(system.topology.mode),
        "urls": {"page": f"{readme.page_of(system)}/"},
        "processes": [
            {
                "name": each.name,
                "process": each.process,
                "clone": each.clone,
                "host": system.host_of[each.name].label,
                "address": each.ports.public_address,
                "urls": {"public": each.public_url, "internal": each.internal_url},
                **({} if each.name in wanted else {"spare": True}),
            }
            for host in system.hosts
            for each in system.processes(host)
        ],
    }


def _write(path: Path, file: HostFile) -> bool:
    content = file.content.encode()
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    if mode is not None and path.read_bytes() == content and mode == file.mode:
        return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_private(path, content)
    if file.mode != PRIVATE:
        path.chmod(file.mode)
    return True


def _of_earlier_runs(out: Path) -> list[str]:
    """Return the files below ``hosts`` written by this command; others are left alone."""
    found = []
    for path in sorted((out / "hosts").glob("*/*/*")):
        if path.parent.name in {"etc", "systemd"} and path.is_file():
            with path.open("rb") as file:
                if file.readline().startswith(WRITTEN.encode()):
                    found.append(str(path.relative_to(out)))
    return found
