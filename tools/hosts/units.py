"""Files of a host made from templates: systemd's units, their install script, and the texts.

All processes of a host are instances of one unit, ``diem@.service``. Keys are files in the state directory, not
credentials of systemd (``LoadCredential=``): processes reload a changed key without a restart, and change some
themselves.
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.topology import Planned
from learning.costs import SERVER_LIMITS
from tools.hosts.assignment import NGINX_DIR, Installation

TEMPLATES: Final = Path(__file__).with_name("templates")
UNIT: Final = "diem@.service"
TARGET: Final = "diem.target"
WRITTEN: Final = "# Written by `diem config`: run it again instead of changing this file."
STOP_GRACE_S: Final = 10
"""Seconds after the drain time until systemd kills a process."""
MEMORY_MIB: Final = {"data": 2048, "composite": 4096, "nginx": 512, "websocket": int(SERVER_LIMITS.memory_bytes) >> 20}
"""Memory limit of a process (``MemoryMax=``), by kind, for some ten thousand clients or endpoints."""
OTHER_MEMORY_MIB: Final = 1024
WATCHDOG_S: Final = 15
"""Seconds without a heartbeat after which systemd kills a process (``WatchdogSec=``). More than with ``diem up``:
systemd's clock runs on while everything else is suspended."""
ABORT_S: Final = 2
"""Seconds from the watchdog's SIGABRT to SIGKILL."""
SINGLE_MACHINE_UNIT: Final = Path(__file__).parents[2] / "deploy" / "systemd" / "diem.service"
LOWEST_FREE_PORT: Final = 1024
"""Lower ports need a capability."""
SYSTEM_STATE: Final = Path("/var/lib")


def unit_name(process: str) -> str:
    """Return the name of the unit of a process."""
    return f"diem@{process}.service"


def fill(template: str, installation: Installation, **values: object) -> str:
    """Return a template with the paths of an installation, and other values by name, in place of ``<name>``."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name in ("user", "state_dir", "config_dir"):
        values[name] = getattr(installation, name)
    return re.sub(r"<(\w+)>", lambda found: str(values[found[1]]), text)


def render_unit(installation: Installation, drain_s: float) -> str:
    """Return the unit of all processes; ``drain_s`` is the time for clients to leave, in seconds."""
    state = installation.state_dir
    below = state.relative_to(SYSTEM_STATE) if state.is_relative_to(SYSTEM_STATE) else None
    return fill(
        UNIT,
        installation,
        watchdog_s=WATCHDOG_S,
        abort_s=ABORT_S,
        stop_s=f"{drain_s + STOP_GRACE_S:g}",
        writable=f"StateDirectory={below}\nStateDirectoryMode=0700" if below else f"ReadWritePaths={state}",
        restrictions=restrictions(),
    )


def render_drop_in(planned: Planned, others: Sequence[Planned], installation: Installation) -> str:
    """Return a process's own part: it starts after those of ``others``, all of its host, that it needs."""
    after = [unit_name(each.name) for each in others if each.stage < planned.stage]
    most = MEMORY_MIB.get(planned.process, OTHER_MEMORY_MIB)
    is_privileged = (planned.ports.public or LOWEST_FREE_PORT) < LOWEST_FREE_PORT
    lines = [
        WRITTEN,
        *(["[Unit]", f"After={' '.join(after)}"] if after else []),
        "[Service]",
        f"ExecStart={' '.join(planned.argv)}",
        f"MemoryHigh={most * 3 // 4}M",
        f"MemoryMax={most}M",
        *([fill("nginx.conf", installation, nginx_dir=NGINX_DIR.name).strip()] if planned.process == "nginx" else []),
        *(["# Ports below 1024.", privileged_port()] if is_privileged else []),
    ]
    return "\n".join(lines) + "\n"


def render_target(host: str, active: Sequence[Planned]) -> str:
    """Return the target that starts and stops all non-spare processes of a host."""
    wanted = " ".join(unit_name(each.name) for each in active)
    return f"{WRITTEN}\n[Unit]\nDescription=DIEM on {host}\nWants={wanted}\n\n[Install]\nWantedBy=multi-user.target\n"


@functools.cache
def restrictions() -> str:
    """Return the part of ``diem.service`` on privileges, files, kernel and users; without Java, memory as well."""
    text = SINGLE_MACHINE_UNIT.read_text(encoding="utf-8")
    found = text[text.index("# Privileges") : text.index("[Install]")].strip()
    return re.sub(r"\n(?:#[^\n]*\n)+MemoryDenyWriteExecute=no", "\nMemoryDenyWriteExecute=yes", found)


@functools.cache
def privileged_port() -> str:
    """Return the lines that allow ports below ``LOWEST_FREE_PORT``, overriding the restrictions above them."""
    text = SINGLE_MACHINE_UNIT.with_name("privileged-port.conf").read_text(encoding="utf-8")
    return text.partition("[Service]\n")[2].strip()
