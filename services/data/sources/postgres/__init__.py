"""PostgreSQL: the rows of a publication, or of an outbox table.

Reading order: ``pgoutput`` (messages of logical decoding), ``values`` (texts of the database as JSON), ``positions``
(where a source is, and which changes a copy has), ``rows`` (a row as a change), ``table`` (the keys of ``[[source]]``);
then ``session`` and ``catalog`` (what the database says, and the remedies), ``copying``, ``replication`` (the stream),
``publication`` and ``outbox`` (the two ways), ``source``; ``suggestion`` (of its
table).
"""
