"""Infers the mapping of a table: its time, its values, their names, units and periods; else a document for each row."""

from services.data.files.grid import cell_text
from services.data.files.inference.cells import SampleTable
from services.data.files.inference.draft import Draft
from services.data.files.inference.periods import Periods
from services.data.files.inference.time_columns import TimeFinder, add_time, find_across
from services.data.files.inference.times import formats_of
from services.data.files.inference.value_columns import ValueColumns

_DOCUMENTS: float = 0.5
"""Score of documents; that of series is higher."""


def infer_table(table: SampleTable) -> Draft:
    """Infer the mapping of a table's columns."""
    draft = Draft(columns=table.names)
    across = find_across(table)
    when = TimeFinder(table, across).find()
    if when is None:
        _add_documents(draft, table)
        return draft
    columns = ValueColumns(table, when, across, draft)
    if not columns.values:
        draft.problem = f"no column but that of the time, {table.label(when.columns[0])!r}, has numbers"
        return draft
    add_time(draft, table, when, across)
    columns.add()
    Periods(table, when, across, draft).add(columns.values, columns.keys)
    draft.score = 1.0 + when.score + min(len(table.rows), 1000) / 1000 - len(draft.questions) / 10
    return draft


def _add_documents(draft: Draft, table: SampleTable) -> None:
    """Make every row a document, if a column names it."""
    if fault := _unreadable_times(table):
        draft.problem = fault
        return
    for index, name in enumerate(table.names):
        texts = [cell_text(cell) for cell in table.cells[index]]
        if not name or not texts or "" in texts or len(set(texts)) < len(texts):
            continue
        draft.keys = {"kind": "document", "name": f"{{{name}}}"}
        # Numbers of JSON and workbooks are numbers as they are.
        written = [
            each for each in sorted(table.numbers.columns) if any(isinstance(cell, str) for cell in table.sample[each])
        ]
        if numbers := [table.names[each] for each in written if table.names[each]]:
            draft.keys["numbers"] = numbers
            if table.numbers.style.decimal != ".":
                draft.keys["decimal"] = table.numbers.style.decimal
        draft.question("kind", "document", f"no column has times: every row is a document named by {name!r}")
        draft.score = _DOCUMENTS
        return
    draft.problem = "no column has times, and none has a name for each row"


def _unreadable_times(table: SampleTable) -> str:
    """Return why a column of times cannot be read; empty: there is none."""
    for name, column in zip(table.names, table.filled, strict=True):
        texts = [cell.strip() for cell in column[:50] if isinstance(cell, str)]
        if len(texts) > 1 and len({*texts}) > 1 and all(any(formats_of(text)) for text in texts):
            fraction = next((text for text in texts if "." in text[10:]), "")
            shown = fraction or texts[0]
            return f"the column {name!r} has times such as {shown!r}, which no format reads" + (
                ": round them to seconds" if fraction else ""
            )
    return ""
