/** The close codes and error codes of the client protocol: the mirror of the server's one table (docs/protocol.md section 1). */

/** Every close code of the protocol, and whether a client reconnects after it. */
export const CLOSE_CODES = {
  NORMAL: { code: 1000, reconnect: false },
  GOING_AWAY: { code: 1001, reconnect: true },
  PROTOCOL_ERROR: { code: 1002, reconnect: false },
  UNSUPPORTED_DATA: { code: 1003, reconnect: false },
  INVALID_DATA: { code: 1007, reconnect: false },
  POLICY_VIOLATION: { code: 1008, reconnect: false },
  TOO_BIG: { code: 1009, reconnect: false },
  INTERNAL_ERROR: { code: 1011, reconnect: true },
  RESTART: { code: 1012, reconnect: true },
  OVERLOAD: { code: 1013, reconnect: true },
  NO_UPSTREAM: { code: 1014, reconnect: true },
  MOVED: { code: 4000, reconnect: true },
  TOKEN_EXPIRED: { code: 4001, reconnect: true },
  SLOW: { code: 4002, reconnect: true },
  RATE: { code: 4003, reconnect: true },
  BAD_REQUEST: { code: 4500, reconnect: false },
  UNAUTHORISED: { code: 4501, reconnect: false },
  AUTH_TIMEOUT: { code: 4502, reconnect: false },
  LOGGED_OUT: { code: 4503, reconnect: false },
  CONNECTION_LIMIT: { code: 4504, reconnect: false },
  SUBSCRIPTION_LIMIT: { code: 4505, reconnect: false },
  UNSUPPORTED_VERSION: { code: 4506, reconnect: false },
  TOO_MANY_ERRORS: { code: 4509, reconnect: false },
} as const;

/** The codes of an `error` frame and of a rejected name. */
export const ERROR_CODES = [
  "bad_json",
  "bad_message",
  "bad_name",
  "too_many",
  "unauthorised",
  "forbidden",
  "limit",
  "rate",
  "not_owner",
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

/** Whether to reconnect after `code`. Codes without a row (1006 for a lost connection, new ones) follow their range. */
export function reconnects(code: number): boolean {
  const row = Object.values(CLOSE_CODES).find((found) => found.code === code);
  return row?.reconnect ?? code < CLOSE_CODES.BAD_REQUEST.code;
}

/**
 * The window in milliseconds that a server asks for in the reason of a close (`retry=<ms>`), whatever the code, or null.
 * It is an upper bound for a random delay, not a delay; more than ten minutes counts as ten.
 */
export function retryWindow(reason: string): number | null {
  const found = /\bretry=(\d{1,9})\b/.exec(reason);
  return found ? Math.min(Number(found[1]), 600_000) : null;
}
