import type * as api from "./api.js";
import { readChat, type ChatEvent } from "./chat.js";
import { readEvents, type EventsArguments, type LedgerEvent } from "./events.js";
import { recordMany } from "./many.js";
import { newID, segment, Sender, type CallOptions, type Options } from "./send.js";

export type * from "./api.js";
export type { ChatEvent } from "./chat.js";
export type { EventsArguments, LedgerEvent } from "./events.js";
export { TurnledgerError, type CallOptions, type Options } from "./send.js";

export interface InSession {
  session_id: string;
}
export interface InTurn extends InSession {
  turn_id: string;
}
export interface Read {
  /** The answer is at least that new. */
  min_position?: string;
}
/** A start of recordMany. A request id is made up where there is none. */
export type ManyTurn = InSession & api.StartBody;
/** A session of a list. */
export type ListedSession = api.Session & api.Listed;
export interface SessionList {
  sessions: ListedSession[];
  next_cursor: string | null;
}
export interface ChatArguments extends Omit<api.ChatBody, "thread_id"> {
  /** Left out, or `new`: a thread with an id that this client draws, so that the call can be tried again. */
  thread_id?: string;
}

/** A client of a Turnledger server. It holds no connection; calls may be made at once. */
export class Turnledger {
  /** What the adapters send by; not part of the API. @internal */
  readonly sender: Sender;

  constructor(options: Options) {
    this.sender = new Sender(options);
  }

  readonly turns = {
    /** Records a question with its answer in one call. */
    record: (args: InSession & api.StartBody, options?: CallOptions) => this.#start(args, options),
    /** Records a question; `finalize` brings the answer. */
    start: (args: InSession & api.StartBody, options?: CallOptions) => this.#start(args, options),
    finalize: (args: InTurn & api.FinalizeBody, options?: CallOptions) => this.#onTurn("finalize", args, options),
    redact: (args: InTurn & api.EraseBody, options?: CallOptions) => this.#onTurn("redact", args, options),
    correct: (args: InTurn & api.CorrectBody, options?: CallOptions) =>
      this.#onTurn("correct", { request_id: newID(), ...defined(args) }, options),
    /** Records many turns, those of a session in their order; answers a line for each. */
    recordMany: (args: { turns: ManyTurn[] } | ManyTurn[], options?: CallOptions) =>
      recordMany(this.sender, Array.isArray(args) ? args : args.turns, options),
  };

  readonly sessions = {
    list: (args: api.SessionsQuery & Read = {}, options?: CallOptions) => {
      const { min_position, ...body } = args;
      return this.#read<SessionList>("POST", "/v1/sessions/query", { min_position }, body, options);
    },
    get: (args: InSession & Read, options?: CallOptions) => this.#ofSession<api.Session>("", args, options),
    describe: (args: InSession & api.DescribeBody, options?: CallOptions) =>
      this.#write<api.Session>("PATCH", args, "", { request_id: newID() }, options),
    fork: (args: InSession & Omit<api.ForkBody, "session_id"> & { new_session_id?: string }, options?: CallOptions) => {
      const { new_session_id, ...rest } = args;
      const branch = new_session_id === undefined ? {} : { branch: new_session_id };
      return this.#fork({ ...rest, ...branch }, options);
    },
    /** Closes a session for ever; the receipt says how far its erasure is. */
    erase: (args: InSession & api.EraseBody, options?: CallOptions) =>
      this.#write<api.Erased>("DELETE", args, "", {}, options),
    history: (args: InSession & Read & { limit?: number }, options?: CallOptions) =>
      this.#ofSession<api.History>("/history", args, options),
    turns: (
      args: InSession & Read & { limit?: number; status?: "finalized" | "pending" | "all"; cursor?: string },
      options?: CallOptions,
    ) => this.#ofSession<api.Turns>("/turns", args, options),
    link: (args: InSession & api.LinkBody, options?: CallOptions) =>
      this.#write<api.Session>("PUT", args, "/identity", {}, options),
    /** Prompts and history begin anew. It is sent once: a second one, later, would hide what came in between. */
    reset: (args: InSession & api.ResetBody, options?: CallOptions) =>
      this.#write<api.Session>("POST", args, "/reset", {}, options, false),
  };

  readonly context = {
    build: (args: InSession & api.ContextBody & Read, options?: CallOptions) => {
      const { session_id, min_position, ...body } = args;
      const path = `/v1/sessions/${segment(session_id)}/context`;
      return this.#read<api.Context>("POST", path, { min_position }, body, options);
    },
  };

