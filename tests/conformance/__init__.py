"""Conformance of the WebSocket implementation to RFC 6455, judged by implementations that are not ours.

Reading order: ``echo`` (the production connection as an echo server), ``autobahn`` (runs the Autobahn test suite and
judges its report), ``test_autobahn``, ``test_peer`` (the ``ws`` package, whose cases are in ``peer.mjs``).
"""
