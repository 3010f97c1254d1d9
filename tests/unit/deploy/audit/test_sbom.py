"""The bill of materials keeps the rules of CycloneDX 1.6 (ECMA-424) that its readers rely on."""

import json
import re
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deploy.audit.__main__ import main
from deploy.audit.locks import Ecosystem, Package, Scope, all_packages
from deploy.audit.sbom import bill_of_materials

HASHES = {"SHA-256": "[0-9a-f]{64}", "SHA-512": "[0-9a-f]{128}"}
PURL = "pkg:(pypi|npm|maven)/[A-Za-z0-9._%/-]+@[A-Za-z0-9._%+-]+"
SERIAL = "urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
LICENCE = "[A-Za-z0-9.+() -]+"
FIELDS = {"type", "bom-ref", "group", "name", "version", "scope", "hashes", "licenses", "purl"}
LIBRARY = Package(
    Ecosystem.MAVEN, "org.example:thing", "1.0", Scope.optional, hashes={"SHA-256": "a" * 64}, direct=True
)


def component_is_valid(component: dict[str, Any]) -> bool:
    """Return whether a component keeps the schema's rules."""
    return (
        set(component) <= FIELDS
        and component["type"] == "library"
        and bool(component["name"] and component["version"])
        and re.fullmatch(PURL, component["purl"]) is not None
        and component["scope"] in {"required", "optional", "excluded"}
        and all(re.fullmatch(HASHES[entry["alg"]], entry["content"]) for entry in component.get("hashes", ()))
        and all(re.fullmatch(LICENCE, entry["expression"]) for entry in component.get("licenses", ()))
    )


def violations(document: dict[str, Any]) -> list[Any]:
    """Return what in a document breaks the schema or the specification."""
    references = [document["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in document["components"])]
    edges, known = document["dependencies"], set(references)
    head = (document["bomFormat"], document["specVersion"], document["version"])
    return [
        *([] if head == ("CycloneDX", "1.6", 1) else [head]),
        *([] if re.fullmatch(SERIAL, document["serialNumber"]) else [document["serialNumber"]]),
        *(one for one in document["components"] if not component_is_valid(one)),
        *(one for one, times in Counter(references).items() if times > 1),
        *({edge["ref"] for edge in edges} ^ known),
        *(edge for edge in edges if not set(edge["dependsOn"]) <= known),
        *(edge for edge in edges if len(set(edge["dependsOn"])) != len(edge["dependsOn"])),
        *(one for one in document["compositions"] if one["aggregate"] != "unknown"),
        *(one for one in document["compositions"] if not set(one["dependencies"]) <= known),
    ]


def test_the_document_of_the_lock_files_breaks_no_rule(tmp_path: Path) -> None:
    file = tmp_path / "new" / "sbom.cdx.json"
    assert main(["sbom", str(file)]) == 0
    document = json.loads(file.read_text())
    assert violations(document) == []
    assert len(document["components"]) == len(all_packages())


def test_every_package_can_be_reached_from_diem() -> None:
    document = bill_of_materials(all_packages(), "1.0")
    edges = {edge["ref"]: edge["dependsOn"] for edge in document["dependencies"]}
    reached: set[str] = set()
    ahead = [document["metadata"]["component"]["bom-ref"]]
    while ahead:
        reference = ahead.pop()
        if reference not in reached:
            reached.add(reference)
            ahead += edges[reference]
    assert reached == set(edges)


def test_the_same_lock_files_give_the_same_document_and_others_another_serial_number() -> None:
    document = bill_of_materials([LIBRARY], "1.0")
    assert document == bill_of_materials([LIBRARY], "1.0")
    other = bill_of_materials([], "1.0")["serialNumber"]
    assert other != document["serialNumber"]
    assert uuid.UUID(other).version == 5


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("specVersion",), "1.5"),
        (("serialNumber",), "1"),
        (("components", 0, "purl"), "org.example:thing"),
        (("components", 0, "scope"), "strong"),
        (("components", 0, "hashes", 0, "content"), "abc"),
        (("components", 0, "bom-ref"), "pkg:generic/diem@1.0"),
        (("dependencies", 0, "dependsOn"), ["pkg:pypi/absent@1"]),
        (("compositions", 0, "dependencies"), ["pkg:pypi/absent@1"]),
    ],
)
def test_a_document_that_breaks_a_rule_is_found(path: tuple[Any, ...], value: Any) -> None:
    document: Any = bill_of_materials([LIBRARY], "1.0")
    assert violations(document) == []
    *parents, last = path
    target = document
    for key in parents:
        target = target[key]
    target[last] = value
    assert violations(document) != []
