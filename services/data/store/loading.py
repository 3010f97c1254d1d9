"""Opens a database as a store: claims it, brings it to this release, and reads what the process keeps in memory."""

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import insert, select

from services.data.errors import StoreUnavailable
from services.data.store.database import ERRORS, Database, reason
from services.data.store.migrate import upgrade
from services.data.store.retention import count_old
from services.data.store.state import State
from services.data.store.tables import STORE, Cursor, read_cursor
from services.data.store.transaction import changed_since


class Loaded(NamedTuple):
    """What a store had when it was opened."""

    store: str
    """Its id."""
    state: State
    cursor: Cursor | None
    old_versions: Mapping[str, int]
    """How many each endpoint has."""


async def load(database: Database) -> Loaded:
    """Claim a database, make or migrate its tables, and read every endpoint's head. The caller closes it.

    Raises:
        StoreInUse: another process has it open.
        StoreUnavailable: its disk is full or it is locked.
        DataError: it cannot be used.
    """
    state = State()
    try:
        await database.claim()
        async with database.writing(at_leisure=True) as connection:
            await connection.run_sync(upgrade)
            store = (await connection.execute(select(STORE.c.store_id))).scalar_one_or_none()
            if store is None:
                store = str(uuid.uuid4())
                await connection.execute(insert(STORE), {"id": 1, "store_id": store, "sequence": 0})
            state.apply(await changed_since(connection, 0))
            cursor = await read_cursor(connection)
            old_versions = await count_old(connection)
            await connection.commit()
    except ERRORS as error:
        raise StoreUnavailable(f"the store {database.shown} cannot be opened: {reason(error)}") from error
    return Loaded(store, state, cursor, old_versions)
