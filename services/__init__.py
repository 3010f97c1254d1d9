"""Data Service, Broadcast node, WebSocket server and composite: a package each; they never import each other.

The parts of the scaling axes, ``bridge``, ``proxy`` and ``metadata``, have packages of their own at the top.
"""
