"""The process of ``reader``: converts files from standard input until its end, each within bounds."""

import gc
import os
import pickle
import resource
import sys
from dataclasses import fields
from typing import Any, BinaryIO, Final

import orjson

from services.data.errors import DataError, DatasetTooLarge, InvalidDataset
from services.data.files.convert import convert
from services.data.files.frames import FRAME, SUGGEST, Bounds
from services.data.files.grid import FileLimits, InputFile
from services.data.files.mapping import Mapping
from services.data.files.target import FileTarget
from services.data.kinds import Representation

_SHOWN: Final = 300
"""Characters of a defect."""
Head = dict[str, object]


def main() -> None:
    """Answer requests until the end of standard input."""
    requests = sys.stdin.buffer
    # What libraries print goes nowhere.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Traversing the values of a large file time and again takes a fifth of the conversion.
    gc.freeze()
    gc.disable()
    while header := requests.read(FRAME.size):
        head_bytes, body_bytes = FRAME.unpack(header)
        head = pickle.loads(requests.read(head_bytes))  # noqa: S301  # of the process that started this one
        for frame in _answer(head, requests.read(body_bytes)):
            _send(answers, *frame)
        answers.flush()
        gc.collect()


def _answer(head: Any, body: bytes) -> list[tuple[Head, bytes]]:  # noqa: ANN401  # any pickled value
    """Return the frames of an answer."""
    name, media_type, given, task, arguments = head
    file, bounds = InputFile(name, body, media_type), Bounds(*given)
    try:
        _limit(bounds)
        return _suggested(file, *arguments) if task == SUGGEST else _converted(file, *arguments)
    except MemoryError:
        mebibytes = bounds.memory_bytes // (1024 * 1024)
        return [_error(DatasetTooLarge(f"its conversion needs more than {mebibytes} MiB of memory: split the file"))]
    except RecursionError:
        return [_error(InvalidDataset("nested too deeply"))]
    except DataError as error:
        return [_error(error)]
    except Exception as error:  # noqa: BLE001  # a defect ends neither this process nor the other
        return [({"error": "", "text": f"{type(error).__name__}: {error}"[:_SHOWN]}, b"")]


def _converted(file: InputFile, mapping: Mapping, target: FileTarget, limits: FileLimits) -> list[tuple[Head, bytes]]:
    found = convert(file, mapping, target, limits)
    return [*map(_frame, found), ({"done": len(found)}, b"")]


def _suggested(file: InputFile, options: dict[str, Any]) -> list[tuple[Head, bytes]]:
    from services.data.files.suggest import suggest  # noqa: PLC0415  # most processes convert alone

    made = suggest(file, **options)
    own = {field.name: getattr(made, field.name) for field in fields(made) if field.name != "found"}
    own |= {"notes": [*map(tuple, made.notes)], "questions": [*map(tuple, made.questions)]}
    return [*map(_frame, made.found), ({"done": len(made.found), "suggestion": own}, b"")]


def _limit(bounds: Bounds) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + bounds.cpu_s
    for kind, wanted in (
        (resource.RLIMIT_AS, bounds.memory_bytes),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _frame(made: Representation) -> tuple[Head, bytes]:
    head: Head = {
        "endpoint": made.endpoint,
        "media_type": made.media_type,
        "digest": made.digest.hex(),
        "title": made.title,
        "labels": made.labels,
    }
    return head, made.content


def _error(error: DataError) -> tuple[Head, bytes]:
    head: Head = {"error": type(error).__name__, "text": str(error)}
    if isinstance(error, InvalidDataset):
        head |= {"text": error.reason, "where": error.where}
    return head, b""


def _send(answers: BinaryIO, head: Head, content: bytes) -> None:
    text = orjson.dumps(head)
    answers.write(FRAME.pack(len(text), len(content)) + text)
    answers.write(content)


if __name__ == "__main__":
    main()
