"""Lock files of all kinds are read whole: each package once, with hash, scope and dependencies."""

import json
import re
from pathlib import Path

from deploy.audit.locks import (
    BUNDLED,
    JAR_LOCKS,
    PYTHON_LOCKS,
    ROOT,
    Ecosystem,
    Scope,
    all_packages,
    jar_packages,
    npm_packages,
    of_ecosystem,
    python_packages,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64
PYTHON = f"""\
one==1.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via diem (pyproject.toml)
two-three==2.0.post1 ; sys_platform == 'win32' \\
    --hash=sha256:{C}
    # via
    #   diem (pyproject.toml)
    #   one
four[extra]==4 \\
    --hash=sha256:{A}
    # via two-three
""".replace("four[extra]", "four")
NPM = {
    "lockfileVersion": 3,
    "packages": {
        "": {"devDependencies": {"a": "1"}},
        "node_modules/a": {
            "version": "1.0.0",
            "integrity": "sha512-AAEC",
            "license": "MIT",
            "dependencies": {"@s/b": "^2"},
        },
        "node_modules/@s/b": {"version": "1.0.0"},
        "node_modules/a/node_modules/@s/b": {"version": "2.0.0", "optionalDependencies": {"absent": "1", "a": "1"}},
    },
}


def test_a_python_lock_has_names_versions_and_who_needs_what() -> None:
    one, two, four = python_packages(PYTHON, Scope.required)
    assert [package.purl for package in (one, two, four)] == [
        "pkg:pypi/one@1.0",
        "pkg:pypi/two-three@2.0.post1",
        "pkg:pypi/four@4",
    ]
    assert [package.direct for package in (one, two, four)] == [True, True, False]
    assert one.needs == {two.purl}
    assert two.needs == {four.purl}
    assert one.hashes == {}, "the lock allows two files"
    assert two.hashes == {"SHA-256": C}


def test_an_npm_lock_resolves_dependencies_as_node_does() -> None:
    a, outer, inner = npm_packages(NPM)
    assert (a.purl, a.licence, a.direct, a.hashes) == ("pkg:npm/a@1.0.0", "MIT", True, {"SHA-512": "000102"})
    assert a.needs == {inner.purl} == {"pkg:npm/%40s/b@2.0.0"}
    assert inner.needs == {a.purl}
    assert (outer.version, outer.needs, outer.direct) == ("1.0.0", frozenset(), False)


def test_a_jar_has_group_artifact_and_version() -> None:
    (jar,) = jar_packages(f"# made by hand\norg.example:thing_2.13:1.2.3 {A}\n")
    assert (jar.purl, jar.hashes) == ("pkg:maven/org.example/thing_2.13@1.2.3", {"SHA-256": A})


def test_no_locked_package_is_left_out() -> None:
    found = all_packages()
    purls = [package.purl for package in found]
    assert len(set(purls)) == len(purls)
    lines = {
        line.split(" ")[0]
        for lock in (ROOT / "requirements").glob("*.txt")
        for line in lock.read_text().splitlines()
        if re.match(r"[A-Za-z0-9]", line)
    }
    assert {f"{one.name}=={one.version}" for one in of_ecosystem(found, Ecosystem.PYTHON)} == lines
    entries = json.loads((ROOT / "client" / "package-lock.json").read_text())["packages"]
    expected = {(path.rpartition("node_modules/")[2], entry["version"]) for path, entry in entries.items() if path}
    assert {(one.name, one.version) for one in of_ecosystem(found, Ecosystem.NPM)} == expected
    jars = [line for lock in JAR_LOCKS for line in (ROOT / lock).read_text().splitlines() if line[:1].isalpha()]
    assert {f"{one.name}:{one.version}" for one in of_ecosystem(found, Ecosystem.MAVEN)} == {
        line.split(" ")[0] for line in jars
    }


def test_every_lock_file_of_the_repository_is_known() -> None:
    assert set(PYTHON_LOCKS) == {lock.stem for lock in (ROOT / "requirements").glob("*.txt")}
    assert set(JAR_LOCKS) == {
        str(lock.relative_to(ROOT)) for room in ("deploy", "learning") for lock in (ROOT / room).rglob("jars.lock")
    }


def test_a_package_has_the_strongest_of_its_scopes() -> None:
    scopes = {package.name: package.scope for package in all_packages()}
    assert scopes["websockets"] is Scope.required
    assert scopes["pyspark"] is Scope.optional
    assert scopes["pytest"] is Scope.excluded


def test_exactly_the_bundled_packages_are_imported_by_the_page_and_the_sdk() -> None:
    sources = (Path(ROOT) / "client" / "src").rglob("*.ts")
    imported = {name for file in sources for name in re.findall(r'(?:from|import) "([^."/][^"]*)"', file.read_text())}
    assert {name.split("/")[0] for name in imported} == BUNDLED
