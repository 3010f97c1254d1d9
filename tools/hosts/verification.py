"""Reads the written files like the processes, nginx and systemd; missing programs are skipped."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.kafka.certificate import self_signed
from diem.errors import ConfigurationError
from diem.process.settings import settings_of
from tools.hosts import env_file, files
from tools.hosts.assignment import HostedSystem
from tools.hosts.inventory import Host
from tools.hosts.units import TARGET, UNIT, unit_name

TIMEOUT_S: Final = 30.0
VERIFY: Final = ("systemd-analyze", "verify", "--man=no", "--recursive-errors=no")
_PROGRAM: Final = re.compile(r"^ExecStart=\S+", re.MULTILINE)


class NotUsable(ConfigurationError):
    """A written file would be rejected by its reader; one line per fault."""


def verify(system: HostedSystem, out: Path) -> list[str]:
    """Check all files of all hosts; return the names of missing programs, whose files are unchecked.

    Raises:
        NotUsable: with a line for each fault.
    """
    faults = [fault for host in system.hosts for fault in _settings(system, host, out)]
    missing = []
    if system.options.mode.behind_nginx:
        from deploy import nginx  # noqa: PLC0415  # it was rendered, so the extra is installed

        try:
            faults += _nginx(system, nginx.find())
        except nginx.NoNginx:
            missing.append("nginx")
    if shutil.which(VERIFY[0]) is None:
        missing.append(VERIFY[0])
    else:
        faults += _units(system, out)
    if faults:
        raise NotUsable("\n".join(faults))
    return missing


def _settings(system: HostedSystem, host: Host, out: Path) -> Iterator[str]:
    """Read the variables of each process with its own settings."""
    for each in system.processes(host):
        if each.process == "nginx":
            continue
        file = out / "hosts" / host.label / "etc" / f"{each.name}.env"
        try:
            with _environment(env_file.parse(file.read_text(encoding="utf-8"))):
                settings_of(each.process).load()
        except (ConfigurationError, ValueError) as error:
            for line in str(error).splitlines():
                yield f"{host.label}, {each.name}: {line}"


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _nginx(system: HostedSystem, program: str) -> list[str]:
    """Make nginx read its configuration, with a directory and a certificate of this machine."""
    with tempfile.TemporaryDirectory(prefix="diem-") as name:
        directory = Path(name)
        # A dummy: the hosts' may not be here.
        certificate = directory / "tls.pem"
        certificate.write_bytes(self_signed())
        conf = directory / "nginx.conf"
        conf.write_text(files.nginx_conf(system, directory, certificate, certificate), encoding="utf-8")
        code, output = _run(program, "-t", "-p", name, "-c", str(conf), "-e", "stderr")
    return [] if code == 0 else [f"nginx.conf: {line}" for line in output.splitlines() if "[emerg]" in line] or [output]


def _units(system: HostedSystem, out: Path) -> list[str]:
    """Make systemd read the units, with a program of this machine in place of possibly missing ones."""
    faults = []
    for host in system.hosts:
        written = out / "hosts" / host.label / "systemd"
        with tempfile.TemporaryDirectory(prefix="diem-") as name:
            copies = [_copy(written / TARGET, Path(name) / TARGET)]
            for own in sorted(written.glob("*.conf")):
                copies.append(_copy(written / UNIT, Path(name) / unit_name(own.stem)))
                _copy(own, Path(f"{copies[-1]}.d") / "diem.conf")
            _, output = _run(*VERIFY, *map(str, copies))
        faults += [line for line in output.splitlines() if any(copy.name in line for copy in copies)]
    return faults


def _copy(file: Path, to: Path) -> Path:
    to.parent.mkdir(exist_ok=True)
    to.write_text(_PROGRAM.sub("ExecStart=/bin/true", file.read_text(encoding="utf-8")), encoding="utf-8")
    return to


def _run(*command: str) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, f"{command[0]}: {error}"
    return done.returncode, done.stdout + done.stderr
