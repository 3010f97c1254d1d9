"""Connections: of clients (the edge), between processes (feeds), REST listeners, and the limits of each address.

WebSocket is that of websockets' sans-IO protocols.

Reading order: ``connection`` (both sides), ``handshakes`` (of TLS), ``listener`` and ``dialer``, ``keepalive``; for
clients ``refusals`` (of handshakes, with their reasons), ``edge`` (admission, metrics, drain), ``client_auth`` (tokens
and their expiry), ``compression`` and ``edge_connection`` (requests, rights, limits, slow clients, close codes),
``read_reports`` (data by API key), with ``epochs`` and ``unix_sockets``; between processes ``mutual_auth``,
``refused_peers``, ``internal`` with ``health``, ``internal_client`` (HTTP), ``feed_server``, ``feed_reader`` and
``proxy_port``; for REST ``http_server``, ``fast_path`` (answers from memory), ``connection_limits`` and ``rest``
(middleware); ``service`` wires a process; ``client`` is for Python.
"""
