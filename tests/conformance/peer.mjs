// An independent peer: the `ws` package against the echo server (DIEM_ECHO_URL) and a WebSocket server (DIEM_EDGE_URL).
// Run by test_peer.py in client/, where `ws` is installed; node:test reports each case.
// What `ws` refuses to send (RFC 6455 violations) is written to its socket as raw frames.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { join } from "node:path";
import { describe, test } from "node:test";

const WebSocket = createRequire(join(process.cwd(), "package.json"))("ws");
const ECHO = process.env.DIEM_ECHO_URL;
const EDGE = process.env.DIEM_EDGE_URL;
const PATIENCE_MS = 1000 * Number(process.env.DIEM_PATIENCE_S);
const MAX_ECHO_BYTES = 1024 * 1024;
const CONT = 0x0, TEXT = 0x1, BINARY = 0x2, CLOSE = 0x8, PING = 0x9;

/** An open connection with its received messages, in order, and its end. */
class Peer {
  constructor(url, protocols = [], options = { perMessageDeflate: false }) {
    this.messages = [];
    this.waiting = [];
    this.socket = new WebSocket(url, protocols, options);
    this.socket.on("message", (data, isBinary) => {
      const message = isBinary ? data : data.toString();
      const next = this.waiting.shift();
      if (next) next(message);
      else this.messages.push(message);
    });
    // A reset behind a violation is an end like any other; `closed` has the code.
    this.socket.on("error", () => {});
    this.closed = new Promise((resolve) => {
      this.socket.on("close", (code, reason) => resolve({ code, reason: reason.toString() }));
    });
  }

  static async open(...how) {
    const peer = new Peer(...how);
    await once(peer.socket, "open");
    return peer;
  }

  /** The next message; rejected when the connection ends before it. */
  receive() {
    if (this.messages.length) return Promise.resolve(this.messages.shift());
    return Promise.race([
      new Promise((resolve) => this.waiting.push(resolve)),
      this.closed.then(({ code }) => Promise.reject(new Error(`closed with ${code}`))),
    ]);
  }

  /** Write bytes to the connection as they are. */
  raw(...chunks) {
    this.socket._socket.write(Buffer.concat(chunks.map((chunk) => Buffer.from(chunk))));
  }

  /** End the connection and wait for the end, so that no case leaves one behind. */
  async end() {
    this.socket.close(1000);
    return (await this.closed).code;
  }
}

/** One frame with any header bits; masked by a fixed key unless told otherwise. */
function frame(opcode, payload = "", { fin = true, rsv = 0, masked = true } = {}) {
  const data = Buffer.from(payload);
  const mask = Buffer.from([0x37, 0xfa, 0x21, 0x3d]);
  const first = (fin ? 0x80 : 0) | (rsv << 4) | opcode;
  const flag = masked ? 0x80 : 0;
  let head;
  if (data.length < 126) head = Buffer.from([first, flag | data.length]);
  else if (data.length < 65536) head = Buffer.from([first, flag | 126, data.length >> 8, data.length & 255]);
  else {
    head = Buffer.alloc(10);
    head.set([first, flag | 127]);
    head.writeBigUInt64BE(BigInt(data.length), 2);
  }
  if (!masked) return Buffer.concat([head, data]);
  return Buffer.concat([head, mask, data.map((byte, at) => byte ^ mask[at % 4])]);
}

/** The payload of a close frame with any code. */
const closing = (code, reason = "") => Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]);

/** The close code that raw bytes provoke on a new connection. */
async function provoked(url, protocols, ...chunks) {
  const peer = await Peer.open(url, protocols);
  peer.raw(...chunks);
  return (await peer.closed).code;
}

const limited = { timeout: PATIENCE_MS };

