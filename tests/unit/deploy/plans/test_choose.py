from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.plans.choose import BadPlanFile, NoPlan, handed_over, read_plan, to_apply, to_take_back
from metadata.plans.plan import Plan, encode
from tests.unit.deploy.plans.scripted import service, status, steps

OLD = status("p-1", epoch_of_plan=1)
FITS = status("p-2")
LATER = status("p-3")


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        ([OLD, FITS, LATER], "p-3"),
        ([FITS, OLD], "p-2"),
        ([status("p-1", state="moving"), LATER], "p-1"),
    ],
)
async def test_plan_to_apply_is_the_one_on_its_way_else_the_latest_that_fits(
    there: list[dict[str, Any]], chosen: str
) -> None:
    assert (await to_apply(service(steps({"plans": there})), None)).id == chosen


@pytest.mark.parametrize("there", [[], [OLD], [status(state="applied")]])
async def test_without_a_plan_that_fits_there_is_nothing_to_apply(there: list[dict[str, Any]]) -> None:
    with pytest.raises(NoPlan, match="`diem plan` makes one"):
        await to_apply(service(steps({"plans": there})), None)


@pytest.mark.parametrize("state", ["preparing", "moving", "retiring", "applied", "rolling_back", "rolled_back"])
async def test_plan_to_take_back_is_the_one_that_was_applied_last(state: str) -> None:
    there = {"plans": [status("p-1", state=state), FITS]}
    assert (await to_take_back(service(steps(there)), None)).id == "p-1"
    assert (await to_take_back(service(steps(status("p-1", state=state))), "p-1")).id == "p-1"


async def test_what_was_not_applied_cannot_be_taken_back() -> None:
    with pytest.raises(NoPlan, match="nothing to take back"):
        await to_take_back(service(steps({"plans": [FITS]})), None)
    with pytest.raises(NoPlan, match="p-2 is not what was applied last"):
        await to_take_back(service(steps(FITS)), "p-2")


async def test_plan_of_a_file_is_submitted_where_it_is_not_known(tmp_path: Path) -> None:
    plan = Plan(epoch=3, partitions=8, homes={"/a": 1}, created="2026-01-02T03:04:05Z")
    file = tmp_path / "plan.json"
    file.write_bytes(encode(plan))
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(404, json={"detail": "there is none"})
        bodies.append(request.content)
        return httpx.Response(201, json=status(plan.id))

    assert (await handed_over(service(answer), *read_plan(file))).id == plan.id
    assert bodies == [encode(plan)]
    assert (await handed_over(service(steps(status(plan.id))), *read_plan(file))).id == plan.id
    assert len(bodies) == 1


@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_file_without_a_plan_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadPlanFile, match=r"plan\.json"):
        read_plan(file)
