"""The protocols of docs/protocol.md and docs/internals.md as bytes and values; pure, the same on both sides of a link.

Reading order: ``endpoints`` (names), ``codes`` (close and error codes), ``messages`` (the client protocol),
``media_types`` (kinds of data), ``update`` (the update record), ``frames`` (WebSocket frames, built once or passed on),
``deflate`` (compressed ones), ``feed`` (the feed protocol), ``compatibility`` (versions between processes),
``partitioners``, ``partition_map`` and ``assignment`` (placement of endpoints), ``watermark`` (proof that a log is
complete), ``keys`` and ``served_topic`` (names and versions of a topic that is served as it is), ``traffic`` (recorded
events).
"""
