"""Suggests a source for a file: its mapping, what the file does not prove, and what would be published.

Pure. What is shown comes from :func:`convert` with the suggested mapping, so that it is true.
"""

import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from services.data.errors import DataError, InvalidDataset
from services.data.files.convert import convert, read_grid
from services.data.files.grid import FileLimits, Grid, InputFile, cell_text
from services.data.files.inference.cells import SampleTable
from services.data.files.inference.draft import Draft
from services.data.files.inference.encodings import infer_encoding
from services.data.files.inference.layout import header_rows, infer_layouts
from services.data.files.inference.paths import row_paths
from services.data.files.inference.table import infer_table
from services.data.files.inference.units import is_unit
from services.data.files.mapping import FILE_SUFFIXES
from services.data.files.mapping import Mapping as Keys
from services.data.files.names import fields_of, segment, split_heading
from services.data.files.presets import load_preset, presets
from services.data.files.sample import shortened
from services.data.files.suggestion import Note, Question, Suggestion
from services.data.files.target import FileTarget
from services.data.files.unpack import Member, unpack
from services.data.kinds import Representation
from services.data.kinds.series import Declared, EndpointDeclaration, LocalClock
from services.data.kinds.series.times import IRREGULAR

MAX_ROWS: Final = 50_000
MAX_MEMBERS: Final = 20
"""Members of an archive which are inspected."""
_MAX_HEADER_ROWS: Final = 400
LIMITS: Final = FileLimits(decoded_bytes=64 * 1024 * 1024, rows=200_000, cells=5_000_000, columns=2_000)
COLUMN_TEMPLATE: Final = "{column}"
_OFF_GRID: Final = re.compile(r"is not on the grid|is not the start of a")
_DATE: Final = re.compile(r"[-_. ]*\d{4,}(?:-\d\d)*")


def suggest(
    file: InputFile, *, known: Mapping[str, str] | None = None, name: str = "", template: str = COLUMN_TEMPLATE
) -> Suggestion:
    """Suggest a source for a file, or for a sample of it.

    Args:
        file: of a large one without an archive around it, the beginning and the end are read.
        known: what the user states, by the names of :data:`ANSWERS`.
        name: of the source. Default: that of the file.
        template: the source's default of names by columns; another one than :data:`COLUMN_TEMPLATE` is replaced by it.

    Raises:
        DataError: the file cannot be opened.
    """
    known = known or {}
    file = shortened(file)
    drafts = sorted(_drafts(file, known), key=lambda each: -each.score)
    own = _tried(file, drafts, known, name or _name(file.name))
    made = _with_preset(file, own, drafts, known) or own
    named = made.keys.get("name") or (made.preset and _preset(made.preset)[1].name)
    if made.is_several and template != COLUMN_TEMPLATE and not named:
        made.keys["name"] = COLUMN_TEMPLATE
    return made


def _tried(file: InputFile, drafts: Sequence[Draft], known: Mapping[str, str], name: str) -> Suggestion:
    """Return the first draft by which the file can be converted, else the best one with its problem."""
    failed: Suggestion | None = None
    for draft in drafts[:6]:
        made = _convert(file, draft, known, name)
        if "time_format" not in known:
            made = _other_order(file, draft, made, known, name)
        if not made.problem:
            return made
        failed = failed or made
    return failed or Suggestion(name, {}, problem="there is no table in it")


def _other_order(file: InputFile, draft: Draft, made: Suggestion, known: Mapping[str, str], name: str) -> Suggestion:
    """Return the suggestion with days and months exchanged, if that one fits alone."""
    wanted = next((each.others[0] for each in draft.questions if each.key == "time_format" and each.others), "")
    if not wanted:
        return made
    drafts = _drafts(file, {**known, "time_format": wanted})
    again = [each for each in drafts if each.keys.get("time_format") == wanted]
    if not again:
        return made
    other = _convert(file, max(again, key=lambda each: each.score), known, name)
    proves = any(note.key == "zone" and " has " in note.reason for note in other.notes)
    if other.problem or not (made.problem or (proves and "zone" in {each.key for each in made.questions})):
        return made
    reason = f"{wanted!r}: with day and month exchanged the rows do not fit"
    return replace(other, notes=[*other.notes, Note("time_format", reason)])


def _convert(file: InputFile, draft: Draft, known: Mapping[str, str], name: str) -> Suggestion:
    questions = [each for each in draft.questions if each.key not in known]
    made = Suggestion(name, dict(draft.fields), dict(draft.keys), "", draft.notes, questions)
    if draft.problem:
        return replace(made, problem=draft.problem)
    try:
        mapping = Keys.model_validate(draft.keys)
        fields = draft.fields | _endpoints(mapping, name)
        found = convert(file, mapping, _target(fields), LIMITS)
    except ValidationError as error:
        return replace(made, problem="; ".join(each["msg"] for each in error.errors()))
    except DataError as error:
        return _irregular(file, made, str(error)) or replace(made, problem=str(error))
    return replace(made, fields=fields, found=found)


