from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metadata.plans import plan_store
from metadata.plans.plan import Plan, decode
from metadata.plans.plan_store import PlanNotStored, PlanStore, PlanSummary, summarize


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


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Count how often a whole plan is decoded."""
    decoded: list[bytes] = []

    def counting(data: bytes) -> Plan:
        decoded.append(data)
        return decode(data)

    monkeypatch.setattr(plan_store, "decode", counting)
    return decoded


def test_summary_of_a_plan_that_was_put_here_is_known_without_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, decoded = PlanStore(tmp_path), counted(monkeypatch)
    kept.put(plan(1))
    kept.put_before(plan(1).id, {"/a": 3, "/b": 4})
    summary = PlanSummary(epoch=1, created=plan(1).created, partitions=4, endpoints=1, moves=2)
    assert kept.summaries() == {plan(1).id: summary}
    assert kept.summary(plan(1).id) == summary
    assert not decoded


def test_plan_of_an_earlier_process_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PlanStore(tmp_path).put(plan(1))
    kept, decoded = PlanStore(tmp_path), counted(monkeypatch)
    first, again = kept.summary(plan(1).id), kept.summary(plan(1).id)
    assert first is not None
    assert again == first
    assert len(decoded) == 1


def test_summary_follows_what_another_instance_writes_and_forgets(tmp_path: Path) -> None:
    kept, another, name = PlanStore(tmp_path), PlanStore(tmp_path), plan(1).id
    another.put(plan(1))
    first = kept.summary(name)
    another.put_before(name, {"/a": 3})
    then = kept.summary(name)
    assert first is not None
    assert then is not None
    assert (first.moves, then.moves) == (0, 1)
    (tmp_path / f"{name}.plan").unlink()
    assert kept.summary(name) is None
    assert not kept._summaries


def test_summary_that_was_overtaken_while_it_was_made_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlanStore(tmp_path).put(plan(1))
    kept, name = PlanStore(tmp_path), plan(1).id

    def overtaken(made: Plan, before: dict[str, int] | None) -> PlanSummary:
        found = summarize(made, before)
        if before is None:
            (tmp_path / f"{name}.before").write_bytes(b'{"/a":3}')
        return found

    monkeypatch.setattr(plan_store, "summarize", overtaken)
    first, then = kept.summary(name), kept.summary(name)
    assert first is not None
    assert then is not None
    assert (first.moves, then.moves) == (0, 1)


def test_files_of_an_earlier_release_are_forgotten_with_their_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_store, "KEPT", 1)
    kept = PlanStore(tmp_path)
    kept.put(plan(1))
    (tmp_path / f"{plan(1).id}.brief").write_bytes(b"{}")
    kept.put(plan(2))
    assert [path.name for path in tmp_path.iterdir()] == [f"{plan(2).id}.plan"]


def test_two_that_write_the_same_plan_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    large = Plan(epoch=1, partitions=4, homes={f"/e/{number}": 1 for number in range(2000)})
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: PlanStore(tmp_path).put(large), range(32)))
    assert PlanStore(tmp_path).get(large.id) == large
    assert not list(tmp_path.glob(".*"))
