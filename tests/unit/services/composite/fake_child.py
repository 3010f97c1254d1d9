"""A fake child of a composite that only serves its status: ``fake_child.py PROCESS``, with a real child's environment.

``FAKE_FOLDER`` has the file ``stopped``, to which it appends its name when it stops, and the file ``unready``, with the
names of children that are not ready. ``FAKE_WRONG`` names children with a wrong configuration, ``FAKE_STUBBORN`` those
that do not stop.
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from diem.links.mutual_auth import PATH, ListenerAuth, address_of
from diem.process.auth import SharedKey

PROCESS = sys.argv[1]
PREFIX = f"DIEM_{PROCESS.upper()}_"
NAME = f"{PROCESS}-{os.environ[f'{PREFIX}NUMBER']}" if PROCESS in {"bridge", "websocket"} else PROCESS
UNREADY = Path(os.environ["FAKE_FOLDER"]) / "unready"
KEY = SharedKey.load(Path(os.environ["DIEM_INTERNAL_KEY_FILE"]))


class Status(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    auth: ListenerAuth

    def do_GET(self) -> None:
        authorization = self.headers["Authorization"]
        if self.path == PATH:
            addresses = {address_of(self.connection.getsockname())}
            self.auth = ListenerAuth(authorization, {KEY.id: KEY}.get, addresses)
            self.wfile.write(self.auth.answer())
            return
        authorised = self.auth.verify(authorization, "GET", self.path)
        unready = UNREADY.read_text().split() if UNREADY.exists() else []
        body = json.dumps(
            {"ready": NAME not in unready, "clients": 3, "upstreams": 2, "live": NAME != "websocket-2"}
        ).encode()
        self.send_response(200 if authorised and self.path == "/status" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


def stop(*_signal: object) -> None:
    if NAME in os.environ.get("FAKE_STUBBORN", "").split():
        return
    with (Path(os.environ["FAKE_FOLDER"]) / "stopped").open("a") as file:
        file.write(f"{NAME}\n")
    os._exit(0)


def orphaned() -> None:
    while os.read(0, 1024):
        pass
    if NAME not in os.environ.get("FAKE_STUBBORN", "").split():
        os._exit(0)


if NAME in os.environ.get("FAKE_WRONG", "").split():
    sys.exit(2)
signal.signal(signal.SIGTERM, stop)
threading.Thread(target=orphaned, daemon=True).start()
print(f"{NAME} is up", flush=True)
HTTPServer.allow_reuse_port = sys.platform == "linux"  # as our processes listen on reserved ports
HTTPServer(("127.0.0.1", int(os.environ[f"{PREFIX}INTERNAL_PORT"])), Status).serve_forever()
