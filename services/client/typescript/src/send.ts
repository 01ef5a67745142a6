import type { Problem } from "./api.js";

/** How a client reaches its server. */
export interface Options {
  url: string;
  /** A key or token; a function is asked before each request, so that a token can be renewed. */
  key?: string | (() => string | Promise<string>);
  fetch?: typeof globalThis.fetch;
  /** How often a call is tried again; 6 by default. */
  retries?: number;
}

/** What a call may be given beside its arguments. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
}

/** A refusal of the server, or a connection that was lost: then `status` is 0 and `code` "connection_lost". */
export class TurnledgerError extends Error {
  readonly code: string;
  readonly status: number;
  /** The same call may succeed later. */
  readonly retryable: boolean;
  /** Seconds that the server asks to wait, if it says so. */
  readonly retryAfter: number | undefined;

  constructor(status: number, code: string, message: string, options: { retryAfter?: number; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.name = "TurnledgerError";
    this.status = status;
    this.code = code;
    this.retryAfter = options.retryAfter;
    this.retryable = [0, 429, 502, 503, 504].includes(status);
  }
}

/** One request; `again` says that it may be sent again. */
export interface Request {
  method: string;
  path: string;
  query?: Record<string, unknown>;
  body?: unknown;
  headers?: Record<string, string>;
  again?: boolean;
  /** Milliseconds that an answer may take, 60,000 if unset; of one that is read as it comes, its beginning. */
  within?: number;
}

const attemptLimit = 60_000;

/** Sends requests, and sends again what may be sent again. */
export class Sender {
  readonly url: string;
  readonly retries: number;
  readonly #key: Options["key"];
  readonly fetch: typeof globalThis.fetch;

  constructor(options: Options) {
    this.url = options.url.replace(/\/+$/, "");
    this.retries = options.retries ?? 6;
    this.#key = options.key;
    const own = options.fetch;
    this.fetch = own ?? ((input, init) => globalThis.fetch(input, init));
  }

  async headers(): Promise<Record<string, string>> {
    const key = typeof this.#key === "function" ? await this.#key() : this.#key;
    return key ? { authorization: `Bearer ${key}` } : {};
  }

  /** The JSON of the answer. */
  async json<T>(request: Request, options?: CallOptions): Promise<T> {
    return this.#again(request, options, async (answer) => JSON.parse(await answer.text()) as T);
  }

  /** The text of the answer, or what is made of it: if that fails, the connection was lost in the middle. */
  async text<T = string>(
    request: Request, options?: CallOptions, made: (text: string) => T = (text) => text as T,
  ): Promise<T> {
    return this.#again(request, options, async (answer) => made(await answer.text()));
  }

  /** An answer whose body is still to be read. It is not bounded in time once it has begun. */
  async open(request: Request, options?: CallOptions): Promise<Response> {
    return this.#again(request, options, (answer) => Promise.resolve(answer), true);
  }

  async #again<T>(
    request: Request, options: CallOptions | undefined, read: (answer: Response) => Promise<T>, open = false,
  ) {
    for (let tries = 0; ; tries++) {
      try {
        return await this.#once(request, options, read, open);
      } catch (error) {
        if (options?.signal?.aborted) throw error;
        const may = error instanceof TurnledgerError && error.retryable && request.again !== false;
        if (!may || tries >= this.retries) throw error;
        await pause(error.retryAfter ?? backoff(tries), options?.signal);
      }
    }
  }

  // open: the body is read later, which the caller's signal may still end.
  async #once<T>(
    request: Request, options: CallOptions | undefined, read: (answer: Response) => Promise<T>, open: boolean,
  ) {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), request.within ?? attemptLimit);
    const stop = () => limit.abort(options?.signal?.reason);
    options?.signal?.addEventListener("abort", stop, { once: true });
    let begun = false;
    try {
      options?.signal?.throwIfAborted();
      const init = await this.#init(request, limit.signal);
      const answer = await this.fetch(this.url + request.path + queryOf(request.query), init);
      if (!answer.ok) throw await refusal(answer);
      begun = open;
      return await read(answer);
    } catch (error) {
      if (error instanceof TurnledgerError || options?.signal?.aborted) throw error;
      throw lost(error);
    } finally {
      clearTimeout(timer);
      if (!begun) options?.signal?.removeEventListener("abort", stop);
    }
  }

  async #init(request: Request, signal: AbortSignal): Promise<RequestInit> {
    const headers: Record<string, string> = { ...(await this.headers()), ...request.headers };
    const init: RequestInit = { method: request.method, headers, redirect: "error", signal };
    if (request.body !== undefined) {
      headers["content-type"] ??= "application/json";
      init.body = typeof request.body === "string" ? request.body : JSON.stringify(request.body);
    }
    return init;
  }
}

/** The error of a connection that broke. */
export function lost(cause: unknown): TurnledgerError {
  return new TurnledgerError(0, "connection_lost", "the connection to the server was lost", { cause });
}

/** The error of an answer that is none of 2xx, in the API's form or in that of OpenAI's calls. */
async function refusal(answer: Response): Promise<TurnledgerError> {
  const text = await answer.text().catch(() => "");
  let body: Partial<Problem> & { error?: { code?: string | null; message?: string } } = {};
  try {
    body = JSON.parse(text);
  } catch {
    // Of a proxy, not of the server: the status says all there is.
  }
  const code = body.code ?? body.error?.code ?? (answer.status === 404 ? "not_found" : `http_${answer.status}`);
  const message = body.detail ?? body.error?.message ?? body.title ?? `the server answered ${answer.status}`;
  const after = Number.parseFloat(answer.headers.get("retry-after") ?? "");
  return new TurnledgerError(answer.status, code, message, Number.isFinite(after) ? { retryAfter: after } : {});
}

const backoff = (tries: number) => Math.min(0.25 * 2 ** tries, 8) * (0.75 + Math.random() / 2);

/** Waits, unless the signal ends it. */
export function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const end = () => {
      clearTimeout(timer);
      fail(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      done();
    }, seconds * 1000);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}

/** An id as a part of a path. A path can't hold these two: they would name another call. */
export function segment(id: string): string {
  if (id === "." || id === "..") throw new TurnledgerError(422, "invalid_argument", `an id can't be "${id}"`);
  return encodeURIComponent(id);
}

function queryOf(query: Record<string, unknown> = {}): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    out.append(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = out.toString();
  return text && `?${text}`;
}

/** A new id for a request. Pages that are not served by https have no randomUUID. */
export function newID(): string {
  if (globalThis.crypto.randomUUID) return globalThis.crypto.randomUUID();
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** One server-sent event. */
export interface Sent {
  event: string;
  id: string | undefined;
  data: string;
}

/** The events of a body. A body that ends, or that says nothing for 45 s, ends the reading; a broken one throws. */
export async function* sent(answer: Response): AsyncGenerator<Sent> {
  if (!answer.body) return;
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await heard(reader);
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      for (const block of blocks) yield parsed(block);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

const silence = 45_000; // three heartbeats of the server

async function heard(reader: ReadableStreamDefaultReader<Uint8Array>) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const quiet = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Error("nothing came for too long")), silence);
  });
  try {
    return await Promise.race([reader.read(), quiet]);
  } catch (error) {
    throw lost(error);
  } finally {
    clearTimeout(timer);
  }
}

function parsed(block: string): Sent {
  const out: Sent = { event: "message", id: undefined, data: "" };
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const name = line.slice(0, colon);
    if (name === "event") out.event = value;
    else if (name === "id") out.id = value;
    else if (name === "data") data.push(value);
  }
  out.data = data.join("\n");
  return out;
}
