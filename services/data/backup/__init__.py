"""Backups of a store, as streams independent of the database, and their restore as a new store.

Reading order: ``backup`` and ``restore``, ``stream`` (lines of tables and rows), ``errors``.
"""
