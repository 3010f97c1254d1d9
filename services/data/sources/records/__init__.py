"""Records of logs of changes: topics, tables, brokers and webhooks as endpoints.

Reading order: ``record`` (what every source makes of its input), ``table`` (the keys of ``[[source]]`` that they
share), ``envelopes`` (Debezium, CloudEvents), ``converter`` (a record as a change), ``converted`` (the changes of
several), ``applier`` (batches, their checkpoints and the policy for refused records), ``attempts``.
"""
