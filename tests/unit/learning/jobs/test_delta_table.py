"""A batch is committed once, with all of its files or none."""

import json
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import deltalake

from learning.jobs import delta_table
from learning.jobs.delta_table import (
    DESCRIPTION,
    PROPERTIES,
    STAGING,
    RowsMissing,
    committed_files,
    data_files,
    is_committed,
)
from learning.jobs.maintenance import MIN_FILES, maintain
from learning.jobs.warehouse import EVENTS, QUARANTINE
from tests.support.delta import QUERY, bad, event, ids, schema, stage, write

DAY = date(2026, 1, 1)
LATER = date(2026, 1, 2)


def test_both_tables_of_a_batch_are_in_one_commit_with_its_number(tmp_path: Path) -> None:
    delta_table.prepare(tmp_path, schema())
    assert (committed_files(tmp_path), is_committed(tmp_path, QUERY, 0)) == ([], False)
    before = delta_table.open_table(tmp_path).version()
    write(tmp_path, 0, [event("a", DAY), event("b", LATER), event("c", LATER), bad("x", LATER)])
    assert delta_table.open_table(tmp_path).version() == before + 1
    found = committed_files(tmp_path)
    assert [(file.kind, file.day, file.rows) for file in found] == [
        (EVENTS, DAY, 1),
        (EVENTS, LATER, 2),
        (QUARANTINE, LATER, 1),
    ]
    assert all(file.path.stat().st_size == file.size for file in found)
    assert data_files(tmp_path, QUARANTINE) == [found[2].path]
    assert [is_committed(tmp_path, QUERY, number) for number in (0, 1)] == [True, False]
    assert not is_committed(tmp_path, "another query", 0), "its batches are numbered from 0, too"
    (last,) = delta_table.open_table(tmp_path).history(1)
    assert json.loads(last["userMetadata"]) == {"query": QUERY, "batch": 0, "rows": 4}


def former(sink: Path) -> None:
    """Create the table as earlier releases did."""
    fields = deltalake.Schema.from_json(schema().replace('"kind"', '"table"'))
    deltalake.DeltaTable.create(str(sink), fields, partition_by=["table", "day"], configuration=PROPERTIES)


def test_tables_have_a_name_and_a_description_those_of_earlier_releases_too(tmp_path: Path) -> None:
    for column, create in (("kind", lambda sink: delta_table.prepare(sink, schema())), ("table", former)):
        sink = tmp_path / column
        create(sink)
        versions = []
        for _ in range(2):
            delta_table.prepare(sink, schema())
            found = delta_table.open_table(sink)
            versions.append(found.version())
            assert (found.metadata().name, found.metadata().description) == (column, DESCRIPTION.format(column=column))
        assert versions[0] == versions[1], "the second time, nothing is left to do"


def test_a_table_of_an_earlier_release_keeps_the_name_of_its_partition_column_and_is_continued(tmp_path: Path) -> None:
    former(tmp_path)
    for number in range(MIN_FILES):
        write(tmp_path, number, [event(f"{number}", DAY), bad("x", LATER)])
    assert ids(tmp_path) == [f"{number}" for number in range(MIN_FILES)]
    assert maintain(tmp_path, LATER) == MIN_FILES - 1
    (merged,) = committed_files(tmp_path, EVENTS)
    assert (merged.rows, merged.path.parent) == (MIN_FILES, tmp_path / "table=events" / f"day={DAY}")
    assert delta_table.open_table(tmp_path).metadata().partition_columns == ["table", "day"]


def test_a_batch_without_rows_is_committed(tmp_path: Path) -> None:
    write(tmp_path, 0, [])
    assert (committed_files(tmp_path), is_committed(tmp_path, QUERY, 0)) == ([], True)


def test_a_batch_of_which_files_are_missing_is_refused_and_nothing_of_it_counts(tmp_path: Path) -> None:
    write(tmp_path, 0, [event("a", DAY)])
    staged = stage(tmp_path, [event("b", DAY), event("c", LATER)])
    list[Path](staged.glob(f"*/day={LATER}/*.parquet"))[0].unlink()
    with pytest.raises(RowsMissing, match=r"1 of the 2 rows .* do all workers have the warehouse"):
        delta_table.commit(tmp_path, staged, QUERY, 1, 2)
    with pytest.raises(RowsMissing):
        delta_table.commit(tmp_path, tmp_path / "never-written", QUERY, 1, 2)
    assert (ids(tmp_path), is_committed(tmp_path, QUERY, 1)) == (["a"], False)


def test_what_an_interrupted_batch_left_behind_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, 0, [event("a", DAY)])
    stage(tmp_path, [event("a", DAY)])
    # It was killed after the files were moved, and before the commit.
    (data_files(tmp_path)[0].parent / "part-moved.parquet").write_bytes(data_files(tmp_path)[0].read_bytes())
    assert ids(tmp_path) == ["a"]
    delta_table.prepare(tmp_path, schema())
    assert not (tmp_path / STAGING).exists()


def test_a_moved_table_is_read_and_continued_in_its_new_place(tmp_path: Path) -> None:
    write(tmp_path / "before", 0, [event("a", DAY)])
    (tmp_path / "before").rename(tmp_path / "now")
    write(tmp_path / "now", 1, [event("b", DAY)])
    assert ids(tmp_path / "now") == ["a", "b"]
    assert all(file.is_relative_to(tmp_path / "now") for file in data_files(tmp_path / "now"))


def test_columns_of_a_later_release_are_added(tmp_path: Path) -> None:
    write(tmp_path, 0, [event("a", DAY)])
    for _ in range(2):
        delta_table.prepare(tmp_path, schema("later"))
    staged = stage(tmp_path, [event("b", DAY) | {"later": "new"}], "later")
    delta_table.commit(tmp_path, staged, QUERY, 1, 1)
    table = delta_table.open_table(tmp_path)
    assert [field.name for field in table.schema().fields].count("later") == 1
    table.optimize.compact()
    rows = table.to_pyarrow_table(columns=["id", "later"]).to_pylist()
    assert sorted((row["id"], row["later"]) for row in rows) == [("a", None), ("b", "new")]
