"""The number of a process, possibly taken from the name of its pod or host; pure."""

import re
from typing import Final

_POD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*-(0|[1-9][0-9]{0,5})")
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,9}\s*")
FORMS: Final = "a number from 1, or a name that ends in -N, as of a pod of a StatefulSet: N + 1, so NAME-0 is 1"
"""Part of the description of a setting with a number."""


def parse_number(value: object) -> object:
    """Return the number of a setting: a name that ends in ``-N``, without leading zeros, is N + 1; a number is itself.

    Pods of a StatefulSet are named ``NAME-0``, ``NAME-1`` and so on, and numbers of processes begin at 1.

    Raises:
        ValueError: a text is neither.
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    match = _POD.fullmatch(value)
    if match is None:
        raise ValueError(f"it should be {FORMS}")
    return int(match[1]) + 1
