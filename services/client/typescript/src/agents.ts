import type { AgentInputItem, Session, SessionHistoryTransactionArgs } from "@openai/agents";
import type { Turnledger } from "./index.js";
import { Items, windowOf, type Item } from "./items.js";
import { newID, TurnledgerError } from "./send.js";

/** A session of `@openai/agents` that is a session of Turnledger. */
export class TurnledgerSession implements Session {
  readonly #session: string;
  readonly #items: Items;

  constructor(options: { client: Turnledger; session_id?: string }) {
    this.#session = options.session_id ?? newID();
    this.#items = new Items(options.client.sender, this.#session);
  }

  async getSessionId(): Promise<string> {
    return this.#session;
  }

  /** The newest items, at most `limit`; less where the window would begin with an output whose call is older. */
  async getItems(limit?: number): Promise<AgentInputItem[]> {
    return windowOf(await this.#newest(limit), limit ?? Infinity).map(fromItem);
  }

  async addItems(items: AgentInputItem[]): Promise<void> {
    if (items.length === 0) return;
    await this.#items.begin();
    await this.#items.add(items.map(toItem), newID());
  }

  /** Takes the newest item away: its text leaves the log. Needs the scope turns:redact. */
  async popItem(): Promise<AgentInputItem | undefined> {
    const [item] = await this.#newest(1);
    if (!item?.id) return undefined;
    await this.#items.remove(item.id, newID());
    return fromItem(item);
  }

  /** Begins anew. What was there stays in the log; `erase` takes it away. */
  async clearSession(): Promise<void> {
    if ((await this.#newest(1)).length > 0) await this.#items.reset();
  }

  /** Erases the session for ever; its id can't be used again. */
  erase(): Promise<{ receipt_id: string }> {
    return this.#items.erase();
  }

  /** Applies a change of history once, however often it is asked for. */
  async applyHistoryTransaction({ operationId, transaction }: SessionHistoryTransactionArgs): Promise<void> {
    if (transaction.type === "append_items") {
      return this.#once(operationId, transaction.items.map(toItem));
    }
    const newest = await this.#newest();
    const suffix = newest.slice(0, transaction.expectedSuffix.length).reverse();
    const applied = newest.find((item) => item.client?.operation?.id === operationId);
    if (!applied && !same(suffix.map(fromItem), transaction.expectedSuffix)) {
      throw new TurnledgerError(409, "history_changed", "the history does not end as the transaction expects");
    }
    const replaces = applied?.client?.operation?.replaces ?? suffix.map((item) => item.id ?? "");
    const [first, ...rest] = transaction.replacement.map(toItem);
    // The replacement names what it replaces, so both take effect in one append.
    if (first) {
      const client = { ...first.client, operation: { id: operationId, replaces } };
      await this.#once(operationId, [{ ...first, client }, ...rest]);
    }
    for (const id of replaces) {
      await this.#items.remove(id, `${operationId}.${id}`).catch((error: TurnledgerError) => {
        if (error.status !== 404) throw error;
      });
    }
  }

  async #once(operationId: string, items: Item[]): Promise<void> {
    if (items.length === 0) return;
    await this.#items.begin();
    const stands = await this.#items.add(items, operationId);
    const wanted = items.map((item) => meaning(fromItem(item)));
    if (stands.some((item) => !wanted.includes(meaning(fromItem(item))))) {
      throw new TurnledgerError(409, "request_id_in_use", "the operation was applied with another transaction");
    }
  }

  async #newest(limit = Infinity): Promise<Item[]> {
    const out: Item[] = [];
    if (limit <= 0) return out;
    for await (const item of this.#items.newest()) {
      out.push(item);
      if (out.length >= limit) break;
    }
    return out;
  }
}

type Loose = Record<string, unknown>;

/** An item of the SDK in OpenAI's words; of those that it has no words for the SDK's own form is kept. */
function toItem(given: AgentInputItem): Item {
  const { id, ...item } = JSON.parse(JSON.stringify(given)) as Loose;
  const out = { ...item, type: item.type ?? "message" } as Item;
  const client: NonNullable<Item["client"]> = typeof id === "string" ? { id } : {};
  switch (out.type) {
    case "message":
      if (typeof item.content === "string") client.rest = { plain: true };
      if (item.type === undefined) client.rest = { ...client.rest, easy: true };
      break;
    case "reasoning":
      out.summary = ((item.content as Loose[] | undefined) ?? []).map(({ text }) => ({ type: "summary_text", text }));
      delete out.content;
      break;
    case "function_call": case "function_call_result":
      out.call_id = item.callId;
      delete out.callId;
      if (out.type === "function_call") break;
      out.type = "function_call_output";
      client.rest = { name: item.name, output: item.output };
      out.output = outputText(item.output);
      delete out.name;
      break;
  }
  return Object.keys(client).length > 0 ? { ...out, client } : out;
}

function outputText(output: unknown): string {
  if (typeof output === "string") return output;
  const text = (output as Loose | null)?.text;
  return typeof text === "string" ? text : JSON.stringify(output);
}

function fromItem(item: Item): AgentInputItem {
  const { id: _, client, ...rest } = item;
  const out: Loose = { ...rest };
  const kept = client?.rest ?? {};
  switch (item.type) {
    case "message":
      out.content = messageContent(item, kept.plain === true);
      if (kept.easy) delete out.type;
      if (item.role !== "assistant") delete out.status;
      break;
    case "reasoning":
      out.content = ((item.summary as Loose[] | undefined) ?? []).map(({ text }) => ({ type: "input_text", text }));
      delete out.summary;
      break;
    case "function_call":
      out.callId = item.call_id;
      delete out.call_id;
      break;
    case "function_call_output":
      Object.assign(out, { type: "function_call_result", callId: item.call_id, name: kept.name ?? "" });
      out.output = kept.output ?? { type: "text", text: String(item.output ?? "") };
      delete out.call_id;
      break;
  }
  if (client?.id) out.id = client.id;
  return out as unknown as AgentInputItem;
}

function messageContent(item: Item, plain: boolean): unknown {
  if (typeof item.content === "string") return item.content;
  const parts = Array.isArray(item.content) ? (item.content as Loose[]) : [];
  if (plain || item.role === "system") return parts.map((part) => part.text ?? "").join("");
  return parts.map((part) => {
    if (part.type !== "output_text") return part;
    const { annotations, logprobs, ...rest } = part;
    const listed = (name: string, all: unknown) => (Array.isArray(all) && all.length > 0 ? { [name]: all } : {});
    return { ...rest, ...listed("annotations", annotations), ...listed("logprobs", logprobs) };
  });
}

/** What two equal items have in common. Ids and the state do not count: the server gives them where there is none. */
function meaning(value: unknown): string {
  return JSON.stringify(value, (name, member: unknown) => {
    if (name === "id" || name === "status" || member === null) return undefined;
    if (typeof member !== "object" || Array.isArray(member)) return member;
    return Object.fromEntries(Object.entries(member as Loose).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

const same = (a: AgentInputItem[], b: AgentInputItem[]) =>
  a.length === b.length && a.every((item, n) => meaning(item) === meaning(fromItem(toItem(b[n] as AgentInputItem))));
