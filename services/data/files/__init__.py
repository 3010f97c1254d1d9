"""Reads files as their publishers write them into representations, by the mapping of a source.

Reading order: ``mapping`` (the keys of ``[source.mapping]``), ``target`` (the endpoints, and the interface),
``suggestion``, ``grid`` (rows of cells, whatever the format), ``unpack`` (archives and encodings), the readers
``delimited``, ``workbook``, ``trees`` (JSON and XML) and ``columnar`` (Parquet), ``time_formats``, ``instants`` and
``numbers`` (cells), ``names`` (of endpoints), ``columns`` (those that a mapping names), ``series_builder`` (points of
one series), ``convert`` (rows to series or documents), ``suggest`` (by ``inference``); ``reader`` and ``worker`` (a
process with bounds, from both sides) with ``frames`` between them. Pure but for the last three.
"""