  readonly receipts = {
    get: (args: { receipt_id: string }, options?: CallOptions) =>
      this.#read<api.Receipt>("GET", `/v1/receipts/${segment(args.receipt_id)}`, {}, undefined, options),
  };

  readonly tokens = {
    /** A token for a page, bound to an identity. Needs a key with the scope tokens:issue. */
    create: (args: api.TokenInBody, options?: CallOptions) =>
      this.sender.json<api.Token>({ method: "POST", path: "/v1/tokens", body: args }, options),
  };

  readonly chat = {
    /** Asks the configured model, and waits for its whole answer. */
    send: (args: ChatArguments, options?: CallOptions) => {
      const { path, body } = asked(args);
      return this.sender.json<api.Chat>({ method: "POST", path, body, within: 330_000 }, options);
    },
    /** The same, piece by piece. A lost connection is taken up again; no piece comes twice. */
    stream: (args: ChatArguments, options?: CallOptions): AsyncGenerator<ChatEvent> => {
      const { path, thread, body } = asked(args);
      return readChat(this.sender, thread, { method: "POST", path: `${path}/stream`, body }, undefined, options);
    },
    /** The events of the answer that runs, from its beginning or behind an event; none if nothing runs. */
    attach: (args: { thread_id: string; from?: string | number }, options?: CallOptions): AsyncGenerator<ChatEvent> =>
      readChat(this.sender, args.thread_id, undefined, args.from, options),
    /** Ends the answer that runs with what is there. */
    stop: (args: { thread_id: string; turn_id?: string }, options?: CallOptions) => {
      const { thread_id, ...body } = args;
      const path = `/v1/threads/${segment(thread_id)}/stop`;
      // Sent again without a turn it might end the next answer.
      return this.sender.json<api.Stopped>({ method: "POST", path, body, again: body.turn_id !== undefined }, options);
    },
  };

  /** Searches turns by words or meaning. */
  search(args: api.SearchQuery & Read, options?: CallOptions): Promise<api.Search> {
    const { min_position, ...body } = args;
    return this.#read<api.Search>("POST", "/v1/search", { min_position }, body, options);
  }

  /** The log as CloudEvents; a lost connection is taken up behind the last event. */
  events(args: EventsArguments = {}, options?: CallOptions): AsyncGenerator<LedgerEvent> {
    return readEvents(this.sender, args, options);
  }

  #start(args: InSession & api.StartBody, options?: CallOptions): Promise<api.Turn> {
    return this.#write<api.Turn>("POST", args, "/turns", { request_id: newID() }, options);
  }

  #onTurn(what: string, args: InTurn & object, options?: CallOptions): Promise<api.Turn> {
    const { turn_id, ...rest } = args;
    return this.#write<api.Turn>("POST", rest, `/turns/${segment(turn_id)}/${what}`, {}, options);
  }

  #fork(args: InSession & { branch?: string }, options?: CallOptions): Promise<api.Session> {
    const { session_id, branch, ...rest } = args;
    const body = { request_id: newID(), ...defined(rest), ...(branch === undefined ? {} : { session_id: branch }) };
    const path = `/v1/sessions/${segment(session_id)}/fork`;
    return this.sender.json<api.Session>({ method: "POST", path, body }, options);
  }

  #write<T>(
    method: string, args: InSession & object, below: string, defaults: object, options?: CallOptions, again = true,
  ): Promise<T> {
    const { session_id, ...body } = args;
    const path = `/v1/sessions/${segment(session_id)}${below}`;
    return this.sender.json<T>({ method, path, body: { ...defaults, ...defined(body) }, again }, options);
  }

  #ofSession<T>(below: string, args: InSession & object, options?: CallOptions): Promise<T> {
    const { session_id, ...query } = args;
    return this.#read<T>("GET", `/v1/sessions/${segment(session_id)}${below}`, query, undefined, options);
  }

  #read<T>(method: string, path: string, query: object, body: object | undefined, options?: CallOptions): Promise<T> {
    return this.sender.json<T>({ method, path, query: query as Record<string, unknown>, body }, options);
  }
}

function defined<T extends object>(args: T): T {
  return Object.fromEntries(Object.entries(args).filter(([, value]) => value !== undefined)) as T;
}

function asked(args: ChatArguments) {
  const { thread_id, ...rest } = args;
  const thread = thread_id === undefined || thread_id === "new" ? newID() : thread_id;
  return {
    thread, path: `/v1/threads/${segment(thread)}/messages`, body: { request_id: newID(), ...defined(rest) },
  };
}
