"""What of a machine and its state directory keeps DIEM from working, and what to do: the checks of ``diem doctor``.

Each check yields one line for each part it looks at. Those of the Kafka cluster are the audit of ``diem check``, those
of running processes the operator page's findings.
"""

import ctypes
import os
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deploy.admin.findings import Situation, each_finding
from deploy.admin.health import HealthLevel
from deploy.kafka import java
from deploy.system.description import with_children
from deploy.system.state_dir import StateDir
from deploy.terminal import amount, data_size
from diem import __version__
from diem.errors import ConfigurationError, DiemError
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.process.listeners import OTHER_FILES
from diem.process.modes import KINDS
from diem.process.tls import certificate_expiry_s
from services.data.store.tables import REVISION
from tools.diagnosis import Diagnosis, State, fault, note, ok

if TYPE_CHECKING:
    # Its package needs the extra for Kafka.
    from tools.check.facts import RuleResult

CLIENTS: Final = 10_000
"""Clients that a server admits by default."""
LEAST_DISK: Final = 1 << 30
EXPIRES_SOON_S: Final = 21 * 86_400.0
CLOCKS_S: Final = 1.0
"""Clock difference from which versions and tokens suffer."""
FULL: Final = 0.9
"""Share of its capacity from which a server counts as nearly full."""
NOW: Final = "Now"
"""Group of the audit with the rules of the current state."""
ANSWERS_WITHIN_S: Final = 5.0
_TIME_ERROR: Final = 5
"""State of a clock without synchronisation (adjtimex(2))."""
_STORE: Final = "data.db"


def of_state_dir(state: StateDir) -> Iterator[Diagnosis]:
    """Check rights, keys, free disk, and the release of the store; every command checks the owner."""
    if not state.path.exists():
        yield ok("state directory", f"{state.path} does not exist yet: `diem up` creates it")
        return
    if not os.access(state.path, os.R_OK | os.W_OK | os.X_OK):
        reason = f"{state.path} cannot be read and written"
        yield fault("state directory", reason, "Run this as its owner, or choose another --state-dir.")
        return
    try:
        for file in state.shared_key_files:
            if file.exists():
                (KeyRing if file == state.internal_key_file else SharedKey).load(file)
    except ConfigurationError as error:
        yield fault("state directory", str(error), "Do what it says, then run this again.")
        return
    yield ok("state directory", f"{state.path}: owner, rights and keys are right")
    yield _disk(shutil.disk_usage(state.path).free)
    yield from of_store(state.path / _STORE)


def _disk(free: int) -> Diagnosis:
    text = f"{data_size(free)} free"
    if free >= LEAST_DISK:
        return ok("disk", text)
    return fault("disk", text, "Free space: without it writes are refused with 503, and Kafka stops.")


def of_store(file: Path) -> Iterator[Diagnosis]:
    """Check the release of a store in a file; nothing where there is none, or it is a database of a server."""
    if not file.exists():
        return
    from services.data.store import alembic_runs  # noqa: PLC0415  # it takes as long as the rest

    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    except (sqlite3.Error, TypeError) as error:
        text = f"{file} cannot be read: {error}"
        yield fault("store", text, "Restore a backup: `diem restore FILE`.")
        return
    if revision == REVISION:
        yield ok("store", f"of this release ({data_size(file.stat().st_size)})")
    elif revision in alembic_runs.revisions():
        text = f"of an earlier release (tables {revision}): the next start migrates it, and there is no way back"
        yield note("store", text, "Before it, `diem backup FILE` with the release that it is of.")
    else:
        text = f"of a later release (tables {revision}): {__version__} cannot read it"
        yield fault("store", text, "Install that release, or restore a backup in another --state-dir.")


def of_ports(is_free: Callable[[int], bool], *, running: bool) -> Iterator[Diagnosis]:
    """Check the documented ports of the Data Service and of servers, unless a ``diem up`` runs, which has its own."""
    if running:
        return
    ports = [port for name in ("data", "websocket") for port in (KINDS[name].public, KINDS[name].internal) if port]
    taken = [port for port in ports if not is_free(port)]
    if not taken:
        yield ok("ports", f"{', '.join(map(str, ports))} are free")
        return
    text = f"{', '.join(map(str, taken))} in use by another program"
    yield note("ports", text, "`diem up` takes the next free ones; --port and --free-ports choose others.")


def of_open_files(limits: tuple[int, int] | None = None) -> Diagnosis:
    """Check the hard limit of open files, to which processes raise their own; ``limits`` are soft and hard."""
    _, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CLIENTS + OTHER_FILES
    if hard == resource.RLIM_INFINITY or hard >= needed:
        limit = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        return ok("open files", f"{limit} for each process, {needed:,} needed for {CLIENTS:,} clients")
    text = f"{hard:,} for each process: at most {max(0, hard - OTHER_FILES):,} clients at a server"
    remedy = (
        f"Raise the hard limit: `ulimit -Hn {needed}` as root, LimitNOFILE={needed} of the service, or limits.conf."
    )
    return note("open files", text, remedy)


