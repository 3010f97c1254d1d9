"""The tables ``endpoints`` and ``sets`` of a window (docs/traffic.md 3.4) by DuckDB, to compare with ``diem pipeline``.

A process of its own: ``python -m experiments.pipeline_duckdb FOLDER INTO FROM TO`` reads the files of a folder and
writes into another; times are Unix ms. It does what these tables need, not what a pipeline does: no validation (an odd
line ends it), quarantine, tables of events, condensed history, summary or waste, and no sample of clients beyond 20
million subscriptions.
"""

import sys
from pathlib import Path
from typing import Final

from learning.statistics.constants import HISTORY_MS, MIN_HELD_MS, MINUTE_MS, SILENCE_MS
from learning.statistics.window import Window

TABLES: Final = ("endpoints", "sets")
# Names have numbers from 1 on; 0 is the connection itself.
_SQL: Final = """
CREATE TABLE events AS SELECT DISTINCT ON (id) * REPLACE (('0x' || client)::UBIGINT AS client,
    ('0x' || connection)::UBIGINT AS connection), left(id, 12) AS boot, substr(id, 14)::BIGINT AS number
FROM read_json('{folder}/*.jsonl', format = 'newline_delimited', columns = {{id: 'VARCHAR', type: 'VARCHAR',
    time: 'BIGINT', edge: 'VARCHAR', client: 'VARCHAR', connection: 'VARCHAR', endpoints: 'VARCHAR[]',
    unknown: 'INTEGER[]', sharers: 'BIGINT', since: 'BIGINT', until: 'BIGINT', updates: 'MAP(VARCHAR, BIGINT[])',
    requests: 'JSON[][]'}});
CREATE VIEW recent AS SELECT * FROM events WHERE time >= {start} - {HISTORY_MS} AND time < {end};

CREATE TABLE counts AS
SELECT edge, minute, each.key AS endpoint, each.value[1] AS taken, each.value[2] AS delivered
FROM (SELECT edge, (since + until) // 2 // {MINUTE_MS} AS minute, unnest(map_entries(updates)) AS each
      FROM events WHERE type = 'counts' AND (since + until) // 2 >= {start} AND (since + until) // 2 < {end});
CREATE TABLE rates AS
WITH busy AS (SELECT minute FROM counts GROUP BY minute ORDER BY sum(delivered) DESC, minute LIMIT {busy_minutes}),
by_edge AS (SELECT endpoint, minute, edge, sum(taken) AS taken, sum(delivered) AS delivered FROM counts GROUP BY ALL),
by_minute AS (SELECT endpoint, minute, max(taken) AS updates, sum(taken) AS taken, sum(delivered) AS delivered
              FROM by_edge GROUP BY ALL)
SELECT endpoint, sum(updates) AS updates, sum(taken) AS taken, sum(delivered) AS delivered,
    sum(updates) FILTER (minute IN (FROM busy)) AS busy
FROM by_minute GROUP BY endpoint;

CREATE TABLE lives AS
SELECT boot, CASE WHEN last >= {end} - {SILENCE_MS}
    AND row_number() OVER (PARTITION BY edge ORDER BY last DESC, boot DESC) = 1 THEN {end} ELSE last END AS until_at
FROM (SELECT boot, max(edge) AS edge, max(time) AS last FROM recent GROUP BY boot);
CREATE TABLE sessions AS
SELECT connection, any_value(client) AS client, min(time) AS begun, max(coalesce(sharers, 1)) AS sharers,
    least(coalesce(min(time) FILTER (type = 'disconnect'), any_value(until_at)), {end}) AS ended
FROM recent JOIN lives USING (boot) WHERE connection IS NOT NULL GROUP BY connection;
CREATE TABLE changes AS
SELECT connection, time, number, type = 'subscribe' AS is_on, unnest(endpoints) AS endpoint,
    list_select(endpoints, list_transform(unknown, lambda place: place + 1)) AS unknown
FROM recent WHERE endpoints IS NOT NULL;
CREATE TABLE names AS
SELECT endpoint, (row_number() OVER (ORDER BY endpoint))::INTEGER AS name FROM (
    SELECT endpoint FROM changes WHERE is_on AND (unknown IS NULL OR NOT list_contains(unknown, endpoint))
    UNION SELECT unnest(map_keys(updates)) FROM recent
    UNION SELECT unnest(requests)[3] ->> '$' FROM recent
    UNION SELECT endpoint FROM counts);

CREATE TABLE held AS
WITH known AS (SELECT connection, name, time, number, is_on FROM changes JOIN names USING (endpoint)),
switched AS (SELECT * FROM known
             QUALIFY is_on <> coalesce(lag(is_on) OVER (PARTITION BY connection, name ORDER BY time, number), false)),
spans AS (SELECT connection, name, is_on, time AS begun,
              lead(time) OVER (PARTITION BY connection, name ORDER BY time, number) AS off FROM switched),
intervals AS (
    SELECT client, name, greatest(spans.begun, {start}) AS begun, least(off, ended) AS ended, NULL AS sharers
    FROM spans JOIN sessions USING (connection) WHERE is_on
    UNION ALL SELECT client, 0, greatest(begun, {start}), ended, sharers FROM sessions),
reached AS (SELECT *, max(ended) OVER (PARTITION BY client, name ORDER BY begun, ended
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM intervals WHERE begun < ended)
SELECT client, name, sum(greatest(0, ended - greatest(begun, reached)))::BIGINT AS ms, max(sharers) AS sharers
FROM reached GROUP BY client, name;

CREATE TABLE used AS
SELECT endpoint, name, coalesce(updates, 0) AS updates, coalesce(taken, 0)::BIGINT AS taken,
    coalesce(delivered, 0)::BIGINT AS delivered, coalesce(busy, 0) AS busy, coalesce(total.ms, 0)::BIGINT AS ms,
    (row_number() OVER (ORDER BY endpoint) - 1)::INTEGER AS index
FROM names LEFT JOIN rates USING (endpoint) LEFT JOIN (SELECT name, sum(ms) AS ms FROM held GROUP BY name) AS total
    USING (name)
WHERE total.ms IS NOT NULL OR rates.taken IS NOT NULL;
COPY (SELECT endpoint, (updates * 1000)::BIGINT / {ms} AS rate, ms / {ms} AS subscribers, taken, delivered,
          (busy * 1000)::BIGINT / ({busy_minutes} * {MINUTE_MS}) AS busy_rate FROM used ORDER BY index)
TO '{into}/endpoints.parquet';
COPY (
    WITH clients AS (
        SELECT client, list(index ORDER BY index) FILTER (name > 0 AND held.ms >= {MIN_HELD_MS}) AS endpoints,
            sum(held.ms) FILTER (name = 0) // (1000 * max(sharers)) AS seconds
        FROM held LEFT JOIN used USING (name) GROUP BY client)
    SELECT endpoints, sum(seconds)::BIGINT AS weight, count(*) AS clients FROM clients
    WHERE seconds > 0 AND endpoints IS NOT NULL GROUP BY endpoints ORDER BY endpoints)
TO '{into}/sets.parquet';
"""


def sql(folder: Path, into: Path, window: Window) -> str:
    """Return the statements that make the tables of a window from the files of a folder."""
    constants = {"HISTORY_MS": HISTORY_MS, "MIN_HELD_MS": MIN_HELD_MS, "MINUTE_MS": MINUTE_MS, "SILENCE_MS": SILENCE_MS}
    times = {"start": window.start, "end": window.end, "ms": window.ms, "busy_minutes": window.busy_minutes}
    return _SQL.format(folder=folder, into=into, **times, **constants)


def main(argv: list[str]) -> None:
    import duckdb  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415  # an optional package

    folder, into, start, end = argv
    database = duckdb.connect(config={"temp_directory": f"{into}/spilled"})
    database.execute(sql(Path(folder), Path(into), Window(int(start), int(end))))


if __name__ == "__main__":
    main(sys.argv[1:])
