"""Costs of the load model: from the file of a measurement, or built in."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from learning.costs import DEFAULT, ROLES, BadCosts, Constant, Costs, RoleCosts, read_costs, read_role_costs

GOOD = {"update_us": 5, "delivery_us": 9.5, "connection_us_per_s": 1.5}


def written(folder: Path, document: Any) -> Path:
    path = folder / "cost.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_figures_that_do_not_affect_plans_are_optional(tmp_path: Path) -> None:
    path = written(tmp_path, {"figures": {**GOOD, "write_us": 1300.0, "idle_us_per_s": 7000.0}})
    assert read_costs(path) == Costs(5.0, 9.5, 1.5, str(path), write_us=1300.0, idle_us_per_s=7000.0)
    with pytest.raises(BadCosts, match=r'"write_us" must be a number above 0'):
        read_costs(written(tmp_path, {"figures": {**GOOD, "write_us": None}}))


def test_over_links_a_frame_has_the_cost_measured_there(tmp_path: Path) -> None:
    direct = read_costs(written(tmp_path, {"figures": {**GOOD, "link_delivery_us": 3.5}}))
    assert (direct.delivery_us, direct.over_links.delivery_us) == (9.5, 3.5)
    assert direct.over_links.moved_us == 3 * 3.5
    assert DEFAULT.over_links.delivery_us < DEFAULT.delivery_us


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [None, "5", True, 0, -1, [5], float("nan"), float("inf")])
def test_a_figure_that_is_not_a_number_above_zero_is_named(tmp_path: Path, name: str, value: Any) -> None:
    path = written(tmp_path, {"figures": {**GOOD, name: value}})
    with pytest.raises(BadCosts) as caught:
        read_costs(path)
    assert f'"{name}" must be a number above 0' in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_figure_is_named(tmp_path: Path, name: str) -> None:
    figures = {other: value for other, value in GOOD.items() if other != name}
    with pytest.raises(BadCosts, match=name):
        read_costs(written(tmp_path, {"figures": figures}))


@pytest.mark.parametrize("document", [[], 1, {}, {"figures": []}, GOOD])
def test_a_document_without_figures_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(BadCosts, match='"figures" is missing'):
        read_costs(written(tmp_path, document))


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe\xfa"])
def test_a_file_that_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cost.json"
    path.write_bytes(content)
    with pytest.raises(BadCosts, match="it is not JSON"):
        read_costs(path)


def test_an_unreadable_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadCosts, match="No such file"):
        read_costs(tmp_path / "none.json")


def test_the_default_is_usable_and_names_its_source() -> None:
    assert min(DEFAULT.update_us, DEFAULT.delivery_us, DEFAULT.connection_us_per_s) > 0
    assert "bench-cost" in DEFAULT.source


def test_costs_need_no_numpy() -> None:
    code = "import sys, learning.costs; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


COMMITTED = Path(__file__).parents[3] / "docs" / "benchmarks" / "2026-11-21" / "cost.json"


def test_costs_by_role_of_an_earlier_file_are_completed_by_the_built_in_ones() -> None:
    found = read_role_costs(COMMITTED, ROLES)
    assert found.constants["delivery_us"] == (9.877, 0.774)
    # The file has a server with its bridge, and the bridge.
    assert found.constants["bridge_update_us"] == (4.459, 1.153)
    server = found.constants["server_update_us"]
    assert server is not None
    assert server == pytest.approx((7.977 - 4.459, math.hypot(1.989, 1.153)))
    assert "nginx_frame_us" in found.built_in
    assert "delivery_us" not in found.built_in
    assert found.constants["nginx_frame_us"] == ROLES.constants["nginx_frame_us"]


def test_a_cost_by_role_without_an_error_is_as_uncertain_as_it_is_large(tmp_path: Path) -> None:
    path = written(tmp_path, {"figures": {"nginx_frame_us": 12, "broadcast_update_us": 0.0}})
    found = read_role_costs(path, ROLES)
    assert found.constants["nginx_frame_us"] == (12.0, 12.0)
    assert found.constants["broadcast_update_us"] == (0.0, 0.0)


@pytest.mark.parametrize("value", [None, "5", True, -1, [5], float("nan")])
@pytest.mark.parametrize("name", ["nginx_frame_us", "nginx_frame_us_se"])
def test_a_cost_by_role_that_is_no_cost_is_named(tmp_path: Path, name: str, value: Any) -> None:
    path = written(tmp_path, {"figures": {"nginx_frame_us": 12, name: value}})
    with pytest.raises(BadCosts, match=f'"{name}" must be a number of at least 0'):
        read_role_costs(path, ROLES)


def test_a_sum_of_costs_has_the_error_of_its_constants_and_names_those_that_are_missing() -> None:
    costs = RoleCosts({"delivery_us": Constant(10, 3), "nginx_frame_us": Constant(20, 4), "server_part_us": None}, "")
    found = costs.total({"delivery_us": 1, "nginx_frame_us": 1, "server_part_us": 2, "broker_part_us": 0})
    assert found == (30, 5, ("server_part_us",))
    assert costs.value({"delivery_us": 1, "nginx_frame_us": 1, "server_part_us": 2}) == 30
