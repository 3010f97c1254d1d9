"""A software bill of materials in CycloneDX 1.6 (ECMA-424), made from lock files alone; pure.

The same lock files give the same document: its serial number is derived from the content, and it has no time.
"""

import json
import uuid
from collections.abc import Iterable
from typing import Any, Final

from deploy.audit.locks import Ecosystem, Package, Scope

SPEC_VERSION: Final = "1.6"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "diem.sbom")


def bill_of_materials(packages: Iterable[Package], version: str) -> dict[str, Any]:
    """Return the document for DIEM of this version; ``packages`` must be distinct."""
    found = list(packages)
    known = {package.purl for package in found}
    root = f"pkg:generic/diem@{version}"
    document: dict[str, Any] = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "pre-build"}],
            "component": {"type": "application", "bom-ref": root, "name": "diem", "version": version},
        },
        "components": [_component(package) for package in found],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(package.purl for package in found if package.direct)},
            *({"ref": package.purl, "dependsOn": sorted(package.needs & known)} for package in found),
        ],
        # Their lock files do not have the dependencies between jars.
        "compositions": [
            {
                "aggregate": "unknown",
                "dependencies": [package.purl for package in found if package.ecosystem is Ecosystem.MAVEN],
            }
        ],
    }
    content = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}"}


def _component(package: Package) -> dict[str, Any]:
    group, name = _split(package)
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": name,
        "version": package.version,
        "scope": Scope(package.scope).name,
        "purl": package.purl,
    }
    if group:
        component["group"] = group
    if package.hashes:
        component["hashes"] = [{"alg": algorithm, "content": value} for algorithm, value in package.hashes.items()]
    if package.licence:
        component["licenses"] = [{"expression": package.licence}]
    return component


def _split(package: Package) -> tuple[str, str]:
    """Return group and name: a Maven group, or an npm scope."""
    separator = ":" if package.ecosystem is Ecosystem.MAVEN else "/"
    group, _, name = package.name.rpartition(separator)
    return group, name
