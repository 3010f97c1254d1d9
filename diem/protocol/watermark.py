"""Watermarks of the publisher, and positions in a log proved complete by them (docs/internals.md section 3).

A log may be truncated at its beginning (retention, DeleteRecords), or lose its end (an unclean election, a restored
broker) and grow again. Only its writer knows, so each watermark states the contents of the log, and a position the
reader's knowledge of it. Tests check both against every interleaving: tests/walks/test_log_model.py.
"""

from typing import Final, NamedTuple

import orjson

LOG_HEADER: Final = "log"
"""Header of a watermark with its :class:`LogProof`; bridges of earlier releases ignore it."""
FIRST_INCARNATION: Final = 1
_MAX_INCARNATION: Final = (1 << 16) - 1
_OFFSET_BITS: Final = 48
_OFFSET: Final = (1 << _OFFSET_BITS) - 1


class LogProof(NamedTuple):
    """The publisher's statement about the log before its watermark."""

    incarnation: int
    """:data:`FIRST_INCARNATION`, and the next one whenever the log loses written records."""
    complete_from: int
    """From this offset on the log has the current update of every endpoint of the partition."""
    min_offset: int
    """Least offset of the watermark; a lower one proves that the log lost records, unnoticed by the publisher."""
    forgotten: int = 0
    """Before this offset, deletions may be missing in the log: their endpoints are forgotten. 0: none is missing."""


def encode_proof(proof: LogProof) -> bytes:
    """Return the value of the header :data:`LOG_HEADER`."""
    incarnation, complete_from, min_offset, forgotten = proof
    fields = {"incarnation": incarnation, "from": complete_from, "at": min_offset}
    return orjson.dumps({**fields, "forgotten": forgotten} if forgotten else fields)


def decode_proof(value: bytes) -> LogProof | None:
    """Return the proof in a header; None if there is none."""
    try:
        found = orjson.loads(value)
        proof = LogProof(found["incarnation"], found["from"], found["at"], found.get("forgotten", 0))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    return proof if all(type(each) is int and each >= 0 for each in proof) else None


def next_incarnation(incarnation: int) -> int:
    """Return the next incarnation; after 65,535 the second."""
    return incarnation + 1 if incarnation < _MAX_INCARNATION else FIRST_INCARNATION + 1


def position_of(offset: int, incarnation: int | None) -> int:
    """Return the feed position for an offset; ``incarnation`` is given if the reader has the log completely."""
    return offset | (incarnation or 0) << _OFFSET_BITS


def offset_of(position: int) -> int:
    """Return the offset in a position."""
    return position & _OFFSET


def incarnation_of(position: int) -> int | None:
    """Return the incarnation in a position; None if the reader may lack records."""
    return position >> _OFFSET_BITS or None
