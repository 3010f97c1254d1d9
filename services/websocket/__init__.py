"""The WebSocket server: holds its clients' subscriptions, and sends each update to its subscribers only.

Reading order: ``server`` (the feed in, clients out), ``retained_reads`` (data of a served topic, for REST),
``settings``, ``main`` (wiring).
"""
