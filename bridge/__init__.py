"""The bridge: reads every partition of the updates topic and serves it, as a feed, to one WebSocket server.

Reading order: ``main`` wires, with ``settings``; ``feed_endpoint`` accepts one reader at a time; ``session`` resumes at
the reader's positions, consumes and sends; ``partition_state`` owns the state of every partition; ``records``
validates, conflates and encodes; ``consumer`` wraps aiokafka. In a group, ``group_member`` is the
membership, and ``side_channels`` send the partition map and its owners. ``topic_watcher`` notices replaced topics;
``status`` reports, with metrics that are defined in ``diem.process.metrics``. For a topic of other programs that is
served as it is, ``topic_records`` and ``served_watcher`` take the places of ``records`` and ``topic_watcher``.
"""