def _irregular(file: InputFile, made: Suggestion, problem: str) -> Suggestion | None:
    """Return a suggestion of irregular series, if only the resolution does not fit; None: that is not it."""
    if _OFF_GRID.search(problem) is None:
        return None
    stated = made.fields["resolution"]
    mapping = Keys.model_validate(made.keys)
    fields = {**made.fields, "resolution": IRREGULAR, **_endpoints(mapping, made.name)}
    try:
        found = convert(file, mapping, _target(fields), LIMITS)
    except DataError:
        return None
    rest = [each for each in made.questions if each.key != "resolution"]
    question = Question("resolution", IRREGULAR, f"steps are of {stated}, but {problem}")
    return replace(made, fields=fields, found=found, questions=[*rest, question])


def _endpoints(mapping: Keys, name: str) -> dict[str, str]:
    """Return the field of the source with its endpoint, or the prefix of several."""
    return {"prefix" if mapping.is_several else "endpoint": f"/{name}"}


def _target(fields: Mapping[str, Any]) -> FileTarget:
    common = EndpointDeclaration(fields.get("unit"), fields.get("resolution"), quantity=fields.get("quantity", ""))
    clock = LocalClock(fields.get("zone", "UTC"))
    return FileTarget(Declared(fields.get("endpoint"), common, clock=clock), fields.get("prefix", ""))


def _name(file: str) -> str:
    base = file.rstrip("/").rsplit("/", 1)[-1]
    stem = base.split("?")[0]
    while stem.lower().endswith(FILE_SUFFIXES):
        stem = stem.rpartition(".")[0]
    # Dates of the data are no part of the name of its source.
    stem = _DATE.sub("", stem) or stem
    try:
        return segment(stem)[:64].lower()
    except InvalidDataset:
        return "data"


def _drafts(file: InputFile, known: Mapping[str, str]) -> Iterator[Draft]:
    if not zipfile.is_zipfile(io.BytesIO(file.body)) or next(unpack(file, Keys(), LIMITS)).name == file.name:
        for member in islice(unpack(file, Keys(), LIMITS), MAX_MEMBERS):
            yield from _member_drafts(member, known)
        return
    names = [name for name in zipfile.ZipFile(io.BytesIO(file.body)).namelist() if not name.endswith("/")]
    failed: DataError | None = None
    for name in names[:MAX_MEMBERS]:
        try:
            members = list(unpack(file, Keys(member=escape(name)), LIMITS))
        except DataError as error:
            failed = failed or error
            continue
        for member in members[:1]:
            for draft in _member_drafts(member, known):
                if pattern := _pattern(name, names):
                    draft.keys = {"member": pattern, **draft.keys}
                failed = None
                yield draft
    if failed is not None:
        raise failed


def _pattern(name: str, names: Sequence[str]) -> str:
    """Return a pattern of a member among others; empty: there are no others."""
    if len(names) == 1:
        return ""
    suffix = name.rpartition(".")[2]
    if sum(each.endswith(suffix) for each in names) == 1:
        return f"*.{suffix}"
    letters = next((index for index, char in enumerate(name) if char.isdigit()), len(name))
    return f"{name[:letters]}*" if letters else f"*.{suffix}"


def _member_drafts(member: Member, known: Mapping[str, str]) -> Iterator[Draft]:
    match member.format:
        case "csv":
            yield from _text_drafts(member, known)
        case "json" | "xml" as form:
            for path, context in row_paths(member.body, form, LIMITS):
                yield _drafted(member, {"rows": path} if path else {}, context, known, is_tree=True)
        case "xlsx":
            yield from _workbook_drafts(member, known)
        case "parquet":
            yield _drafted(member, {}, "", known)


def _text_drafts(member: Member, known: Mapping[str, str]) -> Iterator[Draft]:
    encoding = infer_encoding(member.body)
    if "\0" in encoding.text:
        yield Draft(
            problem="it is no text, and no format that is known: csv, json, xml, xlsx, xls, ods, parquet, gz, zip"
        )
        return
    base = {} if encoding.key is None else {"encoding": encoding.key}
    for layout in infer_layouts(encoding.text):
        keys = {**base, **layout.keys}
        draft = _drafted(member, keys, layout.context, known, units=layout.units)
        draft.problem = layout.problem or draft.problem
        if encoding.key is not None and encoding.is_sure:
            draft.note("encoding", encoding.reason)
        elif encoding.key is not None:
            draft.question("encoding", encoding.key, encoding.reason)
        if layout.others:
            key = "section" if "section" in keys else "table"
            draft.question(key, str(keys[key]), f"there are other tables: {', '.join(layout.others[:5])}")
        yield draft


