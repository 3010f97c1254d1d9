"""Units of values: any short text in one form, and exact conversion between them."""

import unicodedata
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

MAX_UNIT: Final = 32
"""Longest unit in characters."""
_TOO_LONG: Final = f"a unit has at most {MAX_UNIT} characters"
# Signs of one currency only; "$", "¥" and "kr" are of several. U+00BA is common for the degree sign.
_SIGNS: Final = str.maketrans({"€": "EUR", "£": "GBP", "₺": "TRY", "₴": "UAH", "₹": "INR", "º": "°"})
_OPERATORS: Final = "/*·"


def unit(text: object) -> str:
    """Return a unit in its canonical form: ``€ / MWh`` becomes ``EUR/MWh``, ``W/m²`` becomes ``W/m2``.

    Signs of currencies become their codes (ISO 4217), compatible characters one of them (Unicode NFKC), and blanks
    around operators vanish. ``1`` is a plain number.

    Raises:
        ValueError: no text, empty, longer than :data:`MAX_UNIT`, or with unprintable characters.
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError("a unit is a text such as EUR/MWh, or 1 for a plain number")
    if len(text) > 4 * MAX_UNIT:
        raise ValueError(_TOO_LONG)
    return _canonical(text)


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    # Signs first, because NFKC has another form of U+00BA; and again, because it makes some of other characters.
    made = " ".join(unicodedata.normalize("NFKC", text.translate(_SIGNS)).translate(_SIGNS).split())
    for operator in _OPERATORS:
        made = made.replace(f" {operator}", operator).replace(f"{operator} ", operator)
    if len(made) > MAX_UNIT:
        raise ValueError(_TOO_LONG)
    if not made.isprintable():
        raise ValueError("a unit consists of printable characters")
    return made


class Conversion(NamedTuple):
    """Conversion of values to ``unit``: ``value * factor + offset``, exact, and rounded to a float once."""

    unit: str
    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    @property
    def changes(self) -> bool:
        """True if the conversion changes values."""
        return self.factor != 1 or self.offset != 0

    def __call__(self, value: float) -> int | float:
        """Convert one value: 0.1 kW is 0.0001 MW, never 0.00010000000000000002 MW."""
        top, bottom = Decimal(repr(value)).as_integer_ratio()
        bottom *= self.factor.denominator
        top = top * self.factor.numerator * self.offset.denominator + self.offset.numerator * bottom
        found = top / (bottom * self.offset.denominator)
        return int(found) if found.is_integer() else found
