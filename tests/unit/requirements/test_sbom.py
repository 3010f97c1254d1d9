"""The bill of materials: each package of all inputs once, by its package URL."""

import json
import subprocess
from pathlib import Path

from requirements.sbom import join

ROOT = Path(__file__).parents[3]
A, B = "a" * 64, "b" * 64
PYTHON = {
    "components": [
        {"bom-ref": "requirements-L1", "type": "library", "name": "one", "version": "1", "purl": "pkg:pypi/one@1"},
        {"bom-ref": "requirements-L2", "type": "library", "name": "two", "version": "2", "purl": "pkg:pypi/two@2"},
    ],
    "dependencies": [{"ref": "requirements-L1"}, {"ref": "requirements-L2"}],
}
PAGE = {
    "components": [
        {"bom-ref": "a@1", "name": "a", "purl": "pkg:npm/a@1", "licenses": [{"license": {"id": "MIT"}}]},
        {"bom-ref": "b@2", "name": "b", "purl": "pkg:npm/b@2", "properties": [{"name": "path"}]},
    ],
    "dependencies": [{"ref": "diem-client@1", "dependsOn": ["a@1"]}, {"ref": "a@1", "dependsOn": ["b@2"]}],
}
JARS = f"# made by hand\norg.example:thing_2.13:1.2 {A}\norg.example:native:1 {A}\norg.example:native:1 {B}\n"


def test_packages_of_all_inputs_are_listed_once_by_package_url() -> None:
    document = join("1.0", [json.dumps(PYTHON), json.dumps(PYTHON), json.dumps(PAGE), JARS])
    purls = [component["purl"] for component in document["components"]]
    assert purls == [
        "pkg:maven/org.example/native@1",
        "pkg:maven/org.example/thing_2.13@1.2",
        "pkg:npm/a@1",
        "pkg:npm/b@2",
        "pkg:pypi/one@1",
        "pkg:pypi/two@2",
    ]
    assert [component["bom-ref"] for component in document["components"]] == purls
    native, thing, licensed, plain = document["components"][:4]
    assert (thing["group"], thing["name"], thing["version"]) == ("org.example", "thing_2.13", "1.2")
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
