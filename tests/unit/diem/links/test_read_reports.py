"""Reports of reads against a scripted Data Service."""

from types import SimpleNamespace
from typing import Any, cast

import orjson
import structlog

from diem.fanout.fanout import Fanout
from diem.fanout.read_meter import ReadMeter, ReadMeters
from diem.fanout.session import DeliveryStats, Session
from diem.links import read_reports
from diem.links.edge import Edge
from diem.links.read_reports import ReadReporter, ReportFailed

ONE, OTHER = "http://one/reads", "http://other/reads"


class Service:
    """Records reports; answers with the keys whose quota is used up, or with the bytes in ``broken``.

    Only those at the URLs in ``serving`` have the store.
    """

    def __init__(self) -> None:
        self.meters = ReadMeters()
        self.connections: list[SimpleNamespace] = []
        self.reports: list[dict[str, Any]] = []
        self.dialed: list[str] = []
        self.serving = {ONE}
        self.exhausted: list[str] = []
        self.broken: bytes | None = None
        edge = SimpleNamespace(connections=self.connections, fanout=Fanout())
        self.reporter = ReadReporter(self.meters, cast("Edge", edge), (ONE, OTHER), self.post)

    async def post(self, url: str, body: bytes) -> bytes:
        self.dialed.append(url)
        if url not in self.serving:
            raise ReportFailed("status 404")
        self.reports.append(orjson.loads(body))
        return orjson.dumps({"exhausted": self.exhausted}) if self.broken is None else self.broken

    def read(self, key: str, reads: int = 1) -> ReadMeter:
        meter = self.meters.of(key)
        meter.reads += reads
        session = Session(lambda _: None, lambda _: None, DeliveryStats())
        session.meter = meter
        self.connections.append(SimpleNamespace(session=session))
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


async def test_key_whose_quota_is_used_up_is_asked_about_until_it_has_more() -> None:
    service = Service()
    meter, other = service.read("a"), service.read("b")
    service.exhausted = ["a"]
    await service.reporter.report()
    assert (meter.exhausted, other.exhausted) == (True, False)
    await service.reporter.report()
    assert (service.reports[-1]["reads"], service.reports[-1]["exhausted"]) == ({}, ["a"])
    assert meter.exhausted
    service.exhausted = []
    await service.reporter.report()
    assert not meter.exhausted
    await service.reporter.report()
    assert len(service.reports) == 3


async def test_report_is_bounded_and_the_rest_follows(monkeypatch: Any) -> None:
    monkeypatch.setattr(read_reports, "MAX_KEYS", 2)
    service = Service()
    for key in "abc":
        service.read(key)
    await service.reporter.report()
    await service.reporter.report()
    assert [sorted(report["reads"]) for report in service.reports] == [["a", "b"], ["c"]]


async def test_meters_of_keys_without_connections_are_dropped_once_they_are_reported() -> None:
    service = Service()
    service.read("a")
    service.connections.clear()
    await service.reporter.report()
    assert len(service.reports) == 1
    assert len(service.meters) == 0
