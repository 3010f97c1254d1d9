"""Reports of reads against a scripted Data Service."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import orjson
import structlog

from diem.fanout.fanout import Fanout, Variant
from diem.fanout.read_meter import ReadMeter, ReadMeters
from diem.fanout.session import DeliveryStats, Session
from diem.links import read_reports
from diem.links.edge import Edge
from diem.links.read_reports import ReadReporter, ReportFailed
from diem.protocol.frames import frame_has_data
from diem.protocol.update import encode
from tests.support.patience import until

ONE, OTHER = "http://one/reads", "http://other/reads"


class Service:
    """Records reports; answers with leases, none for ``exhausted`` accounts, or with the bytes in ``broken``.

    Only those at the URLs in ``serving`` have the store.
    """

    def __init__(self) -> None:
        self.meters = ReadMeters()
        self.reports: list[dict[str, Any]] = []
        self.dialed: list[str] = []
        self.serving = {ONE}
        self.exhausted: list[str] = []
        self.lease: int | None = None
        self.broken: bytes | None = None
        self.sent: list[bytes] = []
        self.fanout = Fanout()
        edge = SimpleNamespace(fanout=self.fanout)
        self.reporter = ReadReporter(self.meters, cast("Edge", edge), (ONE, OTHER), self.post)

    async def post(self, url: str, body: bytes) -> bytes:
        self.dialed.append(url)
        if url not in self.serving:
            raise ReportFailed("status 404")
        self.reports.append(report := orjson.loads(body))
        accounts = [*report["wanted"], *report["exhausted"]]
        leases = {account: 0 if account in self.exhausted else self.lease for account in accounts}
        answer = {"exhausted": self.exhausted, "leases": leases, "per_user": {}}
        return orjson.dumps(answer) if self.broken is None else self.broken

    def read(self, key: str, reads: int = 1, *, data: bool = False) -> ReadMeter:
        meter = self.meters.of(key)
        meter.reads += reads
        session = Session(self.sent.append, self.sent.extend, DeliveryStats())
        self.fanout.join(session)
        self.fanout.set_meter(session, meter)
        if data:
            session.endpoints[b"/a"] = True
            self.fanout.registry.add(b"/a", session, Variant.WITH_DATA)
        return meter


async def test_nothing_is_sent_without_reads() -> None:
    service = Service()
    service.read("a", 0)
    await service.reporter.report()
    assert service.reports == []


async def test_reads_are_reported_once_under_ascending_numbers() -> None:
    service = Service()
    service.read("a", 2)
    await service.reporter.report()
    service.read("b", 3)
    await service.reporter.report()
    await service.reporter.report()
    assert [(report["number"], report["reads"]) for report in service.reports] == [(1, {"a": 2}), (2, {"b": 3})]
    assert len({report["source"] for report in service.reports}) == 1


async def test_unanswered_report_is_repeated_unchanged_and_later_reads_follow() -> None:
    service = Service()
    service.read("a", 2)
    service.serving = set()
    await service.reporter.report()
    assert service.reports == []
    service.read("a", 5)
    service.serving, service.broken = {ONE}, b'{"exhausted":1}'
    await service.reporter.report()
    service.broken = None
    await service.reporter.report()
    await service.reporter.report()
    assert [(report["number"], report["reads"]) for report in service.reports] == [
        *[(1, {"a": 2})] * 2,
        (2, {"a": 5}),
    ]


async def test_stand_by_that_has_the_store_now_is_reported_to_at_once_and_first_from_then_on() -> None:
    service = Service()
    service.read("a", 2)
    await service.reporter.report()
    service.serving = {OTHER}
    service.read("a", 3)
    await service.reporter.report()
    service.read("a", 5)
    await service.reporter.report()
    assert service.dialed == [ONE, ONE, OTHER, OTHER]
    assert [report["reads"] for report in service.reports] == [{"a": 2}, {"a": 3}, {"a": 5}]


async def test_answer_that_is_none_is_a_failure_of_that_url_alone() -> None:
    service = Service()
    service.serving, service.broken = {ONE}, b"<html>"
    service.read("a", 2)
    await service.reporter.report()
    service.serving, service.broken = {OTHER}, None
    await service.reporter.report()
    assert service.dialed == [ONE, OTHER] * 2
    assert [(report["number"], report["reads"]) for report in service.reports] == [(1, {"a": 2})] * 2


async def test_the_log_names_every_url_and_its_reason_once() -> None:
    service = Service()
    service.serving = set()
    service.read("a")
    with structlog.testing.capture_logs() as logs:
        await service.reporter.report()
        await service.reporter.report()
    assert [line["error"] for line in logs] == [f"reads could not be reported: {ONE}: status 404; {OTHER}: status 404"]


async def test_key_whose_quota_is_used_up_is_sent_no_data_until_it_has_more() -> None:
    service = Service()
    meter, other = service.read("a", data=True), service.read("b", data=True)
    service.exhausted = ["a"]
    await service.reporter.report()
    assert (meter.exhausted, other.exhausted) == (True, False)
    await service.reporter.report()
    assert (service.reports[-1]["reads"], service.reports[-1]["exhausted"]) == ({}, ["a"])
    update = encode("/a", 1_700_000_000_000, 0, data=b"[1]")
    service.fanout.publish({b"/a": update})
    assert sorted(map(frame_has_data, service.sent)) == [False, True]
    assert (meter.reads, other.reads) == (0, 1)
    service.exhausted = []
    await service.reporter.report()
    assert not meter.exhausted
    service.fanout.publish({b"/a": update})
    assert all(map(frame_has_data, service.sent[2:]))


async def test_report_is_bounded_and_the_rest_follows_in_another(monkeypatch: Any) -> None:
    monkeypatch.setattr(read_reports, "MAX_ACCOUNTS", 2)
    service = Service()
    for key in "abc":
        service.read(key)
    await service.reporter.report()
    assert [(each["number"], sorted(each["reads"])) for each in service.reports] == [(1, ["a", "b"]), (2, ["c"])]


async def test_data_is_sent_and_counted_while_no_report_is_answered() -> None:
    service = Service()
    meter, service.lease = service.read("a", data=True), 1
    await service.reporter.report()
    service.serving = set()
    update = encode("/a", 1_700_000_000_000, 0, data=b"[1]")
    for _ in range(3):
        service.fanout.publish({b"/a": update})
    assert list(map(frame_has_data, service.sent)) == [True, False, False]
    await service.reporter.report()
    service.fanout.publish({b"/a": update})
    assert frame_has_data(service.sent[-1])
    service.serving = {ONE}
    await service.reporter.report()
    assert [each["reads"] for each in service.reports] == [{"a": 1}, {"a": 1}, {"a": 1}]
    assert meter.lease == 1


async def test_a_lease_that_runs_low_is_renewed_before_the_next_report_is_due() -> None:
    service = Service()
    meter, service.lease = service.read("a", data=True), 10
    await service.reporter.report()
    running = asyncio.create_task(service.reporter.run())
    assert all(meter.spend(1) for _ in range(6))
    await until(lambda: len(service.reports) == 2, within=read_reports.REPORT_EVERY_S / 2)
    assert service.reports[1]["reads"] == {"a": 6}
    running.cancel()


async def test_meters_of_keys_without_sessions_are_dropped_once_they_are_reported() -> None:
    service = Service()
    service.read("a")
    service.fanout.leave(next(iter(service.fanout.sessions)))
    for _ in range(2):
        await service.reporter.report()
    assert len(service.reports) == 1
    assert len(service.meters) == 0
