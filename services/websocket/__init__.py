"""The WebSocket server: holds the subscriptions of its clients, and sends each update to its subscribers only.

Reading order: ``server`` (the feed in, clients out), ``settings``, ``main`` (wiring).
"""
