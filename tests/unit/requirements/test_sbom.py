"""The bill of materials: each package of all inputs once, by its package URL, with a licence that was accepted."""

import json
import re
import subprocess
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest

from requirements.sbom import NotAccepted, jar, join, licences

ROOT = Path(__file__).parents[3]
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)
SHIPPED = ("run", "spark", "node", "java", "figures")
LOCKS = (ROOT / "deploy/kafka/jars.lock", ROOT / "learning/spark/jars.lock", ROOT / "learning/spark/wheel/jars.lock")
A, B = "a" * 64, "b" * 64
PYTHON = {
    "components": [
        {"bom-ref": "requirements-L1", "type": "library", "name": "rich", "version": "1", "purl": "pkg:pypi/rich@1"},
        {"bom-ref": "requirements-L2", "type": "library", "name": "six", "version": "2", "purl": "pkg:pypi/six@2"},
    ],
    "dependencies": [{"ref": "requirements-L1"}, {"ref": "requirements-L2"}],
}
PAGE = {
    "components": [
        {"bom-ref": "a@1", "name": "a", "purl": "pkg:npm/a@1", "licenses": [{"license": {"id": "MIT"}}]},
        {
            "bom-ref": "b@2",
            "name": "b",
            "purl": "pkg:npm/b@2",
            "licenses": [{"license": {"id": "ISC"}}],
            "properties": [{"name": "path"}],
        },
    ],
    "dependencies": [{"ref": "diem-client@1", "dependsOn": ["a@1"]}, {"ref": "a@1", "dependsOn": ["b@2"]}],
}
JARS = f"# made by hand\norg.yaml:thing_2.13:1.2 {A}\ncommons-io:native:1 {A}\ncommons-io:native:1 {B}\n"


def test_packages_of_all_inputs_are_listed_once_by_package_url() -> None:
    document = join("1.0", [json.dumps(PYTHON), json.dumps(PYTHON), json.dumps(PAGE), JARS])
    purls = [component["purl"] for component in document["components"]]
    assert purls == [
        "pkg:maven/commons-io/native@1",
        "pkg:maven/org.yaml/thing_2.13@1.2",
        "pkg:npm/a@1",
        "pkg:npm/b@2",
        "pkg:pypi/rich@1",
        "pkg:pypi/six@2",
    ]
    assert [component["bom-ref"] for component in document["components"]] == purls
    native, thing, licensed, plain = document["components"][:4]
    assert (thing["group"], thing["name"], thing["version"]) == ("org.yaml", "thing_2.13", "1.2")
    assert thing["hashes"] == [{"alg": "SHA-256", "content": A}]
    assert "hashes" not in native, "the coordinate has two files"
    assert licensed["licenses"] == [{"license": {"id": "MIT"}}]
    assert "properties" not in plain
    assert document["dependencies"] == [{"ref": "pkg:npm/a@1", "dependsOn": ["pkg:npm/b@2"]}]


def test_no_lock_file_is_left_out_of_the_bill_of_materials_or_the_audit() -> None:
    commands = subprocess.run(["make", "-n", "audit"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rooms = [room for room in ROOT.glob("[a-z]*") if room.name not in {"client", "build"}]
    jars = [str(lock.relative_to(ROOT)) for room in rooms for lock in room.rglob("jars.lock")]
    assert len(jars) >= 3
    assert [lock for lock in jars if lock not in commands] == []
    shipped = commands.partition("for name in ")[2].partition(";")[0].split()
    locks = {lock.stem for lock in (ROOT / "requirements").glob("*.txt")}
    assert locks - set(shipped) == {"test", "docs", "quality"}
    assert set(shipped) < locks
    assert "for lock in requirements/*.txt" in commands


def test_every_locked_package_has_an_accepted_licence() -> None:
    locked = [line for name in SHIPPED for line in PINNED.findall((ROOT / "requirements" / f"{name}.txt").read_text())]
    for name, version in locked:
        (listed,) = licences({"purl": f"pkg:pypi/{name}@{version}"})
        try:
            own = metadata(name)["License-Expression"]
        except PackageNotFoundError:
            continue
        assert own in {None, listed["expression"]}, name
    jars = [line for path in LOCKS for line in path.read_text().splitlines() if not line.startswith("#")]
    assert all(licences(jar(*line.split())) for line in jars)
    packages = json.loads((ROOT / "client" / "package-lock.json").read_text())["packages"]
    for path, package in packages.items():
        named = [{"license": {"id": package["license"]}}]
        assert licences({"purl": f"pkg:npm/{path}", "licenses": named}) == named


@pytest.mark.parametrize(
    "component",
    [
        {"purl": "pkg:pypi/unknown@1"},
        {"purl": "pkg:maven/org.unknown/thing@1"},
        {"purl": "pkg:npm/unknown@1"},
        {"purl": "pkg:npm/closed@1", "licenses": [{"license": {"id": "SSPL-1.0"}}]},
    ],
)
def test_a_package_without_an_accepted_licence_is_refused(component: dict[str, Any]) -> None:
    with pytest.raises(NotAccepted, match=component["purl"]):
        licences(component)


def test_licences_of_artifacts_precede_those_of_their_groups() -> None:
    ((api,), (bridge,)) = (
        licences({"purl": f"pkg:maven/org.slf4j/{name}@1"}) for name in ("slf4j-api", "jcl-over-slf4j")
    )
    assert (api["expression"], bridge["expression"]) == ("MIT", "Apache-2.0")
