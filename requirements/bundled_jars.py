"""The jars inside PySpark's wheel, for the bill of materials and the audit: ``wheel/jars.lock``.

``python -m requirements.bundled_jars`` rewrites it from the installed wheel, after a change of its version. Shaded
classes inside a jar are not detected.
"""

import hashlib
import importlib.util
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.jars import Jar
from diem.errors import ConfigurationError
from diem.process.files import replace_file

LOCK: Final = Path(__file__).parents[1] / "learning" / "spark" / "wheel" / "jars.lock"
HEADER: Final = "# Made by `python -m requirements.bundled_jars`: what is inside PySpark's wheel, with sha256.\n"
_POM: Final = re.compile(r"META-INF/maven/([^/]+)/([^/]+)/pom\.properties")
_VERSION: Final = re.compile(r"^version=(\S+)", re.MULTILINE)
_FILE: Final = re.compile(r"(.+?)-(\d.*)\.jar")
GROUPS: Final[Mapping[str, str]] = {
    "RoaringBitmap": "org.roaringbitmap",
    "algebra_2.13": "org.typelevel",
    "annotations": "org.jetbrains",
    "arpack_combined_all": "net.sourceforge.f2j",
    "bcprov-jdk18on": "org.bouncycastle",
    "breeze-macros_2.13": "org.scalanlp",
    "breeze_2.13": "org.scalanlp",
    "cats-kernel_2.13": "org.typelevel",
    "checker-qual": "org.checkerframework",
    "chill-java": "com.twitter",
    "chill_2.13": "com.twitter",
    "derby": "org.apache.derby",
    "derbyshared": "org.apache.derby",
    "derbytools": "org.apache.derby",
    "hadoop-client-runtime": "org.apache.hadoop",
    "ivy": "org.apache.ivy",
    "jackson-core-asl": "org.codehaus.jackson",
    "jackson-mapper-asl": "org.codehaus.jackson",
    "jackson-module-scala_2.13": "com.fasterxml.jackson.module",
    "jdo-api": "javax.jdo",
    "jodd-core": "org.jodd",
    "json4s-ast_2.13": "org.json4s",
    "json4s-core_2.13": "org.json4s",
    "json4s-jackson-core_2.13": "org.json4s",
    "json4s-jackson_2.13": "org.json4s",
    "json4s-scalap_2.13": "org.json4s",
    "jsr305": "com.google.code.findbugs",
    "jta": "javax.transaction",
    "libfb303": "org.apache.thrift",
    "libthrift": "org.apache.thrift",
    "lz4-java": "org.lz4",
    "objenesis": "org.objenesis",
    "oro": "oro",
    "rocksdbjni": "org.rocksdb",
    "scala-collection-compat_2.13": "org.scala-lang.modules",
    "scala-compiler": "org.scala-lang",
    "scala-library": "org.scala-lang",
    "scala-parallel-collections_2.13": "org.scala-lang.modules",
    "scala-parser-combinators_2.13": "org.scala-lang.modules",
    "scala-reflect": "org.scala-lang",
    "scala-xml_2.13": "org.scala-lang.modules",
    "snappy-java": "org.xerial.snappy",
    "spire-macros_2.13": "org.typelevel",
    "spire-platform_2.13": "org.typelevel",
    "spire-util_2.13": "org.typelevel",
    "spire_2.13": "org.typelevel",
    "stax-api": "stax",
    "tink": "com.google.crypto.tink",
    "transaction-api": "javax.transaction",
    "xz": "org.tukaani",
    "zstd-jni": "com.github.luben",
}
"""Groups of artifacts whose jars do not state them."""


@dataclass(eq=False)
class UnknownJar(ConfigurationError):
    """A jar names no group, and ``GROUPS`` has none for it."""

    template = "{file} names no group: add that of its artifact to GROUPS in requirements/bundled_jars.py"

    file: str


def wheel() -> Path | None:
    """Return the folder of the installed wheel's jars; None without PySpark."""
    found = importlib.util.find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent / "jars"


def coordinate(jar: Path) -> str:
    """Return ``group:artifact:version``, by what Maven has written into the jar.

    Raises:
        UnknownJar: it has written nothing, and the group is not known otherwise.
    """
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            # A jar may hold others.
            if (match := _POM.fullmatch(name)) and re.match(rf"{re.escape(match[2])}-\d", jar.name):
                version = _VERSION.search(archive.read(name).decode())
                if version is not None:
                    return f"{match[1]}:{match[2]}:{version[1]}"
    named = _FILE.fullmatch(jar.name)
    if named is None or named[1] not in GROUPS:
        raise UnknownJar(jar.name)
    return f"{GROUPS[named[1]]}:{named[1]}:{named[2]}"


def bundled(folder: Path) -> Iterator[Jar]:
    """Yield all jars, with their checksums. Raises ``UnknownJar``."""
    for jar in sorted(folder.glob("*.jar")):
        yield Jar(coordinate(jar), hashlib.sha256(jar.read_bytes()).hexdigest())


if __name__ == "__main__":
    if (jars := wheel()) is None:
        sys.exit("PySpark is not installed: make install-spark")
    replace_file(LOCK, "".join([HEADER, *(f"{one.coordinate} {one.sha256}\n" for one in bundled(jars))]).encode())
