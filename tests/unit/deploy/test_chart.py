"""What of the Helm chart can be judged without helm: its values, and the settings that its templates name.

``make chart`` renders it (``tests/chart``).
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.install import chart_modes as chart
from tests.chart.cases import CASES, MODES

CHART: Final = Path(__file__).parents[3] / "deploy" / "chart"
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
HELPERS: Final = (CHART / "templates" / "_helpers.tpl").read_text()


def definition(name: str) -> str:
    """Return the text of a template of the helpers."""
    (_, found) = HELPERS.split(f'{{{{- define "{name}" -}}}}')
    return found.partition("{{- define ")[0]


def test_the_chart_has_the_table_of_modes() -> None:
    assert chart.FILE.read_text() == chart.render(), "run `make chart-modes`"


def test_templates_name_no_other_variables() -> None:
    texts = [file.read_text() for file in (CHART / "templates").iterdir()]
    assert {name for text in texts for name in re.findall(r"DIEM_[A-Z_]+[A-Z]", text)} == {"DIEM_STATE_DIR"}


def test_modes_are_those_of_the_table() -> None:
    modes = set(SCHEMA["properties"]["mode"]["enum"])
    assert modes == {str(mode) for mode in chart.MODES}
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


def test_files_of_the_keys_are_those_that_the_command_makes(diem: Callable[..., int], tmp_path: Path) -> None:
    assert diem("keys", "internal", "keys", "--roles") == 0
    made = {each.name for each in (tmp_path / "keys").iterdir()}
    assert set(re.findall(r"[a-z]+\.(?:key|salt)\b", definition("diem.volumes"))) == made


def test_the_internal_key_is_the_data_services_alone() -> None:
    """``make chart`` judges what each pod has."""
    (named,) = re.findall(r"dict (.*?)\) \.component \| default \"feed.key\"", definition("diem.volumes"))
    assert named == '"data" "internal.key" "metadata" "plans.key" "pipeline" "plans.key"'
    assert definition("diem.volumes").count('"internal.key"') == 1


def test_an_ingress_without_networks_of_its_controller_is_refused() -> None:
    """All clients would have its address. By default there is an Ingress, and no network."""
    assert (VALUES["ingress"]["enabled"], VALUES["trustedProxies"]) == (True, [])
    checks = definition("diem.validate")
    assert '{{- if and $v.ingress.enabled (not $v.trustedProxies) }}{{ fail "trustedProxies: ' in checks
