"""A peer: uWebSockets through socketify, which has its topics in C++: uws.py PORT.

Clients send {"subscribe":[...]}; POST / has {"updates":[{"endpoint":...},...]}. It runs in an environment of its own.
"""

import json
import sys
from typing import Any

from socketify import App, OpCode  # type: ignore[import-not-found]

app = App()


def subscribe(socket: Any, message: Any, _opcode: Any) -> None:
    for endpoint in json.loads(message)["subscribe"]:
        socket.subscribe(endpoint)


def publish(response: Any, _request: Any) -> None:
    chunks: list[bytes] = []

    def receive(response: Any, chunk: Any, is_last: bool, *_: Any) -> None:
        chunks.append(bytes(chunk))
        if is_last:
            for update in json.loads(b"".join(chunks))["updates"]:
                app.publish(update["endpoint"], json.dumps(update, separators=(",", ":")), OpCode.TEXT)
            response.end("{}")

    response.on_data(receive)


app.ws("/", {"message": subscribe, "idle_timeout": 120, "max_backpressure": 64 * 1024 * 1024})
app.post("/", publish)
app.listen({"port": int(sys.argv[1]), "host": "127.0.0.1"}, lambda _config: None)
app.run()
