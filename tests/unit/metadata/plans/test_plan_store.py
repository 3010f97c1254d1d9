from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metadata.plans import plan_store
from metadata.plans.plan import Plan, decode, encode
from metadata.plans.plan_store import PlanNotStored, PlanStore, PlanSummary, brief_of


def plan(number: int) -> Plan:
    return Plan(epoch=number, partitions=4, homes={"/a": 1}, created=f"2026-01-02T03:04:{number:02}Z")


def test_plans_and_what_they_replaced_outlive_the_process(tmp_path: Path) -> None:
    PlanStore(tmp_path / "new").put(plan(1))
    PlanStore(tmp_path / "new").put_before(plan(1).id, {"/a": 3})
    again = PlanStore(tmp_path / "new")
    assert (again.names(), again.get(plan(1).id), again.before(plan(1).id)) == ([plan(1).id], plan(1), {"/a": 3})


def test_of_too_many_the_first_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_store, "KEPT", 3)
    monkeypatch.setattr(plan_store, "BEGUN", 1)
    kept = PlanStore(tmp_path)
    for number in range(5):
        kept.put(plan(number))
        kept.put_before(plan(number).id, {})
    assert kept.names() == [plan(number).id for number in (2, 3, 4)]
    assert sorted({path.stem for path in tmp_path.iterdir()}) == kept.names(), "and all that was beside them"


def test_the_plans_that_were_begun_last_are_kept_whoever_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that has not read yet that a plan is applied spares none by its name."""
    monkeypatch.setattr(plan_store, "KEPT", 4)
    monkeypatch.setattr(plan_store, "BEGUN", 2)
    kept = PlanStore(tmp_path)
    for number in range(4):
        kept.put(plan(number))
    for number in (0, 1, 2):
        kept.put_before(plan(number).id, {"/a": number})
    for number in (4, 5, 6, 7, 8):
        kept.put(plan(number))
    assert kept.names() == [plan(number).id for number in (1, 2, 7, 8)]


def test_a_name_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "secret.plan").write_text("x")
    assert PlanStore(tmp_path / "plans").get("../secret") is None


def test_a_directory_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanNotStored, match="cannot be kept"):
        PlanStore(tmp_path / "file").put(plan(1))


def test_what_a_status_needs_is_read_without_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = PlanStore(tmp_path)
    kept.put(plan(1))
    kept.put_before(plan(1).id, {"/a": 3, "/b": 4})

    def whole(_data: bytes) -> Plan:
        raise AssertionError("a whole plan was read")

    monkeypatch.setattr(plan_store, "decode", whole)
    brief = PlanSummary(epoch=1, created=plan(1).created, partitions=4, endpoints=1, moves=2)
    assert PlanStore(tmp_path).briefs() == {plan(1).id: brief}
    assert PlanStore(tmp_path).brief(plan(1).id) == brief


@pytest.mark.parametrize("left", [None, b"", b"{}", b"[1]"])
def test_without_a_brief_the_plan_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes | None
) -> None:
    kept = PlanStore(tmp_path)
    kept.put(plan(1))
    kept.put_before(plan(1).id, {"/a": 3})
    brief, beside = kept.brief(plan(1).id), tmp_path / f"{plan(1).id}.brief"
    beside.unlink() if left is None else beside.write_bytes(left)
    read: list[bytes] = []

    def counted(data: bytes) -> Plan:
        read.append(data)
        return decode(data)

    monkeypatch.setattr(plan_store, "decode", counted)
    assert [kept.brief(plan(1).id), kept.brief(plan(1).id)] == [brief, brief]
    assert len(read) == 1


def test_a_brief_that_was_overtaken_while_it_was_made_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, name = PlanStore(tmp_path), plan(1).id
    kept.put(plan(1))
    (tmp_path / f"{name}.brief").unlink()

    def overtaken(made: Plan, before: dict[str, int] | None) -> PlanSummary:
        found = brief_of(made, before)
        if before is None:
            (tmp_path / f"{name}.before").write_bytes(b'{"/a":3}')
        return found

    monkeypatch.setattr(plan_store, "brief_of", overtaken)
    first, then = kept.brief(name), kept.brief(name)
    assert first is not None
    assert then is not None
    assert (first.moves, then.moves) == (0, 1)


def test_a_brief_of_another_content_does_not_count(tmp_path: Path) -> None:
    kept, another = PlanStore(tmp_path), Plan(epoch=1, partitions=4, homes={"/a": 1, "/b": 2})
    kept.put(plan(1))
    (tmp_path / f"{another.id}.plan").write_bytes(encode(another))
    (tmp_path / f"{plan(1).id}.brief").rename(tmp_path / f"{another.id}.brief")
    brief = kept.brief(another.id)
    assert brief is not None
    assert brief.endpoints == 2


def test_two_that_write_the_same_plan_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    large = Plan(epoch=1, partitions=4, homes={f"/e/{number}": 1 for number in range(2000)})
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: PlanStore(tmp_path).put(large), range(32)))
    assert PlanStore(tmp_path).get(large.id) == large
    assert not list(tmp_path.glob(".*"))
