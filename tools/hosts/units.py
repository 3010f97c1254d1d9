"""Units of systemd for the processes of one host; pure but for the restrictions, those of ``diem.service``.

Keys are files in the state directory, not credentials of systemd (``LoadCredential=``): processes read a changed key
again without a restart, and some are changed by the processes themselves.
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.topology import Planned
from tools.hosts.assignment import NGINX_DIR, Installation

TARGET: Final = "diem.target"
WRITTEN: Final = "# Written by `diem config`: run it again instead of changing this file."
LOCAL: Final = "local.env"
"""Variables of the operator, for all processes of a host; they override those written here."""
STOP_GRACE_S: Final = 10
"""Seconds beyond those for clients until systemd kills a process."""
MEMORY_MIB: Final = {"data": 2048, "composite": 4096, "nginx": 512}
"""Most memory of a process (``MemoryMax=``), by kind: for some ten thousand clients or endpoints."""
OTHER_MEMORY_MIB: Final = 1024
WATCHDOG_S: Final = 15
"""Seconds without a heartbeat after which systemd kills a process (``WatchdogSec=``). More than what ``diem up`` waits
for: systemd's clock runs on while nothing else does."""
ABORT_S: Final = 2
"""Seconds from SIGABRT, with which the watchdog ends a process, to SIGKILL."""
SINGLE_MACHINE_UNIT: Final = Path(__file__).parents[2] / "deploy" / "systemd" / "diem.service"
PRIVILEGED_PORT: Final = SINGLE_MACHINE_UNIT.with_name("privileged-port.conf")
LOWEST_FREE_PORT: Final = 1024
"""Lower ports need a capability."""
SYSTEM_STATE: Final = Path("/var/lib")


def unit_name(process: str) -> str:
    """Return the name of the unit of a process."""
    return f"diem-{process}.service"


def render_unit(planned: Planned, others: Sequence[Planned], installation: Installation, drain_s: float) -> str:
    """Return the unit of a process.

    Args:
        planned: the process.
        others: all processes of its host; those that it needs start before it, and stop after it.
        installation: where things are on the host.
        drain_s: time for clients to leave, in seconds.
    """
    after = [unit_name(each.name) for each in others if each.stage < planned.stage]
    own = _nginx if planned.process == "nginx" else _process
    lines = [
        f"{WRITTEN} A drop-in (systemctl edit) changes single lines.",
        "[Unit]",
        f"Description=DIEM, {planned.name}",
        "Wants=network-online.target",
        f"After={' '.join(['network-online.target', *after])}",
        f"PartOf={TARGET}",
        "# It is started again for as long as it takes.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        f"User={installation.user}",
        f"Group={installation.user}",
        *own(planned, installation),
        f"ExecStart={' '.join(planned.argv)}",
        "# Certificates are read again.",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "KillMode=mixed",
        f"TimeoutStopSec={drain_s + STOP_GRACE_S:g}",
        "Restart=on-failure",
        "RestartSec=2",
        "# Configuration errors: a restart would not mend them.",
        "RestartPreventExitStatus=2",
        "",
        "# Bounds. A client takes a descriptor, and two of nginx.",
        "LimitNOFILE=65536",
        "TasksMax=512",
        *_memory(planned.process),
        "# A process of several, such as a worker of nginx, is restarted alone.",
        "OOMPolicy=continue",
        "LimitCORE=0",
        "",
        *restrictions(),
        *(privileged_port() if (planned.ports.public or LOWEST_FREE_PORT) < LOWEST_FREE_PORT else ()),
        "",
        "[Install]",
        f"WantedBy={TARGET}",
    ]
    return "\n".join(lines) + "\n"


def render_target(host: str, active: Sequence[Planned]) -> str:
    """Return the target that starts and stops all processes of a host that are not spare."""
    lines = [
        WRITTEN,
        "[Unit]",
        f"Description=DIEM on {host}",
        f"Wants={' '.join(unit_name(each.name) for each in active)}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _process(planned: Planned, installation: Installation) -> list[str]:
    state, config = installation.state_dir, installation.config_dir
    below = state.relative_to(SYSTEM_STATE) if state.is_relative_to(SYSTEM_STATE) else None
    writable = [f"StateDirectory={below}", "StateDirectoryMode=0700"] if below else [f"ReadWritePaths={state}"]
    return [
        "# Its event loop sends heartbeats; one that hangs is replaced.",
        "Type=notify",
        f"WatchdogSec={WATCHDOG_S}",
        f"TimeoutAbortSec={ABORT_S}",
        *writable,
        f"WorkingDirectory={state}",
        f"Environment=HOME={state}",
        f"EnvironmentFile={config / planned.name}.env",
        f"EnvironmentFile=-{config / LOCAL}",
    ]


def _nginx(_planned: Planned, _installation: Installation) -> list[str]:
    return ["Type=exec", f"RuntimeDirectory={NGINX_DIR.name}", "RuntimeDirectoryMode=0700"]


def _memory(process: str) -> list[str]:
    most = MEMORY_MIB.get(process, OTHER_MEMORY_MIB)
    return [f"MemoryHigh={most * 3 // 4}M", f"MemoryMax={most}M"]


@functools.cache
def restrictions() -> tuple[str, ...]:
    """Return the lines of ``diem.service`` on privileges, files, kernel and users; without Java, memory as well."""
    text = SINGLE_MACHINE_UNIT.read_text(encoding="utf-8")
    found = text[text.index("# Privileges") : text.index("[Install]")].strip()
    found = re.sub(r"\n(?:#[^\n]*\n)+MemoryDenyWriteExecute=no", "\nMemoryDenyWriteExecute=yes", found)
    return tuple(found.splitlines())


@functools.cache
def privileged_port() -> tuple[str, ...]:
    """Return the lines that allow ports below ``LOWEST_FREE_PORT``, which take the place of restrictions above them."""
    text = PRIVILEGED_PORT.read_text(encoding="utf-8")
    return ("", "# Ports below 1024.", *text[text.index("[Service]\n") :].split()[1:])
