"""Backups of a store: authenticated files, optionally encrypted, and their restore as a new store.

Reading order: ``backup`` and ``restore``, ``backup_file`` (lines of tables and rows), ``row_checks`` (what a row may
contain, pure), ``seal`` (authentication and encryption), ``errors``.
"""
