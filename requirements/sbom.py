"""Joins bills of materials and lists of jars: ``sbom.py OUTPUT VERSION INPUT...`` (``make sbom``).

An input is a CycloneDX document or a ``jars.lock``. Reproducible: no times and random numbers in the output.
Dependencies between packages are kept if the tool reports them, as only npm's does.
"""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

KEPT = ("type", "group", "name", "version", "scope", "purl", "hashes", "licenses")


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
            kept = {key: component[key] for key in KEPT if component.get(key)}
            known = components.setdefault(component["purl"], {"bom-ref": component["purl"], **kept})
            if known.get("hashes") != kept.get("hashes"):
                known.pop("hashes", None)  # of several files, for different processors, none is the package
    root = f"pkg:generic/diem@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": root, "name": "diem", "version": version}},
        "components": [components[purl] for purl in sorted(components)],
        "dependencies": [{"ref": purl, "dependsOn": sorted(needs)} for purl, needs in sorted(edges.items()) if needs],
    }


if __name__ == "__main__":
    output, version, *files = sys.argv[1:]
    document = join(version, [Path(file).read_text(encoding="utf-8") for file in files])
    Path(output).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{output}: {len(document['components'])} packages\n")
