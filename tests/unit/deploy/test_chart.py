"""What of the Helm chart can be judged without helm: its values, and the settings that its templates name.

``make chart`` renders it (``tests/chart``).
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.topology import Mode
from diem.process.program import settings_of
from diem.process.settings import PROCESSES, variable
from tests.chart.cases import CASES, MODES

CHART: Final = Path(__file__).parents[3] / "deploy" / "chart"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
HELPERS: Final = (CHART / "templates" / "_helpers.tpl").read_text()
EDGES: Final = ("websocket", "proxy", "composite")
WITH_TRAFFIC: Final = ("data", "websocket", "proxy")
WITH_KAFKA: Final = ("data", "bridge", "websocket", "metadata", "proxy", "composite")


def settings(process: str) -> set[str]:
    model = settings_of(process)
    secret = {"DIEM_DATA_DATABASE_URL_FILE"} if process == "data" else set[str]()
    return {variable(model, name) for name in model.model_fields} | secret


def definition(name: str) -> str:
    """Return the text of a template of the helpers."""
    (_, found) = HELPERS.split(f'{{{{- define "{name}" -}}}}')
    return found.partition("{{- define ")[0]


def named_variables() -> Iterator[tuple[str, str]]:
    """Yield each variable of the templates with a process that is given it."""
    for file in sorted((CHART / "templates").glob("*.yaml")):
        for name in sorted(set(re.findall(r"DIEM_[A-Z_]+[A-Z]", file.read_text()))):
            own = next((process for process in PROCESSES if name.startswith(f"DIEM_{process.upper()}")), file.stem)
            if name != f"DIEM_{own.upper()}":
                yield "data" if own == "pipeline" else own, name
    for name in sorted(set(re.findall(r"DIEM_[A-Z_]+[A-Z]", HELPERS))):
        given = WITH_KAFKA if "_KAFKA_" in name else WITH_TRAFFIC if "_TRAFFIC_" in name else PROCESSES
        for process in given:
            yield process, name
    for helper, edges in (("diem.clients", (*EDGES, "metadata")), ("diem.clientsData", EDGES)):
        for suffix in re.findall(r"\{\{ \.prefix \}\}(_[A-Z_]+)", definition(helper)):
            for process in edges:
                yield process, f"DIEM_{process.upper()}{suffix}"


def test_variables_of_the_templates_are_settings_of_their_process() -> None:
    known = {process: settings(process) for process in PROCESSES}
    named = set(named_variables())
    assert {process for process, _ in named} == set(PROCESSES)
    assert {(process, name) for process, name in named if name not in known[process]} == set()


def test_modes_are_those_of_diem_but_for_the_one_of_small_systems() -> None:
    modes = set(SCHEMA["properties"]["mode"]["enum"])
    assert modes == {str(mode) for mode in Mode} - {"all-to-all"}
    assert modes == set(MODES) <= {str(each["mode"]) for each in CASES.values()}


def test_values_and_schema_have_the_same_names() -> None:
    assert list(differences(VALUES, SCHEMA, "")) == []


def differences(values: dict[str, Any], schema: dict[str, Any], where: str) -> Iterator[str]:
    """Yield the paths of names that only one of both has."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        return
    for name in (values.keys() ^ schema["properties"].keys()) - {"global"}:
        yield f"{where}{name}"
    for name in values.keys() & schema["properties"].keys():
        if isinstance(values[name], dict):
            yield from differences(values[name], schema["properties"][name], f"{where}{name}.")


def test_ports_are_the_default_ones() -> None:
    lines = re.findall(r"^(\w+): \{(.*)\}$", definition("diem.components"), re.MULTILINE)
    assert {process for process, _ in lines} == set(PROCESSES) - {"bridge"}
    for process, text in lines:
        fields = settings_of(process).model_fields
        ports = {name: int(port) for name, port in re.findall(r"(public|internal): (\d+)", text)}
        assert ports["internal"] == fields["internal_port"].default
        assert ports.get("public") == (fields["port"].default if "port" in fields else None)


def test_files_of_the_keys_are_those_that_the_command_makes(diem: Callable[..., int], tmp_path: Path) -> None:
    assert diem("keys", "internal", "keys") == 0
    made = {each.name for each in (tmp_path / "keys").iterdir()}
    assert made >= {"internal.key", "write.key", "traffic.salt", "metrics.key"}
    named = set(re.findall(r"[a-z]+\.(?:key|salt)\b", definition("diem.volumes")))
    assert named - made == {"feed.key", "metadata.key"}, "keys of roles, which an operator may add"


def test_an_ingress_without_networks_of_its_controller_is_refused() -> None:
    """All clients would have its address. By default there is an Ingress, and no network."""
    assert (VALUES["ingress"]["enabled"], VALUES["trustedProxies"]) == (True, [])
    checks = definition("diem.validate")
    assert '{{- if and $v.ingress.enabled (not $v.trustedProxies) }}{{ fail "trustedProxies: ' in checks
