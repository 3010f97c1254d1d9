"""How deeply a JSON text is nested, found out before a parser recurses into it."""

import re
from typing import Final

# Everything but structure goes away in one pass: what stays of a usual body is a few hundred brackets.
_KEEP: Final = b'[]{}"\\'
_DROP: Final = bytes(byte for byte in range(256) if byte not in _KEEP)
_AS_ARRAYS: Final = bytes.maketrans(b"{}", b"[]")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


def deeper_than(text: bytes, limit: int) -> bool:
    """Whether arrays and objects are nested more than ``limit`` deep; of a text that is not JSON, some answer.

    Linear, and for usual bodies without a step of Python per byte: strings that hold no bracket are `""` once all
    else is dropped, so that removing those leaves pure structure, from which one level a round is taken away.
    """
    skeleton = text.translate(_AS_ARRAYS, _DROP)
    if b"\\" not in skeleton:
        structure = skeleton.replace(b'""', b"")
        if b'"' not in structure:
            for _ in range(limit):
                if not structure:
                    return False
                structure = structure.replace(b"[]", b"")
            if not structure:
                return False
    # A string holds brackets or escapes, or the nesting is really deep: count it out.
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth > limit:
                return True
        elif token in (b"]", b"}"):
            depth -= 1
    return False
