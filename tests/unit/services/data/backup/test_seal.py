"""The container of backups: what is read is what was written, or the file is refused; in constant memory."""

import io
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.errors import ConfigurationError
from diem.process.auth import BadKeyFile
from services.data.backup import seal
from services.data.backup.errors import BadBackup
from services.data.backup.seal import CHUNK_BYTES, BackupKey, RestoreKeys, SealedWriter, unsealed
from tests.support.backups import key_file, keys_of

CONTENT = random.Random(1).randbytes(3 * CHUNK_BYTES + 1000)
TAGS = {False: 32, True: 16}
seals = pytest.mark.parametrize("encrypt", [False, True], ids=["authenticated", "encrypted"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups") / "file"


def sealed(path: Path, content: bytes = CONTENT, *, encrypt: bool = False) -> bytes:
    file = io.BytesIO()
    writer = SealedWriter(file, BackupKey.of_file(key_file(path)), encrypt=encrypt)
    for start in range(0, len(content), 10_000):
        writer.write(content[start : start + 10_000])
    writer.finish()
    return file.getvalue()


def opened(path: Path, data: bytes) -> bytes:
    return unsealed(path, io.BytesIO(data), keys_of(path))().read()


def parts(data: bytes, *, encrypt: bool) -> tuple[bytes, list[bytes]]:
    """Return what is before the chunks, and the chunks with their tags."""
    size = CHUNK_BYTES + TAGS[encrypt]
    begin = data.index(b"\n", data.index(b"\n") + 1) + 1 + 32
    return data[:begin], [data[start : start + size] for start in range(begin, len(data), size)]


@seals
@pytest.mark.parametrize("size", [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, len(CONTENT)])
def test_what_is_read_is_what_was_written(path: Path, encrypt: bool, size: int) -> None:
    data = sealed(path, CONTENT[:size], encrypt=encrypt)
    assert opened(path, data) == CONTENT[:size]
    assert (CONTENT[:64] in data) is (not encrypt and size >= 64)


@pytest.mark.parametrize("encrypt", [False, True])
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_detected(path: Path, encrypt: bool, position: float, bit: int) -> None:
    data = bytearray(sealed(path, encrypt=encrypt))
    data[int(position * len(data))] ^= 1 << bit
    with pytest.raises(BadBackup):
        opened(path, bytes(data))


@seals
def test_every_flipped_byte_of_the_head_and_of_a_short_backup_is_detected(path: Path, encrypt: bool) -> None:
    data = sealed(path, b"short", encrypt=encrypt)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x20
        with pytest.raises(BadBackup):
            opened(path, bytes(changed))


@seals
@given(share=st.floats(0, 1, exclude_max=True), chunks=st.integers(0, 3))
def test_any_truncation_is_detected(path: Path, encrypt: bool, share: float, chunks: int) -> None:
    data = sealed(path, encrypt=encrypt)
    head, stored = parts(data, encrypt=encrypt)
    for cut in (data[: int(share * len(data))], head + b"".join(stored[:chunks])):
        with pytest.raises(BadBackup):
            opened(path, cut)


@seals
@given(order=st.lists(st.integers(0, 3), max_size=6).filter(lambda order: order != [0, 1, 2, 3]))
def test_chunks_in_another_order_are_detected(path: Path, encrypt: bool, order: list[int]) -> None:
    head, stored = parts(sealed(path, encrypt=encrypt), encrypt=encrypt)
    assert len(stored) == 4
    with pytest.raises(BadBackup):
        opened(path, head + b"".join(stored[number] for number in order))


@seals
@given(mine=st.lists(st.booleans(), min_size=5, max_size=5).filter(lambda mine: len(set(mine)) == 2))
def test_a_splice_of_two_backups_of_one_key_is_detected(path: Path, encrypt: bool, mine: list[bool]) -> None:
    both = [parts(sealed(path, encrypt=encrypt), encrypt=encrypt) for _ in range(2)]
    heads, chunks = zip(*both, strict=True)
    spliced = heads[mine[0]] + b"".join(chunks[mine[number + 1]][number] for number in range(4))
    with pytest.raises(BadBackup):
        opened(path, spliced)


@seals
@given(added=st.binary(min_size=1, max_size=100))
def test_added_bytes_are_detected(path: Path, encrypt: bool, added: bytes) -> None:
    with pytest.raises(BadBackup):
        opened(path, sealed(path, encrypt=encrypt) + added)


def test_nothing_of_a_changed_chunk_is_read(path: Path) -> None:
    head, stored = parts(sealed(path), encrypt=False)
    changed = bytearray(stored[1])
    changed[-40] ^= 1
    content = unsealed(path, io.BytesIO(head + stored[0] + bytes(changed) + b"".join(stored[2:])), keys_of(path))()
    assert content.read(CHUNK_BYTES) == CONTENT[:CHUNK_BYTES]
    with pytest.raises(BadBackup, match=f"changed or cut after {CHUNK_BYTES} bytes"):
        content.read(1)


@seals
def test_writing_and_reading_take_constant_memory(path: Path, tmp_path: Path, encrypt: bool) -> None:
    block, blocks = bytes(1 << 20), 8
    tracemalloc.start()
    with (tmp_path / "file").open("wb") as file:
        writer = SealedWriter(file, BackupKey.of_file(key_file(path)), encrypt=encrypt)
        for _ in range(blocks):
            writer.write(block)
        writer.finish()
    total = 0
    with (tmp_path / "file").open("rb") as file:
        content = unsealed(path, file, keys_of(path))()
        while some := content.read(100_000):
            total += len(some)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == blocks << 20
    assert peak < 4 << 20


def test_a_backup_of_another_key_is_refused(path: Path, tmp_path: Path) -> None:
    data = sealed(path)
    with pytest.raises(BadBackup, match="not made with this key"):
        opened(tmp_path / "file", data)
    with pytest.raises(BadKeyFile, match="No such file"):
        unsealed(path, io.BytesIO(data), RestoreKeys(tmp_path / "none"))


def passphrase(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_passphrase_encrypts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # With its own parameters each derivation takes a third of a second: a test of `diem backup` has one.
    monkeypatch.setattr(seal, "_SCRYPT", {**seal._SCRYPT, "n": 2**10})
    right = passphrase(tmp_path / "right", "correct horse battery\n")
    file = io.BytesIO()
    writer = SealedWriter(file, BackupKey.of_passphrase_file(right), encrypt=True)
    writer.write(CONTENT)
    writer.finish()

    def content(chosen: Path | None) -> BinaryIO:
        file.seek(0)
        return unsealed(tmp_path / "file", file, RestoreKeys(tmp_path / "no key", chosen))()

    assert content(right).read() == CONTENT
    with pytest.raises(BadBackup, match="not made with this passphrase"):
        content(passphrase(tmp_path / "wrong", "correct horse stables"))
    with pytest.raises(BadBackup, match="give --passphrase-file"):
        content(None)


def test_unusable_passphrases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="12 to 1024 bytes"):
        BackupKey.of_passphrase_file(passphrase(tmp_path / "short", " too short\n\n"))
    with pytest.raises(ConfigurationError, match="12 to 1024 bytes"):
        BackupKey.of_passphrase_file(passphrase(tmp_path / "long", "x" * 1025))
    shown = passphrase(tmp_path / "shown", "correct horse battery")
    shown.chmod(0o644)
    with pytest.raises(BadKeyFile, match="others may read it"):
        BackupKey.of_passphrase_file(shown)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"PK\x03\x04" + data, "not a backup of DIEM"),
        (lambda _: b"", "not a backup of DIEM"),
        (lambda data: data.replace(b"diem.backup/2", b"diem.backup/3"), "not a backup of DIEM"),
        (lambda data: data.replace(b'"file"', b'"fire"'), "beginning was changed"),
        (lambda data: data.replace(b'"file"', b'"passphrase"'), "give --passphrase-file"),
        (lambda data: data.replace(b"false", b"true"), "not made with this key"),
        (lambda data: data[:30], "beginning was changed"),
        (lambda data: data.replace(b'"}\n', b'"}' + b" " * 1000 + b"\n"), "beginning was changed"),
    ],
)
def test_another_beginning_is_refused(path: Path, change: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(BadBackup, match=why):
        opened(path, change(sealed(path)))
