"""Keys of a system on several hosts: created once, and copied to the hosts that need them.

Each host has its own ``internal.key``, valid for its processes only; access between hosts needs the key of a role
(docs/internals.md section 1.1). ``admin.key`` is for commands of the operator about the Data Service; those about plans
prove the internal key of the host with the metadata service, so that no other public host can make API keys.
"""

import os
from pathlib import Path
from typing import Final

from deploy.topology import Traffic
from diem.errors import ConfigurationError
from diem.process.auth import SharedKey, read_private
from diem.process.clock import SystemClock
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.private_files import replace_private
from services.data.access.signing import SigningKeys
from tools.hosts.assignment import HostedSystem
from tools.hosts.inventory import Host

INTERNAL: Final = "internal.key"
WRITE: Final = "write.key"
SALT: Final = "traffic.salt"
TOKENS: Final = "token-keys"
"""Directory of the signing keys of client tokens, shared with a stand-by."""
MAX_KEY_FILE_BYTES: Final = 16 * 1024


def needed_keys(system: HostedSystem, host: Host) -> list[str]:
    """Return the names of the common keys for a host's processes."""
    if not system.has(host, "data", "broadcast", "bridge", "websocket", "metadata", "proxy", "composite"):
        return []
    readers = system.has(host, "data", "websocket", "proxy", "composite")
    names = {
        role_file(KeyRole.FEED): True,
        # Each composite contains a metadata service.
        role_file(KeyRole.METADATA): "metadata" in system.ports and system.has(host, "metadata", "websocket", "proxy"),
        role_file(KeyRole.METRICS): True,
        role_file(KeyRole.ADMIN): system.has(host, "data"),
        WRITE: system.has(host, "data"),
        SALT: readers and system.options.traffic_sink is not Traffic.OFF,
        TOKENS: system.has(host, "data") and system.options.scaling.standbys > 0,
    }
    return [name for name, needed in names.items() if needed]


def role_file(role: KeyRole) -> str:
    """Return the name of the file with the key of a role."""
    return f"{role}.key"


def make_keys(system: HostedSystem, out: Path) -> list[Path]:
    """Create missing keys, and copy each host's into its directory; return the files written.

    Existing keys are kept: to replace one, change its file in the directory of common keys, and copy again.

    Raises:
        BadKeyFile: an existing key is unreadable, open to others, or not a key.
        ConfigurationError: a file cannot be written.
    """
    common = out / "keys"
    needed = {host.label: needed_keys(system, host) for host in system.hosts}
    # For the commands of the operator.
    wanted = {name for names in needed.values() for name in names} | {role_file(KeyRole.ADMIN)}
    changed: list[Path] = []
    try:
        for name in sorted(wanted):
            changed += _make(common / name)
        for host in system.hosts:
            directory = out / "hosts" / host.label / "keys"
            if needed[host.label]:
                changed += _make(directory / INTERNAL)
            for name in needed[host.label]:
                changed += _copy(common / name, directory / name)
            changed += _remove_others(directory, {INTERNAL, *needed[host.label]} if needed[host.label] else set())
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from error
    return changed


def _make(path: Path) -> list[Path]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    existed = path.exists()
    if path.name == TOKENS:
        SigningKeys(path, SystemClock()).load()
    elif not existed:
        SharedKey.create(path)
    elif path.name in {WRITE, SALT}:
        SharedKey.load(path)
    else:
        # During a key's replacement, its file has two.
        KeyRing.load(path)
    return [] if existed else [path]


def _copy(source: Path, target: Path) -> list[Path]:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if source.is_dir():
        copied = [path for file in sorted(source.iterdir()) for path in _copy(file, target / file.name)]
        return copied + _remove_others(target, {file.name for file in source.iterdir()})
    content = read_private(source, MAX_KEY_FILE_BYTES)
    if target.exists() and read_private(target, MAX_KEY_FILE_BYTES) == content:
        return []
    replace_private(target, content)
    return [target]


def _remove_others(directory: Path, names: set[str]) -> list[Path]:
    """Remove copies that a host no longer needs."""
    if not directory.is_dir():
        return []
    removed = [path for path in sorted(directory.iterdir()) if path.name not in names]
    for path in removed:
        if path.is_dir():
            _remove_others(path, set())
            path.rmdir()
        else:
            os.unlink(path)  # noqa: PTH108 - its errors name the file
    return removed
