"""The Multi-WebSocket service: pairs of bridge and server, a metadata service and a proxy behind one public port.

Reading order: ``plan`` (its children, pure), ``composite`` (supervises them), ``control`` (scaling), ``main``.
"""
