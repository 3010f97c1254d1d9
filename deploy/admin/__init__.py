"""The operator page at ``/admin`` of ``diem up``: the state of the whole system on one read-only page.

Reading order: ``health`` (one process), ``findings`` (problems and remedies), ``diagram`` (nodes and links of the
drawing) and ``overview`` (the document that the page shows) are pure; ``counters`` has the rates; ``collector`` polls
for all open pages together. ``sessions`` checks the key, ``app`` is the HTTP application, which ``server`` serves on
the socket of ``listener``.
"""
