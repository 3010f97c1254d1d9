"""Files composed of random choices of layout: what is suggested is right, or listed as unsure, or refused."""

import random
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from services.data.files.grid import InputFile
from tests.unit.services.data.files.publishers import Series, seconds
from tests.unit.services.data.files.test_suggest import Outcome, outcome

STEPS: Final = {"PT15M": 900, "PT30M": 1800, "PT1H": 3600, "PT5M": 300}
FORMATS: Final = (
    "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%Y%m%d%H%M",
    "%d-%m-%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%d.%m.%y %H:%M", "%d %b %Y %H:%M", "%Y/%m/%d %H:%M",
)  # fmt: skip
ZONES: Final = ("UTC", "Europe/Berlin", "Europe/Athens", "America/New_York", "Europe/London", "Asia/Tokyo")
STARTS: Final = (
    "2025-01-01T00", "2025-01-14T06", "2025-03-29T12", "2025-10-25T12", "2025-03-08T06", "2025-06-30T22",
    "2025-02-03T00", "2025-12-31T20",
)  # fmt: skip


class Composed:
    """A file of random choices, and what it means."""

    def __init__(self, seed: int) -> None:
        self._any = random.Random(seed)
        choose = self._any.choice
        self._zone = ZoneInfo(choose(ZONES))
        self._format = choose(FORMATS)
        self._offset = self._zone.key == "UTC" and choose((True, False))
        self._resolution = choose([*STEPS])
        self._delimiter = choose(";\t,|")
        self._decimal = choose(",.") if self._delimiter != "," else "."
        self._thousands = choose(("", "", "." if self._decimal == "," else ","))
        if self._thousands == self._delimiter:
            self._thousands = ""
        self._digits = choose((0, 1, 2, 3))
        self._gap = choose(("", "-", "n/a", "-999", "NaN"))
        self._shape = choose(("single", "wide", "long", "date and time", "interval"))
        self._count = choose((5, 30, 120, 200))
        names = choose((("Load [MW]", "Wind [MW]"), ("load_mw", "wind_mw"), ("A (MW)", "B (MW)")))
        self._names = names if self._shape in {"wide", "long"} else names[:1]
        self._scale = choose((1, 1000, 100_000))
        first = seconds(f"{choose(STARTS)}:00Z")
        self._times = [first + index * STEPS[self._resolution] for index in range(self._count)]
        self._values = [[self._value() for _ in self._times] for _ in self._names]

    def _value(self) -> float | None:
        if self._any.random() < 0.05:
            return None
        return round(self._any.uniform(-0.3, 1) * self._scale, self._digits)

    @property
    def expected(self) -> list[Series]:
        """The series that it means."""
        return [Series("MW", self._resolution, list(zip(self._times, each, strict=True))) for each in self._values]

    def _number(self, value: float | None) -> str:
        if value is None:
            return self._gap
        text = f"{value:,.{self._digits}f}"
        return text.replace(",", "T").replace(".", self._decimal).replace("T", self._thousands)

    def _local(self, at: int) -> datetime:
        return datetime.fromtimestamp(at, self._zone)

    def _time(self, at: int) -> str:
        text = self._local(at).strftime(self._format)
        if self._shape == "interval":
            return f"{text} - {self._local(at + STEPS[self._resolution]).strftime(self._format)}"
        return text + ("+0000" if self._offset and "%p" not in self._format else "")

    @property
    def file(self) -> InputFile:
        """The file."""
        rows = []
        if self._shape == "long":
            unit = ["Time", "Site", "Power [MW]"]
            rows = [
                [self._time(at), name, self._number(values[index])]
                for index, at in enumerate(self._times)
                for name, values in zip(("north", "south"), self._values, strict=True)
            ]
        else:
            unit = ["Time", *self._names]
            rows = [
                [self._time(at), *(self._number(values[index]) for values in self._values)]
                for index, at in enumerate(self._times)
            ]
        if self._shape == "date and time" and " " in self._format:
            unit[:1] = ["Date", "Hour"]
            rows = [[*_date_and_time(row[0]), *row[1:]] for row in rows]
        lines = [self._delimiter.join(row) for row in (unit, *rows)]
        return InputFile("file.csv", "\n".join(lines).encode())

    @property
    def outcome(self) -> Outcome:
        """What is suggested when the zone is given, which few files prove."""
        return outcome("", self.file, self.expected, {"zone": self._zone.key})


def _date_and_time(text: str) -> list[str]:
    date, _, clock = text.partition(":")[0].rpartition(" ")
    return [date, text[len(date) + 1 :]] if date else [text, clock]


@pytest.mark.parametrize("seed", range(16))
def test_what_is_not_right_is_unsure_or_refused(seed: int) -> None:
    made = Composed(seed).outcome
    assert made.is_right or made.questions or made.suggestion.problem
