"""The key document as a file that edges follow."""

from pathlib import Path

from diem.tokens.key_source import KeySource
from diem.tokens.verifier import Verifier
from services.data.access.key_file import KeyDocumentFile
from services.data.access.tokens import KeyDocument
from tests.support.tokens import NOW, Issuer, key_set


class Document:
    """A document that changes."""

    def __init__(self, *issuers: Issuer) -> None:
        self.issuers = issuers

    def __call__(self) -> KeyDocument:
        return KeyDocument(key_set(*self.issuers), f'"{[issuer.kid for issuer in self.issuers]}"')


def test_an_edge_can_read_what_was_written(tmp_path: Path) -> None:
    issuer, path, verifier = Issuer(), tmp_path / "token-keys.json", Verifier()
    KeyDocumentFile(path, Document(issuer)).write()
    assert path.stat().st_mode & 0o777 == 0o600
    KeySource([str(path)], verifier).load_files()
    assert verifier.verify(issuer.token(), NOW).subject == "alice"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_only_a_change_is_written(tmp_path: Path) -> None:
    path, document = tmp_path / "token-keys.json", Document(Issuer("a"))
    file = KeyDocumentFile(path, document)
    file.write()
    first = path.stat().st_ino
    file.write()
    assert path.stat().st_ino == first
    document.issuers = (*document.issuers, Issuer("b"))
    file.write()
    assert b'"b"' in path.read_bytes()


def test_a_failure_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "token-keys.json"
    file = KeyDocumentFile(path, Document(Issuer()))
    file.write()
    path.parent.mkdir()
    file.write()
    assert path.exists()
