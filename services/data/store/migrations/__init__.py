"""The history of the tables, in alembic's layout."""
