"""Kubernetes' own API server accepts what the chart renders, and warns of nothing: ``make chart API=1``."""

import os
from collections.abc import Iterator

import pytest

from tests.chart.api_server import PROGRAM, ApiServer, api_server
from tests.chart.cases import CASES, CUSTOM, objects, values

pytestmark = pytest.mark.skipif(
    not os.environ.get("DIEM_CHART") or not PROGRAM.exists(), reason="needs a compiled API server: make chart API=1"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_accepted_without_a_warning(server: ApiServer, case: str) -> None:
    accepted = 0
    for each in objects(CASES[case]):
        if each["kind"] not in CUSTOM:
            answer = server.create(each)
            assert answer.status_code == 201, f"{each['kind']} {each['metadata']['name']}: {answer.text}"
            assert "warning" not in answer.headers, f"{each['kind']}: {answer.headers['warning']}"
            accepted += 1
    assert accepted > 5


def test_misspelt_field_and_privileges_are_noticed(server: ApiServer) -> None:
    (workload,) = [
        each
        for each in objects(values("xz"))
        if each["metadata"]["name"] == "diem-composite" and "template" in each["spec"]
    ]
    container = workload["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"] = {"privileged": True}
    assert "privileged" in server.create(workload).headers["warning"]
    container["readynessProbe"] = {}
    answer = server.create(workload)
    assert answer.status_code == 400
    assert "readynessProbe" in answer.text
