"""Known vulnerabilities of locked packages: pip-audit for Python, npm audit for the page, OSV for jars.

A service that does not answer, or answers for some packages only, is an :class:`Audit` with a failure: never a pass.
pip-audit alone would end with 0 and "No known vulnerabilities found" after every look-up has failed.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from deploy.audit.locks import ROOT, Ecosystem, Package, of_ecosystem

OSV_URL: Final = "https://api.osv.dev"
"""The open source vulnerability database (OSV), which lists Maven's advisories too."""
TIMEOUT_S: Final = 30.0
PIP_AUDIT: Final = Path(sys.prefix) / "audit" / "bin" / "pip-audit"
"""Where ``make audit`` installs it: in the virtual environment that this runs in, whatever its directory (``VENV``)."""


@dataclass(frozen=True)
class Finding:
    """One advisory that applies to one locked package."""

    package: str
    version: str
    """Locked version; of npm, the range of versions that the advisory names."""
    advisory: str
    fixed_in: str = ""


@dataclass(frozen=True)
class Audit:
    """Result for the packages of one ecosystem."""

    name: str
    packages: int
    checked: int
    """Packages that the service has answered for."""
    findings: Sequence[Finding] = field(default_factory=tuple)
    failure: str = ""
    """Reason why not all were checked."""

    @property
    def complete(self) -> bool:
        """Every package was checked."""
        return not self.failure and self.checked == self.packages


def audit(packages: Sequence[Package], *, osv_url: str = OSV_URL) -> list[Audit]:
    """Ask all services; takes seconds to minutes."""
    return [
        audit_python(of_ecosystem(packages, Ecosystem.PYTHON)),
        audit_npm(of_ecosystem(packages, Ecosystem.NPM)),
        audit_jars(of_ecosystem(packages, Ecosystem.MAVEN), osv_url),
    ]


def audit_python(packages: Sequence[Package], program: Path = PIP_AUDIT) -> Audit:
    """Run pip-audit; no package is installed or resolved."""
    found: list[Finding] = []
    checked, failure = 0, ""
    for requirements in _rounds(packages):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "requirements.txt"
            file.write_text("".join(f"{one.name}=={one.version}\n" for one in requirements), encoding="utf-8")
            options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "-r", str(file)]
            answer = _run([str(program), *options], directory)
        part = read_pip_audit(answer, len(requirements))
        found.extend(part.findings)
        checked += part.checked
        failure = failure or part.failure
    return Audit("Python", len(packages), checked, found, failure)


def read_pip_audit(answer: str, packages: int) -> Audit:
    """Read what pip-audit has printed for this number of packages."""
    name = "Python"
    try:
        dependencies = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(name, packages, 0, failure=_line(answer) or "pip-audit has printed nothing")
    skipped = [one["skip_reason"] for one in dependencies if "skip_reason" in one]
    findings = [
        Finding(one["name"], one["version"], advisory["id"], ", ".join(advisory.get("fix_versions", ())))
        for one in dependencies
        for advisory in one.get("vulns", ())
    ]
    return Audit(name, packages, len(dependencies) - len(skipped), findings, skipped[0] if skipped else "")


def audit_npm(packages: Sequence[Package], client: Path = ROOT / "client") -> Audit:
    """Run ``npm audit`` on the lock file alone."""
    program = str(ROOT / "deploy" / "install" / "node.sh")
    answer = _run([program, "npm", "audit", "--package-lock-only", "--json"], str(client))
    return read_npm_audit(answer, len(packages))


def read_npm_audit(answer: str, packages: int) -> Audit:
    """Read what ``npm audit --json`` has printed for this number of packages."""
    name = "page and SDK"
    try:
        report = json.loads(answer)
    except ValueError:
        return Audit(name, packages, 0, failure=_line(answer) or "npm has printed nothing")
    if "vulnerabilities" not in report:
        reason = report.get("message") or report.get("error", {}).get("summary") or "npm audit has failed"
        return Audit(name, packages, 0, failure=_line(str(reason)))
    findings = [
        Finding(package, str(entry.get("range", "")), str(advisory.get("url", advisory["title"])))
        for package, entry in sorted(report["vulnerabilities"].items())
        for advisory in entry["via"]
        # A text names another vulnerable package, which has an entry of its own.
        if isinstance(advisory, dict)
    ]
    return Audit(name, packages, packages, findings)


def audit_jars(packages: Sequence[Package], osv_url: str = OSV_URL) -> Audit:
    """Ask OSV for all jars in one request (``POST /v1/querybatch``)."""
    name, queries = "jars", [{"package": {"purl": package.purl}} for package in packages]
    try:
        response = httpx.post(f"{osv_url}/v1/querybatch", json={"queries": queries}, timeout=TIMEOUT_S)
        response.raise_for_status()
        results: list[Any] = list(response.json()["results"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return Audit(name, len(packages), 0, failure=f"{osv_url}: {_line(str(error)) or type(error).__name__}")
    findings = [
        Finding(package.name, package.version, advisory["id"])
        for package, result in zip(packages, results, strict=False)
        for advisory in (result or {}).get("vulns", ())
    ]
    failure = "" if len(results) == len(packages) else f"OSV has answered for {len(results)} of them"
    return Audit(name, len(packages), min(len(results), len(packages)), findings, failure)


def _rounds(packages: Sequence[Package]) -> list[list[Package]]:
    """Split packages so that no list has two versions of one, which pip-audit refuses."""
    rounds: dict[int, list[Package]] = defaultdict(list)
    seen: dict[str, int] = defaultdict(int)
    for package in packages:
        rounds[seen[package.name]].append(package)
        seen[package.name] += 1
    return list(rounds.values())


def _run(argv: Sequence[str], directory: str) -> str:
    """Return what a program prints, on standard error if nothing on standard output; exit codes mean findings."""
    try:
        ran = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"
    return ran.stdout or ran.stderr


def _line(text: str) -> str:
    """Return the last line that is not empty, in at most 200 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
