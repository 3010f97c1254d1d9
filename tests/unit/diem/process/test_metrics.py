import re
from pathlib import Path

import pytest

from diem.process import metrics
from diem.process.settings import PROCESSES
from tests.support.metrics import OF_EVERY_PROCESS, rows

ROOT = Path(__file__).parents[4]


def test_registered_samples_appear_with_their_labels() -> None:
    counts = {"4002": 3}
    forget = metrics.register(
        lambda: [metrics.CLIENTS.sample(7), *(metrics.CLOSES.sample(n, code) for code, n in counts.items())]
    )
    try:
        text = metrics.render()[0].decode()
        assert "\ndiem_clients 7.0\n" in text
        assert '\ndiem_closes_total{code="4002"} 3.0\n' in text
        counts["4002"] = 4
        assert '\ndiem_closes_total{code="4002"} 4.0\n' in metrics.render()[0].decode()
    finally:
        forget()
    assert "diem_clients" not in metrics.render()[0].decode()


def test_two_registrations_of_one_metric_are_one_family() -> None:
    forgets = [
        metrics.register(lambda name=name: [metrics.SOURCE_POLLS.sample(1, name)])  # type: ignore[misc]
        for name in ("a", "b")
    ]
    try:
        text = metrics.render()[0].decode()
        assert text.count("# TYPE diem_source_polls_total counter") == 1
        assert 'source="b"' in text
    finally:
        for forget in forgets:
            forget()


def test_sample_with_wrong_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="takes the labels"):
        metrics.CLOSES.sample(1)


def test_names_are_unique_prefixed_and_explained() -> None:
    names = [metric.name for metric in metrics.ALL]
    assert len(set(names)) == len(names) > 25
    assert all(name.startswith("diem_") for name in names)
    assert all(metric.help.endswith(".") for metric in metrics.ALL)


def test_scrape_is_plain_text_with_the_process_itself() -> None:
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    assert set(re.findall(r"^# TYPE (process_\w+)", body.decode(), re.MULTILINE)) == OF_EVERY_PROCESS


def test_the_document_lists_every_metric_as_it_is_defined() -> None:
    listed = {row.name: row for row in rows() if row.name not in OF_EVERY_PROCESS}
    assert len(rows()) == len(listed) + len(OF_EVERY_PROCESS)
    assert listed.keys() == {each.exposed_name for each in metrics.ALL}
    for each in metrics.ALL:
        row = listed[each.exposed_name]
        assert (row.kind, row.labels, row.meaning) == (each.kind, each.labels, each.help)
        assert row.processes.keys() <= {*PROCESSES, "every", "pipeline", "canary"}


def test_every_metric_is_sampled_somewhere() -> None:
    """Those that are exposed at times only are in no test of a running system."""
    rooms = ("bridge", "deploy", "diem", "learning", "metadata", "proxy", "services", "tools")
    source = "".join(file.read_text() for room in rooms for file in (ROOT / room).rglob("*.py"))
    names = {name: each for name, each in vars(metrics).items() if isinstance(each, metrics.Definition)}
    assert len(names) == len(metrics.ALL)
    assert names.keys() - set(re.findall(r"\b([A-Z][A-Z0-9_]*)\.sample\(", source)) == set()
