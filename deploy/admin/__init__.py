"""The operator page at ``/admin`` of ``diem up``: how the whole system is, on one page, read-only.

Reading order: ``health`` (one process), ``findings`` (what is wrong, and what to do), ``diagram`` (nodes and links of
the drawing) and ``overview`` (the document that the page shows) are pure; ``counters`` has the rates; ``collector``
polls for all open pages together. ``sessions`` checks the key, ``app`` is the HTTP application, which ``server`` serves
on the socket of ``listener``.
"""
