"""Infers which columns of a table have values, which name their series, their units and their gaps."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import Final

from services.data.files.grid import cell_text
from services.data.files.inference.cells import SampleTable, has_fractions
from services.data.files.inference.draft import Draft
from services.data.files.inference.numbers import NumberStyle, infer_numbers, sentinels
from services.data.files.inference.time_columns import IS_TIME, Across, TimeColumns
from services.data.files.inference.times import infer_formats, instants
from services.data.files.inference.units import LABEL, is_unit, stated_units, unit_of_heading
from services.data.files.inference.zones import is_repeated
from services.data.files.names import split_heading

MAX_KEYS: Final = 3
"""Columns in a name."""
_MAX_CANDIDATES: Final = 12
_SHOWN: Final = 12
_SMALL: Final = 20
"""A number below it in every row is a version, a scale or the like."""
_NO_VALUE: Final = re.compile(
    r"(?i)(?:quality|qualit|flag|status|(?:^|[_ ./])qn?(?:_\d+)?$|^qc|_qc$|(?:^|[_ ./-])id$|^id(?:$|[_ ])|_ids?$|code$|"
    r"version|revision|^rev$|station(?!_?level)|stations_id|^#? ?stn|elevation|altitude|^row|^index$|^#$|^nr\.?$|"
    r"^no\.?$|^ptid$|^pnode_id$|^wmo|^year$|^month$|^day$|^week|^hour$|^dow|runno|^dispatchinterval$|^intervention$|zip|postal|"
    r"intervalnumber|^sequence|ersatzwert|period$|position$|mrid$|offset|generationtime|^pos$|^group$|interval$|_hr$|^count$|"
    r"^total$|/total$|^decimals?$|unit_?mult(?:iplier)?$|^scale$|^precision$|^site(?:_?id)?$|serial|lastchanged$)"
)
_PLACE: Final = re.compile(r"(?i)^(?:lat(?:itude)?|lon(?:g|gitude)?)$")
_ID: Final = re.compile(
    r"(?i)(?:id$|_id\b|^id|station|stn|meter|sensor|device|node|zone|area|region|geo|country|name|code|site|wmo)"
)


class ValueColumns:
    """Adds the columns of values to a draft, with their names, units and gaps."""

    def __init__(self, table: SampleTable, when: TimeColumns, across: Across | None, draft: Draft) -> None:
        self._table = table
        self._when = when
        self._across = across
        self._draft = draft
        self._times = [*when.columns, *(() if when.period is None else (when.period,))]
        self.values = self._values()
        self.keys: list[int] = []
        """The columns that tell the series of rows apart."""

    def add(self) -> None:
        """Add the keys and fields."""
        self.keys = self._keys()
        self._add_numbers()
        self._add_values()
        self._add_units()
        self._note_others()

    def _note_others(self) -> None:
        """List columns of which nothing is published."""
        units = {self._draft.keys.get("unit"), *self._draft.keys.get("units", {})}
        used = {*self._times, *self.keys, *self.values}
        names = [
            name for index, name in enumerate(self._table.names) if name and index not in used and name not in units
        ]
        if names:
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            self._draft.note("value", f"not published: {shown}")

    def _values(self) -> list[int]:
        if self._across is not None:
            return self._across.columns
        names = self._table.names
        # Of JSON, elements of arrays have numbers as names; of a text, such a heading is a version.
        numbered = self._table.is_plain or self._table.is_tree
        numeric = [
            index
            for index in sorted(self._table.numbers.columns)
            if index not in self._times and names[index] and (numbered or not names[index].isdecimal())
        ]
        return [index for index in numeric if not self._is_other(index)] or numeric[-1:]

    def _is_other(self, index: int) -> bool:
        """Return whether a column of numbers has no values: identifiers, flags, parts of times."""
        heading, column = self._table.names[index], self._table.filled[index]
        if (_NO_VALUE.search(heading) and not split_heading(heading)[1]) or LABEL.search(heading):
            return True
        distinct = len(set(column))
        if _PLACE.search(heading) and distinct <= len(column) / 2:
            return True
        if len(column) > 5 and distinct == 1:
            number = self._table.number(column[0]) or 0.0
            if (self._table.is_tree and "/" in heading) or (number.is_integer() and 0 < number < _SMALL):
                return True
        forms = infer_formats(column) if not has_fractions(column) else []
        return any(form.is_date or form.format == "%Y" for form in forms) and IS_TIME.search(heading) is not None

    # Names.

    def _keys(self) -> list[int]:
        """Return the fewest columns which name the series of rows."""
        times = list(zip(*(map(cell_text, self._table.cells[index]) for index in self._times), strict=True))
        if self._is_unique(times):
            return []
        used = {*self._times, *self.values}
        candidates = [index for index in range(len(self._table.names)) if index not in used and self._is_key(index)]
        candidates.sort(key=self._key_order)
        for count in range(1, MAX_KEYS + 1):
            for chosen in combinations(candidates[:_MAX_CANDIDATES], count):
                cells = zip(*(map(cell_text, self._table.cells[index]) for index in chosen), strict=True)
                if self._is_unique([(*time, *key) for time, key in zip(times, cells, strict=True)]):
                    return sorted(chosen)
        reason = "there are several rows for one time, and no column tells them apart"
        self._draft.question("duplicates", "refuse", reason, ["first", "last"])
        return []

    def _key_order(self, index: int) -> tuple[float, ...]:
        texts = {cell_text(cell) for cell in self._table.sample[index]}
        length = sum(map(len, texts)) / max(1, len(texts))
        name, is_number = self._table.names[index], index in self._table.numbers.columns
        # Units and flags may differ from series to series without being their names.
        is_label = LABEL.search(name) is not None or (_NO_VALUE.search(name) is not None and not _ID.search(name))
        return is_label, is_number, len(texts), not _ID.search(name), length

    def _is_key(self, index: int) -> bool:
        texts = [cell_text(cell) for cell in self._table.sample[index]]
        distinct = set(texts)
        name = self._table.names[index]
        if not name or "" in distinct or not 2 <= len(distinct) <= max(1, len(texts) // 2):
            return False
        if index in self._table.numbers.columns:
            return bool(_ID.search(name)) and all(text.isdecimal() for text in distinct)
        if any(re.match(r"\d{1,2}:\d\d", text) for text in distinct) or self._table.is_clock(index):
            return False
        return not any(form.is_date for form in infer_formats([*distinct][:50]))

    def _is_unique(self, rows: Sequence[tuple[str, ...]]) -> bool:
        """Return whether rows differ, but for those of the hour that clocks repeat."""
        counts, form = Counter(rows), self._when.form
        twice = [row for row, count in counts.items() if count > 1]
        if not twice:
            return True
        if form.has_offset or not form.has_clock or max(counts.values()) > 2:
            return False
        width = len(self._when.columns)
        times = instants(form, [" ".join(row[:width]) for row in twice])
        return all(isinstance(time, int) and is_repeated(time) for time in times)

    # Numbers.

    def _add_numbers(self) -> None:
        draft, table = self._draft, self._table
        numbers = infer_numbers([table.sample[index] for index in self.values])
        style = numbers.style
        if known := table.known.get("decimal"):
            fitting = [each for each in (style, numbers.other) if each is not None and each.decimal == known]
            style, numbers = (fitting or [NumberStyle(known)])[0], numbers._replace(other=None)
        if style.decimal != ".":
            draft.keys["decimal"] = style.decimal
        if style.thousands:
            draft.keys["thousands"] = style.thousands
        if numbers.other is not None:
            reason = f"{numbers.example!r} may have a mark of decimals or of thousands"
            draft.question("decimal", style.decimal, reason, [numbers.other.decimal])
        table.choose(style)
        if numbers.unsure_gaps:
            shown = ", ".join(map(repr, numbers.unsure_gaps))
            draft.question("gaps", ", ".join(numbers.gaps), f"whether {shown} is a missing value")
        if gaps := [*numbers.gaps, *self._sentinels()]:
            draft.keys["gaps"] = sorted(set(gaps))

    def _sentinels(self) -> list[str]:
        """Return the texts of numbers which stand for missing values; ask about others which may."""
        found: list[str] = []
        doubtful: dict[str, str] = {}
        for index in self.values:
            texts = Counter(map(cell_text, self._table.filled[index]))
            sure, unsure = sentinels(texts, self._table.numbers.style)
            found += sure
            doubtful |= dict.fromkeys(unsure, self._table.label(index))
        if doubtful := {text: name for text, name in doubtful.items() if text not in found}:
            (text, name), *_ = doubtful.items()
            self._draft.question(
                "gaps", ", ".join(found), f"whether {text} in {name!r} is a missing value", [*doubtful]
            )
        return found

    # Values and units.

    def _add_values(self) -> None:
        draft, table, across = self._draft, self._table, self._across
        names = [table.names[index] for index in self.values]
        used = {*self._times, *self.keys}
        if (unit := self._unit_column(used | set(self.values))) is not None:
            draft.keys["unit"] = table.label(unit)
            used.add(unit)
        if across is not None or len(names) > 1:
            others = [name for index, name in enumerate(table.names) if name and index not in used]
            draft.keys["value"] = "*" if others == names else names
            if len(set(names)) < len(names):
                draft.problem = f"two columns have the heading {Counter(names).most_common(1)[0][0]!r}"
        elif names != ["value"]:
            draft.keys["value"] = names[0]
        if across is not None:
            draft.keys["across"] = across.kind
            kind = "times" if across.kind == "time" else "periods"
            draft.note("across", f"the headings {across.texts[0]!r} to {across.texts[-1]!r} are {kind}")
        self._add_name(several=len(names) > 1 and across is None)

    def _add_name(self, *, several: bool) -> None:
        if not self.keys:
            return
        labels = [self._table.label(index) for index in self.keys]
        self._draft.keys["name"] = "/".join([*(f"{{{label}}}" for label in labels), *(["{column}"] if several else [])])
        count = len(set(zip(*(map(cell_text, self._table.cells[index]) for index in self.keys), strict=True)))
        self._draft.note("name", f"{' and '.join(map(repr, labels))} tell {count} series apart")

    def _unit_column(self, used: set[int]) -> int | None:
        for index, name in enumerate(self._table.names):
            if index in used or not LABEL.search(name) or index in self._table.numbers.columns:
                continue
            texts = {cell_text(cell) for cell in self._table.filled[index]}
            if 0 < len(texts) <= 50 and all(len(text) <= 32 for text in texts):
                return index
        return None

    def _add_units(self) -> None:
        draft = self._draft
        if known := self._table.known.get("unit"):
            draft.fields["unit"] = known
            return
        if "unit" in draft.keys:
            draft.note("unit", f"in the column {draft.keys['unit']!r}")
            return
        found = {} if self._across is not None else {index: self._unit_of(index) for index in self.values}
        unknown = [self._table.label(index) for index, (unit, _) in found.items() if not unit]
        if unknown or not found:
            self._add_stated_unit(unknown, is_mixed=len(unknown) < len(found))
            return
        if unsure := [self._table.label(index) for index, (_, sure) in found.items() if not sure]:
            units = ", ".join(dict.fromkeys(unit for unit, _ in found.values()))
            draft.question("unit", units, f"from {', '.join(map(repr, unsure[:5]))}")
        # Units in brackets need no key.
        elsewhere = {
            index: unit for index, (unit, _) in found.items() if split_heading(self._table.names[index])[1] != unit
        }
        distinct = {unit for unit, _ in found.values()}
        if elsewhere and len(distinct) == 1:
            (draft.fields["unit"],) = distinct
        elif elsewhere:
            draft.keys["units"] = {self._table.label(index): unit for index, unit in elsewhere.items()}
        draft.note("unit", f"{', '.join(sorted(distinct))}, by the headings")

    def _add_stated_unit(self, unknown: Sequence[str], *, is_mixed: bool) -> None:
        """Add the unit in the text around a table, whose headings have none, or not all."""
        draft = self._draft
        stated = stated_units(self._table.context)
        if len(stated) == 1:
            draft.fields["unit"] = stated[0]
            draft.note("unit", f"{stated[0]}, stated above the table")
            if is_mixed:
                draft.question("unit", stated[0], f"whether it is that of {', '.join(unknown[:5])}, too")
            return
        draft.fields["unit"] = "1"
        reason = f"the text above has {', '.join(stated)}" if stated else "the file does not name it"
        draft.question("unit", "1", reason + (f": {', '.join(unknown[:5])}" if is_mixed else ""))

    @cached_property
    def _units(self) -> dict[str, int]:
        """Columns which may have the unit of another: by their names, or the end of these from ``units/`` on."""
        names = self._table.names
        ends = {match[0]: index for index, name in enumerate(names) if (match := _UNITS.search(name))}
        return {**ends, **{name: index for index, name in enumerate(names)}}

    def _unit_of(self, index: int) -> tuple[str, bool]:
        """Return the unit of a column of values, and whether it is certain; empty: unknown."""
        heading = self._table.names[index]
        if beside := self._table.units.get(heading):
            return beside, is_unit(beside)
        if unit := split_heading(heading)[1]:
            return unit, is_unit(unit)
        places = [f"{heading}{end}" for end in _UNIT_ENDS] + [f"units/{heading.rpartition('/')[2]}"]
        for other in (self._units[place] for place in places if place in self._units):
            texts = {cell_text(cell) for cell in self._table.filled[other]}
            if len(texts) == 1:
                return texts.pop(), True
        return self._coded_unit(heading) or unit_of_heading(heading)

    def _coded_unit(self, heading: str) -> tuple[str, bool] | None:
        """Return the unit of a quantity or price in a document of IEC 62325, by the codes beside it."""
        kind = heading.rpartition("/")[2].partition(".")[0]
        parts = [f"{kind}_Measure_Unit.name", *(["currency_Unit.name"] if kind == "price" else [])]
        found = []
        for part in parts:
            texts = {
                cell_text(cell)
                for name, column in zip(self._table.names, self._table.filled, strict=True)
                if name.rpartition("/")[2] == part
                for cell in column
            }
            if len(texts) != 1:
                return None
            found.append(_CODES.get(*texts, *texts))
        return "/".join(reversed(found)), True


_CODES: Final = {"MAW": "MW", "MWH": "MWh", "KWT": "kW", "KWH": "kWh", "A90": "GW", "P1": "%"}
"""Codes of units of UN/CEFACT."""
_UNITS: Final = re.compile(r"units/[^/]*$")
_UNIT_ENDS: Final = ("/@unit", "/@units", "/@uom", "_unit", " unit", "/unit")
"""Ends of the names of columns with the unit of another."""
