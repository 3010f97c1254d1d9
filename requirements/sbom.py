"""Joins bills of materials and lists of jars: ``sbom.py OUTPUT VERSION INPUT...`` (``make sbom``).

An input is a CycloneDX document or a ``jars.lock``. Reproducible: no times and random numbers in the output.
Dependencies between packages are kept if the tool reports them, as only npm's does. Licences: ``licences.toml``.
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from diem.errors import DISTRIBUTION

KEPT = ("type", "group", "name", "version", "scope", "purl", "hashes", "licenses")
ACCEPTED: Final = tomllib.loads(Path(__file__).with_name("licences.toml").read_text(encoding="utf-8"))
_LICENCES: Final = {
    (kind, name): licence for kind in ("pypi", "maven") for licence, names in ACCEPTED[kind].items() for name in names
}


class NotAccepted(Exception):
    """A package has a licence that ``licences.toml`` does not list, or is not listed there."""


def licences(component: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the licences of a component as CycloneDX lists them. Raises ``NotAccepted``."""
    kind, _, path = unquote(component["purl"]).removeprefix("pkg:").partition("/")
    if kind == "npm":
        own: list[dict[str, Any]] = component.get("licenses", [])
        if not own or any(each.get("license", {}).get("id") not in ACCEPTED["npm"]["accepted"] for each in own):
            raise NotAccepted(
                f"{component['purl']} has the licence {own}: review it, then list it in requirements/licences.toml"
            )
        return own
    *groups, name = path.partition("@")[0].split("/")
    for key in (":".join([*groups, name]), *groups):
        if expression := _LICENCES.get((kind, key)):
            return [{"expression": expression}]
    raise NotAccepted(f"{component['purl']} is new: review its licence, then list it in requirements/licences.toml")


def jar(coordinate: str, sha256: str) -> dict[str, Any]:
    """Return the component of one line of a ``jars.lock``."""
    group, name, version = coordinate.split(":")
    purl = f"pkg:maven/{quote(group)}/{quote(name)}@{quote(version)}"
    hashes = [{"alg": "SHA-256", "content": sha256}]
    return {"type": "library", "group": group, "name": name, "version": version, "purl": purl, "hashes": hashes}


def join(version: str, inputs: list[str]) -> dict[str, Any]:
    """Return one document for DIEM of this version; ``inputs`` are the contents of the files."""
    components: dict[str, dict[str, Any]] = {}
    edges: dict[str, set[str]] = {}
    for text in inputs:
        if text.startswith("{"):
            document = json.loads(text)
            found = document["components"]
            purls = {component["bom-ref"]: component["purl"] for component in found}
            for edge in document["dependencies"]:
                if edge["ref"] in purls:
                    needed = {purls[ref] for ref in edge.get("dependsOn", ())}
                    edges.setdefault(purls[edge["ref"]], set()).update(needed)
        else:
            found = [jar(*line.split()) for line in text.splitlines() if line[:1] not in {"#", ""}]
        for component in found:
            kept = {key: component[key] for key in KEPT if component.get(key)} | {"licenses": licences(component)}
            known = components.setdefault(component["purl"], {"bom-ref": component["purl"], **kept})
            if known.get("hashes") != kept.get("hashes"):
                known.pop("hashes", None)  # of several files, for different processors, none is the package
    root = f"pkg:pypi/{DISTRIBUTION}@{version}"
    product = {"type": "application", "bom-ref": root, "name": DISTRIBUTION, "version": version, "purl": root}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": product | {"licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": [components[purl] for purl in sorted(components)],
        "dependencies": [{"ref": purl, "dependsOn": sorted(needs)} for purl, needs in sorted(edges.items()) if needs],
    }


if __name__ == "__main__":
    output, version, *files = sys.argv[1:]
    try:
        document = join(version, [Path(file).read_text(encoding="utf-8") for file in files])
    except NotAccepted as error:
        sys.exit(str(error))
    Path(output).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{output}: {len(document['components'])} packages\n")
