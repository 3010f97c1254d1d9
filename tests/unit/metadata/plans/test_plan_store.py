import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from metadata.plans import plan_store
from metadata.plans.plan import Plan, decode
from metadata.plans.plan_store import PlanNotStored, PlanStore, PlanSummary, summarize


def plan(number: int) -> Plan:
    return Plan(epoch=number, partitions=4, homes={"/a": 1}, created=f"2026-01-02T03:04:{number:02}Z")


def test_plans_and_what_they_replaced_survive_a_restart(tmp_path: Path) -> None:
    PlanStore(tmp_path / "new").put(plan(1))
    PlanStore(tmp_path / "new").put_before(plan(1).id, {"/a": 3})
    again = PlanStore(tmp_path / "new")
    assert (again.names(), again.get(plan(1).id), again.before(plan(1).id)) == ([plan(1).id], plan(1), {"/a": 3})


def test_the_oldest_plans_beyond_the_maximum_are_removed_with_all_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_store, "MAX_PLANS", 3)
    monkeypatch.setattr(plan_store, "PROTECTED", 1)
    store = PlanStore(tmp_path)
    for number in range(5):
        store.put(plan(number))
        store.put_before(plan(number).id, {})
    assert store.names() == [plan(number).id for number in (2, 3, 4)]
    assert sorted({path.stem for path in tmp_path.iterdir()}) == store.names()


def test_the_plans_begun_last_are_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that has not read yet which plan is applied names none as protected."""
    monkeypatch.setattr(plan_store, "MAX_PLANS", 4)
    monkeypatch.setattr(plan_store, "PROTECTED", 2)
    store = PlanStore(tmp_path)
    for number in range(4):
        store.put(plan(number))
    for number in (0, 1, 2):
        store.put_before(plan(number).id, {"/a": number})
    for number in (4, 5, 6, 7, 8):
        store.put(plan(number))
    assert store.names() == [plan(number).id for number in (1, 2, 7, 8)]


def test_a_plan_submitted_after_the_clock_was_set_back_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_store, "MAX_PLANS", 2)
    store = PlanStore(tmp_path)
    for number in (1, 2):
        store.put(plan(number))
        os.utime(tmp_path / f"{plan(number).id}.plan", (2e9 + number, 2e9 + number))
    store.put(plan(3))
    assert set(store.names()) == {plan(3).id, plan(2).id}


def test_a_name_cannot_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "secret.plan").write_text("x")
    assert PlanStore(tmp_path / "plans").get("../secret") is None


def test_an_unwritable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanNotStored, match="cannot be stored"):
        PlanStore(tmp_path / "file").put(plan(1))


def count_decoding(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record every plan that is decoded."""
    decoded: list[bytes] = []

    def counting(data: bytes) -> Plan:
        decoded.append(data)
        return decode(data)

    monkeypatch.setattr(plan_store, "decode", counting)
    return decoded


def test_the_summary_of_a_plan_stored_by_this_process_needs_no_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, decoded = PlanStore(tmp_path), count_decoding(monkeypatch)
    store.put(plan(1))
    store.put_before(plan(1).id, {"/a": 3, "/b": 4})
    summary = PlanSummary(epoch=1, created=plan(1).created, partitions=4, endpoints=1, moves=2)
    assert store.summaries() == {plan(1).id: summary}
    assert store.summary(plan(1).id) == summary
    assert not decoded


def test_the_plan_of_an_earlier_process_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PlanStore(tmp_path).put(plan(1))
    store, decoded = PlanStore(tmp_path), count_decoding(monkeypatch)
    first, again = store.summary(plan(1).id), store.summary(plan(1).id)
    assert first is not None
    assert again == first
    assert len(decoded) == 1


def test_summaries_follow_the_writes_and_removals_of_another_instance(tmp_path: Path) -> None:
    store, another, name = PlanStore(tmp_path), PlanStore(tmp_path), plan(1).id
    another.put(plan(1))
    first = store.summary(name)
    another.put_before(name, {"/a": 3})
    then = store.summary(name)
    assert first is not None
    assert then is not None
    assert (first.moves, then.moves) == (0, 1)
    (tmp_path / f"{name}.plan").unlink()
    assert store.summary(name) is None
    assert not store._summaries


def test_a_summary_made_during_a_write_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PlanStore(tmp_path).put(plan(1))
    store, name = PlanStore(tmp_path), plan(1).id

    def overtaken(made: Plan, before: dict[str, int] | None) -> PlanSummary:
        found = summarize(made, before)
        if before is None:
            (tmp_path / f"{name}.before").write_bytes(b'{"/a":3}')
        return found

    monkeypatch.setattr(plan_store, "summarize", overtaken)
    first, then = store.summary(name), store.summary(name)
    assert first is not None
    assert then is not None
    assert (first.moves, then.moves) == (0, 1)


def test_files_of_an_earlier_release_are_removed_with_their_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_store, "MAX_PLANS", 1)
    store = PlanStore(tmp_path)
    store.put(plan(1))
    (tmp_path / f"{plan(1).id}.brief").write_bytes(b"{}")
    store.put(plan(2))
    assert [path.name for path in tmp_path.iterdir()] == [f"{plan(2).id}.plan"]


def test_the_same_plan_can_be_written_by_several_threads_at_once(tmp_path: Path) -> None:
    large = Plan(epoch=1, partitions=4, homes={f"/e/{number}": 1 for number in range(2000)})
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: PlanStore(tmp_path).put(large), range(32)))
    assert PlanStore(tmp_path).get(large.id) == large
    assert not list(tmp_path.glob(".*"))
