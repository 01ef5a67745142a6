import type { Chat, Problem } from "./api.js";
import { pause, segment, sent, TurnledgerError, type CallOptions, type Request, type Sender } from "./send.js";

/** An event of an answer. `id` counts its events, where the server numbers them. */
export type ChatEvent =
  | { type: "begun"; id: string | undefined; thread_id: string; turn_id?: string }
  | { type: "delta"; id: string | undefined; content: string }
  | ({ type: "done"; id: string | undefined } & Chat);

/**
 * Reads an answer to its end. Where the connection is lost it goes on behind the last event that came: at the running
 * answer, or, if that is over, at the same request, which is answered as the first time.
 */
export async function* readChat(
  sender: Sender, thread: string, ask: Request | undefined, from: string | number | undefined, options?: CallOptions,
): AsyncGenerator<ChatEvent> {
  let begun = false;
  let turn: string | undefined;
  let last = from === undefined ? undefined : String(from);
  let request = ask ?? attached(thread, last, turn);
  let repeats = false;
  for (let tries = 0; ;) {
    try {
      const answer = await sender.open(request, options);
      if (answer.status === 204) {
        if (!ask || !begun || repeats) return;
        [request, repeats] = [ask, true];
        continue;
      }
      for await (const one of sent(answer)) {
        const event = eventOf(one);
        if (!event || (begun && (event.type === "begun" || (repeats && event.type === "delta")))) continue;
        [begun, last, tries] = [true, one.id ?? last, 0];
        if (event.type === "begun") turn = event.turn_id;
        yield event;
        if (event.type === "done") return;
      }
      throw new TurnledgerError(0, "connection_lost", "the answer broke off");
    } catch (error) {
      if (options?.signal?.aborted) throw error;
      if (begun && error instanceof TurnledgerError && (error.status === 404 || error.status === 405) && ask && !repeats) {
        [request, repeats] = [ask, true]; // this server lets nobody come back to an answer
        continue;
      }
      const broke = error instanceof TurnledgerError && error.status === 0;
      if (!broke || tries++ >= sender.retries) throw error;
      if (begun && last !== undefined) request = attached(thread, last, turn);
      else if (begun && ask) [request, repeats] = [ask, true];
      await pause(0.25 * tries, options?.signal);
    }
  }
}

// attached watches the answer of a turn: another one may run by the time the client comes back.
function attached(thread: string, from: string | undefined, turn_id: string | undefined): Request {
  const path = `/v1/threads/${segment(thread)}/messages/stream`;
  return { method: "GET", path, query: { from, turn_id } };
}

function eventOf(one: { event: string; id: string | undefined; data: string }): ChatEvent | undefined {
  if (!one.data) return undefined;
  const data = JSON.parse(one.data) as object;
  switch (one.event) {
    case "error": {
      const problem = data as Problem;
      throw new TurnledgerError(problem.status, problem.code, problem.detail);
    }
    case "begun": case "delta": case "done":
      return { type: one.event, id: one.id, ...data } as ChatEvent;
    default:
      return undefined;
  }
}
