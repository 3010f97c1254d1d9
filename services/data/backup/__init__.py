"""Backups of a store, as streams that both databases write and read, and their restore as a new store.

Reading order: ``backup`` and ``restore``, ``stream`` (lines of tables and rows), ``errors``.
"""
