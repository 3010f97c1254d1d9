"""Infers the mapping of a file from a sample of it, and lists what the sample does not prove.

Reading order: ``draft`` (what is inferred), ``encodings``, ``layout`` (of texts) and ``paths`` (of JSON and XML),
``numbers``, ``times``, ``zones`` and ``units`` (notations), ``cells``, then the columns of a table: ``time_columns``,
``value_columns``, ``periods``, put together by ``table``. Pure.
"""