def _workbook_drafts(member: Member, known: Mapping[str, str]) -> Iterator[Draft]:
    grid = read_grid(member, Keys(header=0), LIMITS)
    rows = [(place, [cell_text(cell) for cell in row]) for row, place in _rows(grid, _MAX_HEADER_ROWS)]
    width = max((sum(map(bool, cells)) for _, cells in rows), default=0)
    table = [each for each in rows if sum(map(bool, each[1])) > width / 2]
    first = header_rows([cells for _, cells in table]) if table else 0
    place = table[first - 1][0] if first else 0
    keys = {} if rows and place == rows[0][0] else {"header": place}
    context = "\n".join(" ".join(cells) for number, cells in rows if number < place)
    yield _drafted(member, keys, context, known)


def _drafted(
    member: Member,
    keys: dict[str, Any],
    context: str,
    known: Mapping[str, str],
    *,
    units: Mapping[str, str] | None = None,
    is_tree: bool = False,
) -> Draft:
    """Return the draft of a table, read by these keys."""
    try:
        grid = read_grid(member, Keys.model_validate(keys), LIMITS)
        rows = [row for row, _ in _rows(grid, MAX_ROWS)]
    except DataError as error:
        return Draft(keys, problem=str(error))
    draft = infer_table(SampleTable(grid.columns, rows, context, known, units=units, is_tree=is_tree))
    draft.keys = keys | draft.keys
    return draft


def _rows(grid: Grid, most: int) -> Iterator[tuple[Sequence[Any], int]]:
    pairs = ((row, place) for chunk in grid.chunks for row, place in zip(chunk.rows, chunk.places, strict=True))
    return islice(pairs, most)


# Presets.


def _with_preset(
    file: InputFile, own: Suggestion, drafts: Sequence[Draft], known: Mapping[str, str]
) -> Suggestion | None:
    """Return the suggestion of the publisher's preset that fits the file; None: none does."""
    columns = [{*_folded(each.columns)} for each in drafts]
    fits = []
    for preset in presets():
        table, mapping = _preset(preset)
        needed, others = _columns(mapping)
        if any(needed <= each and len(needed | (others & each)) > 1 for each in columns):
            made = _by_preset(file, own, (preset, table, mapping), known)
            fits += [] if made is None else [made]
    if len(fits) > 1:
        text = f"{', '.join(each.preset for each in fits)} fit it"
        return replace(
            fits[0], questions=[Question("preset", fits[0].preset, text, tuple(each.preset for each in fits[1:]))]
        )
    return fits[0] if fits else None


@cache
def _preset(name: str) -> tuple[Mapping[str, Any], Keys]:
    table = load_preset(name, Path())
    return table, Keys.model_validate(table.get("mapping", {}))


def _columns(mapping: Keys) -> tuple[set[str], set[str]]:
    """Return the columns that a mapping needs, but for those without a heading, and others that it names."""
    values = [mapping.value] if isinstance(mapping.value, str) else mapping.value
    keys = [mapping.period, mapping.unit, mapping.resolution, mapping.until]
    needed = {*mapping.times, *values, *filter(None, keys), *mapping.where, *fields_of(mapping.name)} - {
        "*",
        "column",
        "file",
    }
    others = {*mapping.ignore, *mapping.units, *filter(None, [mapping.section]), *mapping.table[1:]}
    return {each.casefold() for each in needed}, {each.casefold() for each in others}


def _folded(columns: Sequence[str]) -> Iterator[str]:
    """Yield the names by which a mapping may have columns, in lower case."""
    for index, name in enumerate(columns, 1):
        yield (name or str(index)).casefold()
        yield split_heading(name)[0].casefold()


def _by_preset(
    file: InputFile, own: Suggestion, preset: tuple[str, Mapping[str, Any], Keys], known: Mapping[str, str]
) -> Suggestion | None:
    """Return the suggestion of a preset; None if it cannot read the file, or the file shows something else."""
    name, table, mapping = preset
    target = _endpoints(mapping, own.name)
    stated = {key: value for key, value in known.items() if key in {"zone", "unit", "resolution"}}
    proven = own.fields.keys() - {each.key for each in own.questions} if not own.problem else set()
    # A preset is for the usual resolution of a feed; others have the same layout.
    own_resolution = {"resolution": own.fields["resolution"]} if "resolution" in proven else {}
    for changed in ({}, own_resolution):
        fields = {**table, **changed, **stated}
        if own_resolution and fields.get("resolution", own_resolution["resolution"]) != own_resolution["resolution"]:
            continue
        try:
            found = convert(file, mapping, _target(fields | target), LIMITS)
        except DataError:
            continue
        if _differ(own, found):
            return None
        differing = {key: fields[key] for key in ("unit", "resolution", "zone") if fields.get(key) != table.get(key)}
        note = Note("preset", f"{name}: the file has its columns, and is read by it")
        return Suggestion(own.name, {**target, **differing}, {}, name, [note], [], found)
    return None


def _differ(own: Suggestion, found: Sequence[Representation]) -> bool:
    """Return whether the file shows other units than a preset has."""
    if own.problem or any(each.key == "unit" for each in own.questions):
        return False
    units = {each.label("unit") for each in found}
    shown = {each.label("unit") for each in own.found}
    return all(map(is_unit, shown)) and not units <= shown