describe("echo", limited, () => {
  const violation = (...chunks) => provoked(ECHO, [], ...chunks);

  test("compression is agreed where it is offered, and messages come back whole", limited, async () => {
    const peer = await Peer.open(ECHO, [], { perMessageDeflate: { threshold: 0 } });
    assert.equal(peer.socket.extensions, "permessage-deflate");
    for (const size of [0, 1, 3000, MAX_ECHO_BYTES]) {
      peer.socket.send("x".repeat(size));
      assert.equal(await peer.receive(), "x".repeat(size));
    }
    peer.socket.send("frag", { fin: false });
    peer.socket.send("ments", { fin: true });
    assert.equal(await peer.receive(), "fragments");
    assert.equal(await peer.end(), 1000);
  });

  test("a compressed message above the limit is 1009, and a compressed continuation 1002", limited, async () => {
    const large = await Peer.open(ECHO, [], { perMessageDeflate: { threshold: 0 } });
    large.socket.send(Buffer.alloc(MAX_ECHO_BYTES + 1));
    assert.equal((await large.closed).code, 1009);
    const continued = await Peer.open(ECHO, [], { perMessageDeflate: true });
    const [first, second] = [[0x4a], [0x04, 0x00]];
    continued.raw(frame(TEXT, first, { fin: false, rsv: 4 }), frame(CONT, second, { rsv: 4 }));
    assert.equal((await continued.closed).code, 1002);
  });

  for (const size of [0, 1, 125, 126, 127, 65535, 65536, MAX_ECHO_BYTES]) {
    test(`text and binary messages of ${size} bytes come back whole`, limited, async () => {
      const peer = await Peer.open(ECHO);
      const text = "x".repeat(size);
      peer.socket.send(text);
      assert.equal(await peer.receive(), text);
      const binary = Buffer.alloc(size, 0xfe);
      peer.socket.send(binary);
      assert.ok(binary.equals(await peer.receive()));
      assert.equal(await peer.end(), 1000);
    });
  }

  test("a message above the limit is 1009, whole or in fragments", limited, async () => {
    const whole = await Peer.open(ECHO);
    whole.socket.send(Buffer.alloc(MAX_ECHO_BYTES + 1));
    assert.equal((await whole.closed).code, 1009);
    const pieces = await Peer.open(ECHO);
    pieces.socket.send(Buffer.alloc(MAX_ECHO_BYTES), { fin: false });
    pieces.socket.send(Buffer.alloc(1), { fin: true });
    assert.equal((await pieces.closed).code, 1009);
  });

  test("fragments are one message, with pings answered between them", limited, async () => {
    const peer = await Peer.open(ECHO);
    const pongs = [];
    peer.socket.on("pong", (data) => pongs.push(data.toString()));
    for (const [at, piece] of ["one ", "", "two ", "three"].entries()) {
      peer.socket.send(piece, { fin: at === 3 });
      peer.socket.ping(`after ${at}`);
    }
    assert.equal(await peer.receive(), "one two three");
    peer.socket.send("next");
    assert.equal(await peer.receive(), "next");
    assert.deepEqual(pongs, ["after 0", "after 1", "after 2", "after 3"]);
    await peer.end();
  });

  test("characters may be split between fragments", limited, async () => {
    const peer = await Peer.open(ECHO);
    const text = "κόσμε 🌍 ∮ E⋅da";
    const bytes = Buffer.from(text);
    for (const [at, byte] of bytes.entries()) {
      peer.raw(frame(at ? CONT : TEXT, [byte], { fin: at === bytes.length - 1 }));
    }
    assert.equal(await peer.receive(), text);
    await peer.end();
  });

  test("frames may arrive byte by byte", limited, async () => {
    const peer = await Peer.open(ECHO);
    peer.socket._socket.setNoDelay(true);
    for (const byte of frame(TEXT, "slowly")) {
      peer.raw([byte]);
      await new Promise(setImmediate);
    }
    assert.equal(await peer.receive(), "slowly");
    await peer.end();
  });

  test("text that is not UTF-8 is 1007", limited, async () => {
    const broken = [[0xc3], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xc0, 0xaf], [0xfe]];
    for (const bytes of broken) assert.equal(await violation(frame(TEXT, bytes)), 1007);
    assert.equal(await violation(frame(TEXT, [0xce], { fin: false }), frame(CONT, "x")), 1007);
  });

  test("pings of every length are answered with their payload, pongs not at all", limited, async () => {
    const peer = await Peer.open(ECHO);
    for (const length of [0, 1, 125]) {
      const pong = once(peer.socket, "pong");
      peer.socket.ping(Buffer.alloc(length, 0xa5));
      assert.ok(Buffer.alloc(length, 0xa5).equals((await pong)[0]));
    }
    peer.socket.pong("unsolicited");
    peer.socket.send("still here");
    assert.equal(await peer.receive(), "still here");
    await peer.end();
  });

  test("valid close codes come back, and none is answered with none", limited, async () => {
    for (const code of [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]) {
      assert.equal(await violation(frame(CLOSE, closing(code, "bye"))), code);
    }
    assert.equal(await violation(frame(CLOSE)), 1005);
  });

  test("close codes that may not be sent are 1002", limited, async () => {
    for (const code of [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535]) {
      assert.equal(await violation(frame(CLOSE, closing(code))), 1002, String(code));
    }
  });

  test("a close frame with half a code is 1002, with a reason that is not UTF-8 1007", limited, async () => {
    assert.equal(await violation(frame(CLOSE, [3])), 1002);
    assert.equal(await violation(frame(CLOSE, Buffer.concat([closing(1000), Buffer.from([0xc3, 0x28])]))), 1007);
  });

  test("nothing behind a close frame is answered", limited, async () => {
    const peer = await Peer.open(ECHO);
    peer.raw(frame(CLOSE, closing(1000)), frame(TEXT, "behind"));
    assert.equal((await peer.closed).code, 1000);
    assert.deepEqual(peer.messages, []);
  });

  test("an unmasked frame is 1002", limited, async () => {
    for (const opcode of [TEXT, BINARY, PING]) {
      assert.equal(await violation(frame(opcode, "x", { masked: false })), 1002);
    }
    const fragmented = [frame(TEXT, "x", { fin: false }), frame(CONT, "y", { masked: false })];
    assert.equal(await violation(...fragmented), 1002);
  });

  test("reserved bits and opcodes are 1002", limited, async () => {
    for (const rsv of [1, 2, 4]) assert.equal(await violation(frame(TEXT, "x", { rsv })), 1002);
    for (const opcode of [3, 7, 11, 15]) assert.equal(await violation(frame(opcode, "x")), 1002);
  });

  test("long and fragmented control frames are 1002", limited, async () => {
    assert.equal(await violation(frame(PING, Buffer.alloc(126))), 1002);
    assert.equal(await violation(frame(PING, "x", { fin: false })), 1002);
  });

  test("fragments out of order are 1002", limited, async () => {
    assert.equal(await violation(frame(CONT, "x")), 1002);
    assert.equal(await violation(frame(TEXT, "x", { fin: false }), frame(TEXT, "y")), 1002);
  });

  test("a length of 64 bits or beyond the limit ends the connection before any payload", limited, async () => {
    assert.ok([1002, 1009].includes(await violation([0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0])));
    assert.equal(await violation([0x82, 0xff, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]), 1009);
  });

  test("after half a close of the TCP connection, what was sent before is answered", limited, async () => {
    const peer = await Peer.open(ECHO);
    peer.socket._socket.end(frame(TEXT, "last words"));
    assert.equal(await peer.receive(), "last words");
    assert.equal((await peer.closed).code, 1006);
  });

  test("half a frame and then the end is an end", limited, async () => {
    const peer = await Peer.open(ECHO);
    peer.socket._socket.end(frame(TEXT, "never whole").subarray(0, 9));
    assert.equal((await peer.closed).code, 1006);
    assert.deepEqual(peer.messages, []);
  });
});

