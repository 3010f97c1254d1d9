"""The WebSocket server: holds its clients' subscriptions, and sends each update to its subscribers only.

Reading order: ``server`` (the feed in, clients out), ``settings``, ``main`` (wiring).
"""
