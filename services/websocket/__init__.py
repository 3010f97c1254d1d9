"""The WebSocket server: holds who looks at what, and notifies exactly those browsers.

Reading order: ``server`` (the feed in, clients out), ``settings``, ``main`` (wiring).
"""
