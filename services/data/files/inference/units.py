"""Infers units from headings and cells."""

import re
from typing import Final

_CURRENCY: Final = (
    r"(?:EUR|USD|GBP|CHF|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|TRY|UAH|AUD|NZD|CAD|JPY|CNY|INR|BRL|MXN|ZAR|KRW|[€$£¥₺₴₹]|ct|cent|"
    r"p|kr|öre|øre)"
)
_MEASURE: Final = (
    r"(?:(?:[kMGTmµμn]?(?:Wh?|VAr?h?|var|varh|V|A|Hz|J|Pa|g|m|s|l|L|bar|Ω|Ohm|eV|B|bit|mol|N|cd|lm|lx|Sv|Bq|T|F|H))"
    r"|h(?:Pa)?|cm|dm|min|sec|d|day|ha|t|CO2|[tkg]{1,2}CO2(?:e|eq)?|°?[CFK]|°|deg(?:[CFTK])?|º[CF]?|%|percent|ppm|ppb|"
    r"in|inch|ft|yd|mi|nmi|kn|knots?|kt|mph|kph|psi|gal|lb|oz|btu|Btu|MMBtu|therm|cfs|Nm|"
    r"MW[he]?r?|kWhr?|mbar|inHg|octas?|oktas?|pH|dB(?:m|A)?|rpm|cycles|pieces|Stk|pcs|units?|counts?|index|degrees?|points?|"
    r"µg|ug|mg|kmh|Wm2|1|"
    r"days?|hours?|Watt|Watts|Volt|Ampere|Kelvin|Celsius|Fahrenheit|people|persons?)"
)
_FACTOR: Final = rf"(?:{_MEASURE}|{_CURRENCY}|10\^?\d|1000|100)(?:\^?-?[23¹²³1])?"
_UNIT: Final = re.compile(rf"(?:1/)?{_FACTOR}(?:\s*[/*·.]\s*{_FACTOR}){{0,3}}|{_CURRENCY}\s*/\s*{_MEASURE}(?:e|r)?")
_IN: Final = re.compile(r"(?:\bin|[,:])\s+([^\s,;()\[\]]{1,16})$")
_SUFFIX: Final = re.compile(r"[_ ]([^\s_]{1,12}(?:/[^\s_]{1,8})?)$")
_SUFFIXES: Final = {
    "mw": "MW", "mwh": "MWh", "kw": "kW", "kwh": "kWh", "gw": "GW", "gwh": "GWh", "wh": "Wh", "w": "W", "eur": "EUR",
    "usd": "USD", "gbp": "GBP", "eur_mwh": "EUR/MWh", "hz": "Hz", "hpa": "hPa", "mm": "mm", "kmh": "km/h", "ppm": "ppm",
    "celsius": "°C", "percent": "%", "pct": "%", "ms": "m/s", "mps": "m/s", "degc": "°C",
    "kg": "kg", "km": "km", "kph": "km/h", "mph": "mph", "volt": "V", "twh": "TWh",
}  # fmt: skip
"""Ends of headings such as ``load_mw``."""
_UNSURE_SUFFIXES: Final = frozenset({"ms", "w"})
LABEL: Final = re.compile(
    r"(?i)(?:^|[_ .(/-])(?:units?|uom|einheit|unité|unite|measure_?unit|unit_of_measure(?:ment)?)$|"
    r"(?-i:(?<=[a-z])Units?$)"
)
"""Headings of columns of units."""


def is_unit(text: str) -> bool:
    """Return whether a text is written like a unit of measurement."""
    plain = text.strip()
    return bool(plain) and len(plain) <= 32 and _UNIT.fullmatch(plain) is not None


def unit_of_heading(heading: str) -> tuple[str, bool]:
    """Return the unit at the end of a heading without brackets, and whether it is certain; empty: none."""
    if (match := _IN.search(heading)) and is_unit(match[1]):
        return match[1], True
    if match := _SUFFIX.search(heading):
        word = match[1]
        if word.lower() in _SUFFIXES and word == word.lower():
            return _SUFFIXES[word], word not in _UNSURE_SUFFIXES
        if len(word) > 1 and not word.islower() and is_unit(word) and ("/" in word or any(c in word for c in "Wh€°%")):
            return word, True
    return "", False


_STATED: Final = re.compile(
    r"(?i)\[([^\[\]]{1,20})\]|\(([^()]{1,20})\)|\b(?:units?|einheit|uom|unité|unidad)\s*[:;,=\t]\s*\"?([^\s;,\"]{1,20})"
)


def stated_units(text: str) -> list[str]:
    """Return the units which a text has in brackets, or names as such."""
    found = (next(filter(None, match.groups())).strip() for match in _STATED.finditer(text))
    return [*dict.fromkeys(each for each in found if is_unit(each) and each != "1")]
