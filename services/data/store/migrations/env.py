"""Entry point of alembic: run the migrations on the connection that the store passes."""

from alembic import context

from services.data.store.tables import METADATA

# The store's transaction is around all of it, also with SQLite, whose definitions are transactional as well.
context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
context.run_migrations()
