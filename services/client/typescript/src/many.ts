import type { Line } from "./api.js";
import type { ManyTurn } from "./index.js";
import { newID, pause, type CallOptions, type Sender } from "./send.js";

const linesOfRequest = 500;
const lettersOfRequest = 1 << 20; // at most four bytes each, of the 8 MiB that a request may have

/**
 * Records turns in requests of at most 500. A turn whose refusal may pass (429, 503) is sent again with the later turns
 * of its session, and nothing else goes on meanwhile, so the order of a session's turns holds. If it does not pass, the
 * later turns of its session are answered as it is.
 */
export async function recordMany(sender: Sender, turns: ManyTurn[], options?: CallOptions): Promise<Line[]> {
  const lines = turns.map((turn, at) => {
    const request = turn.request_id === undefined ? { request_id: newID() } : {};
    return { at, session: turn.session_id, text: JSON.stringify({ ...turn, ...request }) };
  });
  const out: Line[] = [];
  const refused = new Map<string, Line>();
  while (lines.length > 0) {
    let open = lines.splice(0, fitting(lines)).filter(({ at, session }) => {
      const why = refused.get(session);
      if (why) out[at] = { ...why, line: at + 1 };
      return !why;
    });
    for (let tries = 0; open.length > 0; tries++) {
      const body = open.map(({ text }) => `${text}\n`).join("");
      const headers = { "content-type": "application/x-ndjson" };
      const request = { method: "POST", path: "/v1/turns", body, headers, within: 180_000 };
      const answers = await sender.text(request, options, (text) => linesOf(text, open.length));
      open.forEach(({ at }, n) => (out[at] = { ...(answers[n] as Line), line: at + 1 }));
      open = open.filter(({ at }) => [429, 503].includes((out[at] as Line).http_status));
      if (tries >= sender.retries) break;
      const waits = Math.max(0.25, ...open.map(({ at }) => out[at]?.retry_after ?? 0));
      if (open.length > 0) await pause(waits, options?.signal);
    }
    for (const { at, session } of open) refused.set(session, out[at] as Line);
  }
  return out;
}

function linesOf(text: string, many: number): Line[] {
  const lines = text.trimEnd().split("\n").map((line) => JSON.parse(line) as Line);
  if (lines.length !== many) throw new Error(`${lines.length} of ${many} lines came`);
  return lines;
}

function fitting(lines: { text: string }[]): number {
  let size = 0;
  for (let n = 0; n < lines.length; n++) {
    size += (lines[n] as { text: string }).text.length + 1;
    if (n > 0 && (n === linesOfRequest || size > lettersOfRequest)) return n;
  }
  return lines.length;
}
