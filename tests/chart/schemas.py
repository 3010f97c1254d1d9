"""Schemas of Kubernetes' objects for kubeconform, made from the description of its API: none are downloaded."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from tests.chart.cases import BUILT

SCHEMAS: Final = BUILT / "schemas"
LOCATION: Final = f"{SCHEMAS}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
_OR_NUMBER: Final = {"type": ["string", "number"]}
_SCALARS: Final = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _OR_NUMBER,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _OR_NUMBER,
}


def write_schemas(api: Path) -> None:
    """Write a schema for each kind; ``api`` is Kubernetes' ``swagger.json``. Unknown fields are errors."""
    definitions: dict[str, Any] = json.loads(api.read_text())["definitions"]
    for definition in definitions.values():
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    definitions |= _SCALARS
    shutil.rmtree(SCHEMAS, ignore_errors=True)
    SCHEMAS.mkdir(parents=True)
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = kind["group"].partition(".")[0]
            suffix = f"-{group}-{kind['version']}" if group else f"-{kind['version']}"
            used = _reachable(name, definitions)
            schema = {"$ref": f"#/definitions/{name}", "definitions": {each: definitions[each] for each in used}}
            (SCHEMAS / f"{kind['kind'].lower()}{suffix}.json").write_text(json.dumps(schema))


def _reachable(name: str, definitions: dict[str, Any]) -> set[str]:
    """Return the names of the definitions to which one refers, with its own."""
    found, pending = {name}, [name]
    while pending:
        for other in _references(definitions[pending.pop()]) - found:
            found.add(other)
            pending.append(other)
    return found


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set[str]()
        return own.union(*(_references(each) for each in value.values()))
    return set[str]().union(*(_references(each) for each in value)) if isinstance(value, list) else set()
