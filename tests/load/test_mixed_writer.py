"""The writer of all kinds and a real Data Service: all is accepted, and the oracle finds it as it was written."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from time import monotonic

import httpx
import pytest

from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from services.data.api import ApiOptions, make_api
from services.data.kinds.prefixes import Prefix, Prefixes
from services.data.store.store import Store
from tests.load import mix, mixed_writer, writes
from tests.load.mixed_writer import OPERATIONS, MixedWriter
from tests.oracle import History, Kind, Uncertain, judge
from tests.oracle.mutate import CONTROLS, EXPECTED
from tests.oracle.violations import StoreLost
from tests.support.file_threads import FILES

KEY = "the-write-key-of-a-test"
NOTICES = Prefix(f"{mix.ROOT}{mix.NOTICES}", kind="notice", url=mix.URL)


@pytest.fixture
async def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MixedWriter]:
    monkeypatch.setattr(mixed_writer, "TTLS", (3600,))
    monkeypatch.setattr(mixed_writer, "MOST_BYTES", 1 << 16)
    # So that a short run deletes, too.
    monkeypatch.setattr(mixed_writer, "DELETE_EVERY", 5)
    store = await Store.open(f"sqlite:///{tmp_path / 'data.db'}", clock=SystemClock())
    options = ApiOptions(page_dir=tmp_path, prefixes=Prefixes.of_all([NOTICES]))
    api = make_api(store, SharedKey(KEY), lambda _endpoint: None, options, files=FILES)
    transport = httpx.ASGITransport(api.app, client=("127.0.0.1", 50000))
    names = mix.names_of(40)
    async with store.serving():
        one = MixedWriter("http://localhost:8080", KEY, names, Random(1), rate=1e6, transport=transport)
        yield one
        await one.close()


async def history_of(writer: MixedWriter) -> History:
    final = await writes.Writer.final(writer)
    events, lists = await writer.read_all()
    return History(writer.accepted, {"rest": events}, monotonic(), [], [], [], final, lists)


async def test_everything_of_the_mix_is_accepted_and_what_rest_has_is_what_the_oracle_expects(
    writer: MixedWriter,
) -> None:
    await writer.put_all()
    assert {change.endpoint for change in writer.accepted} == {*writer.endpoints}
    await writer.run(writes.BATCH * 60 / 1e6)
    for name in writer.endpoints:
        if mix.kind_of(name) == mix.DOCUMENTS:
            await writer._merge(name)
    assert writer.operations.keys() >= OPERATIONS
    assert writer.statuses.keys() <= {"200", "404", "410", "412"}
    history = await history_of(writer)
    assert judge(history).violations == []
    held = [event for event in history.clients["rest"] if event.kind == Kind.HELD]
    assert {mix.kind_of(event.endpoint) for event in held} == {*mix.KINDS}
    assert {event.endpoint for event in held} == {*writer.endpoints, *writer.collections}
    for control in ("patch-of-another-version", "foreign-document", "missing-member", "stale-data", "other-base"):
        found = {type(violation).__name__ for violation in judge(CONTROLS[control](history, Random(1))).violations}
        assert found >= EXPECTED[control], control


async def test_quiet_endpoints_change_once_when_they_shall(writer: MixedWriter) -> None:
    writer.quiet = frozenset(writer.endpoints)
    await writer.put_all()
    before = len(writer.accepted)
    await writer.change(writer.endpoints)
    assert sorted(change.endpoint for change in writer.accepted[before:]) == sorted(writer.endpoints)
    assert judge(await history_of(writer)).clean


async def test_lost_answer_to_a_patch_is_remembered_with_the_patch(
    writer: MixedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await writer.put_all()
    document = next(name for name in writer.endpoints if mix.kind_of(name) == mix.DOCUMENTS)
    monkeypatch.setattr(writes, "GIVE_UP_SECONDS", 0.0)
    send = writer._http.request

    async def lose(*arguments: object, **more: object) -> httpx.Response:
        await send(*arguments, **more)  # type: ignore[arg-type]
        raise httpx.ReadError("lost")

    with monkeypatch.context() as patching:
        patching.setattr(writer._http, "request", lose)
        with pytest.raises(writes.WriteRefused):
            await writer._merge(document)
    (lost,) = writer.uncertain
    assert (lost.endpoint, list(lost.change)) == (document, ["merge"])
    history = await history_of(writer)
    assert not judge(history).clean
    explained = History(history.accepted, history.clients, history.end, [], [lost], [], history.final, history.lists)
    assert judge(explained).clean
    other = Uncertain(document, lost.start, lost.end, change={"merge": {"last": -1}})
    assert not judge(History(*explained.__dict__.values())).violations
    wrong = History(history.accepted, history.clients, history.end, [], [other], [], history.final, history.lists)
    assert "WrongData" in {type(violation).__name__ for violation in judge(wrong).violations}


async def test_store_without_a_collection_has_lost_it(writer: MixedWriter) -> None:
    await writer.put_all()
    history = await history_of(writer)
    assert history.final is not None
    gone = {**history.final, mix.ROOT: 0}
    broken = judge(History(history.accepted, {}, history.end, final=gone)).violations
    assert [(type(violation), violation.endpoint) for violation in broken] == [(StoreLost, mix.ROOT)]
