import { pause, sent, TurnledgerError, type CallOptions, type Sender } from "./send.js";

/** Which events are read; times are RFC 3339, positions as `0:42` or `0:42,1:17`. */
export interface EventsArguments {
  session_id?: string;
  identity_id?: string;
  type?: string | string[];
  /** Go on after these positions. */
  from?: string;
  to?: string;
  since?: string;
  until?: string;
  /** Go on with what comes. */
  follow?: boolean;
  min_position?: string;
}

/** An event of the log: a CloudEvent in JSON form. */
export interface LedgerEvent {
  specversion: string;
  id: string;
  source: string;
  type: string;
  /** The session. */
  subject?: string;
  time: string;
  recordedat?: string;
  position: string;
  data: Record<string, unknown>;
}

/** Reads the log, and goes on behind the last event where the connection is lost. */
export async function* readEvents(
  sender: Sender, args: EventsArguments, options?: CallOptions,
): AsyncGenerator<LedgerEvent> {
  let last: string | undefined;
  for (let tries = 0; ;) {
    try {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (last) headers["last-event-id"] = last;
      const answer = await sender.open({ method: "GET", path: "/v1/events", query: { ...args }, headers }, options);
      for await (const one of sent(answer)) {
        [last, tries] = [one.id ?? last, 0];
        if (one.event === "end") return;
        if (one.data) yield JSON.parse(one.data) as LedgerEvent;
      }
      throw new TurnledgerError(0, "connection_lost", "the stream of events broke off");
    } catch (error) {
      const broke = error instanceof TurnledgerError && error.status === 0;
      if (options?.signal?.aborted || !broke || tries++ >= sender.retries) throw error;
      await pause(0.25 * tries, options?.signal);
    }
  }
}
