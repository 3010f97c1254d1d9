"""Connections: of clients (the edge), between processes (feeds), and REST listeners.

WebSocket is that of websockets' sans-IO protocols.

Reading order: ``connection`` (both sides), ``handshakes`` (of TLS), ``listener`` and ``dialer``, ``keepalive``; for
clients ``refusals`` (of handshakes, with their reasons), ``edge`` (admission, metrics, drain; a client is any
``EdgeClient``), ``client_auth`` (tokens and their expiry), ``admitted_client`` (rights, slow readers), ``compression``
and ``edge_connection`` (WebSocket) or ``http_updates`` (requests) with ``http_clients`` (long
polls, event streams) and ``shared_polls``, ``read_reports`` (data by API key),
with ``epochs`` and ``unix_sockets``; between processes ``mutual_auth``, ``refused_peers``, ``internal`` with
``health``, ``internal_client`` (HTTP), ``feed_server``, ``feed_reader`` and ``proxy_port``; for REST ``http_server``,
``fast_path`` (answers from memory), ``connection_limits`` and ``rest`` (middleware); ``service`` wires a process.
"""
