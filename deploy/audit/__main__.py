"""``python -m deploy.audit``: ask for known vulnerabilities, or write the bill of materials (``sbom``).

The audit's exit code is 0 if every package was checked and none is vulnerable, 1 if one is, 3 if not all were checked.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.audit.advisories import OSV_URL, Audit, audit
from deploy.audit.locks import ROOT, Ecosystem, all_packages, of_ecosystem
from deploy.audit.sbom import bill_of_materials

EXIT_VULNERABLE: Final = 1
EXIT_INCOMPLETE: Final = 3


def report(audits: Sequence[Audit]) -> tuple[str, int]:
    """Return the text of an audit, and the exit code."""
    lines = [f"{'':14} {'locked':>7} {'checked':>8} {'findings':>9}"]
    lines += [f"{one.name:14} {one.packages:7} {one.checked:8} {len(one.findings):9}" for one in audits]
    for one in audits:
        for finding in one.findings:
            fixed = f", fixed in {finding.fixed_in}" if finding.fixed_in else ""
            lines.append(f"{one.name}: {finding.package} {finding.version}: {finding.advisory}{fixed}")
    incomplete = [one for one in audits if not one.complete]
    for one in incomplete:
        lines.append(f"NOT CHECKED: {one.packages - one.checked} of {one.name}: {one.failure}")
    if any(one.findings for one in audits):
        return "\n".join(lines), EXIT_VULNERABLE
    if incomplete:
        return "\n".join(lines), EXIT_INCOMPLETE
    return "\n".join([*lines, "no known vulnerability"]), 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.audit", description=__doc__)
    parser.add_argument("--osv", default=OSV_URL, metavar="URL", help="database of advisories of jars")
    commands = parser.add_subparsers(dest="command")
    sbom = commands.add_parser("sbom", help="write the bill of materials")
    sbom.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    packages = all_packages()
    if options.command == "sbom":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        options.file.parent.mkdir(parents=True, exist_ok=True)
        document = bill_of_materials(packages, project["version"])
        options.file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"{options.file}: {len(packages)} packages")  # noqa: T201
        return 0
    for jar in of_ecosystem(packages, Ecosystem.MAVEN):
        print(f"jar {jar.name} {jar.version}")  # noqa: T201
    text, code = report(audit(packages, osv_url=options.osv))
    print(text)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