def of_clock(synchronised: bool | None, reports: Mapping[str, Mapping[str, Any]]) -> Iterator[Diagnosis]:
    """Check whether the clock is ``synchronised`` (None: unknown), and those of running processes against it."""
    differing = {
        name: report["clock_difference"]
        for name, report in reports.items()
        if abs(report.get("clock_difference") or 0.0) >= CLOCKS_S
    }
    for name, seconds in differing.items():
        text = f"that of {name} is {abs(seconds):,.0f} s {'ahead' if seconds > 0 else 'behind'}"
        yield fault("clock", text, "Set both by NTP: versions, tokens and delays depend on it.")
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    if synchronised is False:
        text = f"{now}, and nothing keeps it right"
        remedy = "Start chrony or systemd-timesyncd, unless the host of this container does: versions contain the time."
        yield note("clock", text, remedy)
    elif not differing:
        yield ok("clock", f"{now}{', synchronised' if synchronised else ''}")


def is_clock_synchronised() -> bool | None:
    """Return whether the kernel's clock is kept right by NTP; None where the system does not tell."""
    try:
        state: int = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def of_certificate(file: Path | None, now_s: float) -> Iterator[Diagnosis]:
    """Check the certificate for clients, if there is one."""
    if file is None:
        return
    try:
        left_s = certificate_expiry_s(file) - now_s
    except ConfigurationError as error:
        yield fault("certificate", str(error), "Correct the file, then `kill -HUP` the pid of `diem up`.")
        return
    remedy = "Renew it, then `kill -HUP` the pid in processes.json."
    valid = f"{file} is valid for {amount(int(left_s // 86_400), 'day')}"
    if left_s <= 0:
        yield fault("certificate", f"{file} has expired: no browser connects", remedy)
    elif left_s < EXPIRES_SOON_S:
        yield note("certificate", valid, remedy)
    else:
        yield ok("certificate", valid)


def of_programs() -> Iterator[Diagnosis]:
    """Check the programs that some modes need."""
    try:
        found = java.find()
        yield ok("java", f"Java {java.parsed(java.described(found))} at {found}, for a local Kafka")
    except ConfigurationError as error:
        what, _, remedy = str(error).partition(": ")
        yield note("java", what, f"Only then: {remedy}.")
    nginx = shutil.which("nginx", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))
    if nginx is None:
        yield note("nginx", "not installed, and needed only with --nginx", "Only then: apt install nginx.")
    else:
        yield ok("nginx", f"{_version(nginx)} at {nginx}, for --nginx")


def _version(nginx: str) -> str:
    """Return the version of nginx in its own words; a plain name without an answer."""
    with suppress(OSError, subprocess.SubprocessError):
        shown = subprocess.run([nginx, "-v"], capture_output=True, text=True, timeout=ANSWERS_WITHIN_S, check=True)  # noqa: S603  # of the PATH
        return shown.stderr.strip().removeprefix("nginx version: ")
    return "nginx"


def of_processes(situation: Situation) -> Iterator[Diagnosis]:
    """Check the running processes: what the operator page finds, their releases, and how full servers are."""
    found = each_finding(situation)
    for each in found:
        state = State.FAULT if each.level is HealthLevel.CRITICAL else State.NOTE
        yield Diagnosis(", ".join(each.processes) or "plan", state, f"{each.title}. {each.detail}", each.action)
    rows = list(with_children(situation.status["processes"]))
    reports = {name: row["report"] for name, row in rows if row.get("report")}
    others = {
        name: report["version"] for name, report in reports.items() if report.get("version", __version__) != __version__
    }
    if others:
        text = f"{', '.join(others)}: {', '.join(sorted(set(others.values())))}; this command: {__version__}"
        yield note("release", text, "Restart what runs of another release: docs/operations.md section 4.1.")
    for name, report in reports.items():
        clients, capacity = report.get("clients") or 0, report.get("capacity")
        if capacity and clients >= FULL * capacity:
            text = f"{clients:,} of {capacity:,} clients"
            yield note(name, text, "Add servers (`diem scale`), or raise DIEM_*_CAPACITY.")
    if not found:
        yield ok("processes", f"{len(rows)} run, and all is well")


def of_kafka(results: "Iterable[RuleResult]", where: str) -> Iterator[Diagnosis]:
    """Return what the audit of the cluster has found: each fault of its current state, and the number of others."""
    others = 0
    for each in results:
        if each.judgement.verdict == "fault" and each.group == NOW:
            yield fault(
                "kafka", f"{each.rule.name}: {each.judgement.found}", f"{each.judgement.change}: `diem check` has more."
            )
        else:
            others += each.judgement.verdict != "ok"
    text = f"{where} answers"
    if others:
        yield note("kafka", f"{text}; {amount(others, 'rule')} for durability and security not met", "`diem check`.")
    else:
        yield ok("kafka", text)


def unreachable(error: DiemError) -> Diagnosis:
    """Return the state of a cluster that cannot be audited."""
    return fault("kafka", str(error), "Start the brokers, or correct address and login (DIEM_KAFKA_*).")
