"""An audit passes only if every package was checked: silence, refusals and partial answers are reported."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from deploy.audit.__main__ import EXIT_INCOMPLETE, EXIT_VULNERABLE, report
from deploy.audit.advisories import PIP_AUDIT, Audit, Finding, audit_jars, audit_python, read_npm_audit, read_pip_audit
from deploy.audit.locks import Ecosystem, Package, Scope

JARS = [Package(Ecosystem.MAVEN, f"org.example:{name}", "1.0", Scope.optional) for name in ("good", "bad")]
PYTHON = [Package(Ecosystem.PYTHON, name, "1.0", Scope.required) for name in ("good", "bad")]
CLEAN = {"name": "good", "version": "1.0", "vulns": []}
VULNERABLE = {"name": "bad", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
SKIPPED = {"name": "bad", "skip_reason": "Dependency not found on PyPI and could not be audited: bad (1.0)"}


def pip_audit(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": list(dependencies), "fixes": []})


def test_pip_audit_findings_are_read() -> None:
    audit = read_pip_audit(pip_audit(CLEAN, VULNERABLE), 2)
    assert audit.complete
    assert audit.findings == [Finding("bad", "1.0", "PYSEC-1", "1.1")]


def test_packages_that_pip_audit_skips_are_not_checked_though_it_reports_no_vulnerability() -> None:
    audit = read_pip_audit(pip_audit(CLEAN, SKIPPED), 2)
    assert (audit.checked, audit.complete) == (1, False)
    assert audit.failure == SKIPPED["skip_reason"]


def test_a_package_that_pip_audit_does_not_mention_is_not_checked() -> None:
    assert not read_pip_audit(pip_audit(CLEAN), 2).complete


@pytest.mark.parametrize("answer", ["", "ERROR:pip_audit: Failed to connect", "[]", "{}"])
def test_a_pip_audit_that_fails_has_checked_nothing(answer: str) -> None:
    audit = read_pip_audit(answer, 2)
    assert (audit.checked, audit.complete) == (0, False)
    assert audit.failure


def test_pip_audit_is_that_of_the_environment_in_use() -> None:
    # ``make audit VENV=DIRECTORY`` installs it there, not below ``.venv``.
    assert str(PIP_AUDIT) == f"{sys.prefix}/audit/bin/pip-audit"


def test_pip_audit_is_run_on_exactly_the_locked_versions_and_never_on_two_of_one_package(tmp_path: Path) -> None:
    program = tmp_path / "pip-audit"
    # Reports each line of its requirements as one dependency without advisories.
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        "lines = pathlib.Path(sys.argv[-1]).read_text().split()\n"
        "with pathlib.Path(__file__).with_name('runs').open('a') as runs:\n"
        "    print(*lines, file=runs)\n"
        "print(json.dumps({'dependencies': [{'name': line, 'version': '', 'vulns': []} for line in lines]}))\n"
    )
    program.chmod(0o755)
    older = Package(Ecosystem.PYTHON, "good", "0.9", Scope.optional)
    audit = audit_python([*PYTHON, older], program)
    assert (audit.packages, audit.checked, audit.complete) == (3, 3, True)
    assert (tmp_path / "runs").read_text().splitlines() == ["good==1.0 bad==1.0", "good==0.9"]


def test_without_pip_audit_nothing_is_checked(tmp_path: Path) -> None:
    audit = audit_python(PYTHON, tmp_path / "absent")
    assert (audit.checked, audit.complete) == (0, False)
    assert "No such file" in audit.failure


def test_npm_findings_are_read_once_each() -> None:
    advisory = {"title": "Bad", "url": "https://example.org/GHSA-1", "range": "<2"}
    answer = {"vulnerabilities": {"bad": {"via": [advisory], "range": "<2"}, "user": {"via": ["bad"], "range": "*"}}}
    audit = read_npm_audit(json.dumps(answer), 5)
    assert audit.complete
    assert audit.findings == [Finding("bad", "<2", "https://example.org/GHSA-1")]
    assert read_npm_audit('{"vulnerabilities": {}}', 5).complete


@pytest.mark.parametrize(
    "answer", ["", "npm error", '{"message": "405 Method Not Allowed"}', '{"error": {"summary": "no network"}}', "{}"]
)
def test_an_npm_audit_that_fails_has_checked_nothing(answer: str) -> None:
    audit = read_npm_audit(answer, 5)
    assert (audit.checked, audit.complete) == (0, False)
    assert audit.failure


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV does: one result a query, in the order of the queries."""

    answer: Any = None

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        purls = [query["package"]["purl"] for query in asked["queries"]]
        results = [{"vulns": [{"id": "GHSA-2", "modified": ""}]} if "/bad@" in purl else {} for purl in purls]
        body = json.dumps(Osv.answer if Osv.answer is not None else {"results": results}).encode()
        self.send_response(200 if self.path == "/v1/querybatch" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def osv(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Osv, "answer", None)
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_jars_are_looked_up_by_their_package_urls(osv: str) -> None:
    audit = audit_jars(JARS, osv)
    assert audit.complete
    assert audit.findings == [Finding("org.example:bad", "1.0", "GHSA-2")]


@pytest.mark.parametrize("answer", [{}, [], {"results": []}, {"results": [{}]}, {"results": None}])
def test_an_answer_that_lacks_jars_is_not_complete(osv: str, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Osv, "answer", answer)
    audit = audit_jars(JARS, osv)
    assert not audit.complete
    assert audit.checked < 2
    assert audit.failure


def test_a_database_that_cannot_be_reached_is_a_failure(osv: str) -> None:
    assert not audit_jars(JARS, f"{osv}/elsewhere").complete
    assert not audit_jars(JARS, "http://127.0.0.1:1").complete


def test_the_exit_code_tells_clean_vulnerable_and_unchecked_apart() -> None:
    clean = Audit("jars", 2, 2)
    vulnerable = Audit("Python", 2, 2, [Finding("bad", "1.0", "PYSEC-1", "1.1")])
    unchecked = Audit("page and SDK", 5, 0, failure="405 Method Not Allowed")
    text, code = report([clean])
    assert (code, "no known vulnerability" in text) == (0, True)
    text, code = report([clean, unchecked])
    assert (code, "no known vulnerability" in text) == (EXIT_INCOMPLETE, False)
    assert "NOT CHECKED: 5 of page and SDK: 405 Method Not Allowed" in text
    text, code = report([vulnerable, unchecked])
    assert code == EXIT_VULNERABLE
    assert "Python: bad 1.0: PYSEC-1, fixed in 1.1" in text
    assert "NOT CHECKED" in text
