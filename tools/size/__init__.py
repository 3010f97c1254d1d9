"""``diem size``: brokers, partitions and replicas for a workload, by the bounds in ``learning.sizing``.

Reading order: ``sizing`` (figures of a workload, limits and the answer, pure), ``report`` (table and JSON), ``measure``
(reads the figures of a running system). The command is in ``tools.commands.size``.
"""
