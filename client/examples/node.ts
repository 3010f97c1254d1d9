/** A program for Node that prints each change of an endpoint, until it is told to stop. */

import { createDiem } from "diem-client/node";

export async function print(configUrl: string, endpoint: string, write: (line: string) => void, signal: AbortSignal, WebSocket?: unknown): Promise<void> {
  const diem = createDiem({ configUrl, WebSocket });
  try {
    for await (const { version, value } of diem.watch(endpoint, { signal })) write(`${version} ${JSON.stringify(value)}`);
  } finally {
    diem.close();
  }
}