describe("WebSocket server", limited, () => {
  const PROTOCOLS = ["diem.v1.json"];
  const violation = (...chunks) => provoked(EDGE, PROTOCOLS, ...chunks);
  const subscribe = (id, ...names) =>
    JSON.stringify({ type: "subscribe", id, endpoints: Object.fromEntries(names.map((name) => [name, null])) });

  /** An open connection whose welcome and status have been read. */
  async function client() {
    const peer = await Peer.open(EDGE, PROTOCOLS);
    assert.equal(JSON.parse(await peer.receive()).type, "welcome");
    assert.equal(JSON.parse(await peer.receive()).type, "status");
    return peer;
  }

  test("the subprotocol is confirmed", limited, async () => {
    const peer = await Peer.open(EDGE, ["other.v9", ...PROTOCOLS]);
    assert.equal(peer.socket.protocol, "diem.v1.json");
    assert.equal(peer.socket.extensions, "");
    assert.equal(await peer.end(), 1000);
  });

  test("a subscription in fragments with a ping between them is one request", limited, async () => {
    const peer = await client();
    const bytes = Buffer.from(subscribe(7, "/retained"));
    const [head, rest] = [bytes.subarray(0, 10), bytes.subarray(10)];
    peer.raw(frame(TEXT, head, { fin: false }), frame(PING, "between"), frame(CONT, rest));
    const reply = JSON.parse(await peer.receive());
    assert.equal(reply.type, "subscribed");
    assert.equal(reply.id, 7);
    const update = JSON.parse(await peer.receive());
    assert.deepEqual([update.type, update.endpoint], ["update", "/retained"]);
    assert.equal(update.version, reply.endpoints["/retained"]);
    assert.equal(await peer.end(), 1000);
  });

  test("a reply of many names is one frame that the peer accepts", limited, async () => {
    const peer = await client();
    const names = Array.from({ length: 60 }, (_, at) => `/many/${at}/${"n".repeat(60)}`);
    peer.socket.send(subscribe(8, ...names));
    const reply = JSON.parse(await peer.receive());
    assert.deepEqual(Object.keys(reply.endpoints).sort(), names.sort());
    assert.equal(await peer.end(), 1000);
  });

  test("violations have the codes of the protocol", limited, async () => {
    assert.equal(await violation(frame(TEXT, [0xff])), 1007);
    assert.equal(await violation(frame(BINARY, "x")), 1003);
    assert.equal(await violation(frame(TEXT, Buffer.alloc(32769, 0x20))), 1009);
    assert.equal(await violation(frame(TEXT, "x", { masked: false })), 1002);
    assert.equal(await violation(frame(TEXT, "x", { rsv: 4 })), 1002);
  });

  test("a ping is answered, and a close with its code", limited, async () => {
    const peer = await client();
    const pong = once(peer.socket, "pong");
    peer.socket.ping("hello");
    assert.equal((await pong)[0].toString(), "hello");
    peer.socket.close(4999, "bye");
    assert.equal((await peer.closed).code, 4999);
  });

  test("after half a close of the TCP connection the server closes the rest", limited, async () => {
    const peer = await client();
    peer.socket._socket.end(frame(TEXT, subscribe(9, "/retained")));
    assert.equal(JSON.parse(await peer.receive()).type, "subscribed");
    assert.equal((await peer.closed).code, 1006);
  });
});
