"""Entry point of alembic: runs the migrations on the store's connection."""

from alembic import context

from services.data.store.tables import METADATA

# All within the store's transaction, even with SQLite, where DDL is transactional as well.
context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
context.run_migrations()
