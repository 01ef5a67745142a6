import { BaseListChatMessageHistory } from "@langchain/core/chat_history";
import { mapChatMessagesToStoredMessages, mapStoredMessagesToChatMessages } from "@langchain/core/messages";
import type { BaseMessage, StoredMessage } from "@langchain/core/messages";
import type { Turnledger } from "./index.js";
import { Items, type Item } from "./items.js";
import { newID } from "./send.js";

/** A message history of LangChain that is a session of Turnledger. */
export class TurnledgerChatMessageHistory extends BaseListChatMessageHistory {
  lc_namespace = ["turnledger", "client"];
  readonly #items: Items;

  constructor(options: { client: Turnledger; session_id: string }) {
    super();
    this.#items = new Items(options.client.sender, options.session_id);
  }

  async getMessages(): Promise<BaseMessage[]> {
    const all: Item[] = [];
    for await (const item of this.#items.newest()) all.push(item);
    return mapStoredMessagesToChatMessages(fromItems(all.reverse()));
  }

  async addMessage(message: BaseMessage): Promise<void> {
    await this.addMessages([message]);
  }

  override async addMessages(messages: BaseMessage[]): Promise<void> {
    if (messages.length === 0) return;
    await this.#items.begin();
    await this.#items.add(mapChatMessagesToStoredMessages(messages).flatMap(toItems), newID());
  }

  /** Begins anew. What was there stays in the log; `erase` takes it away. */
  async clear(): Promise<void> {
    for await (const _ of this.#items.newest()) return void (await this.#items.reset());
  }

  /** Erases the session for ever; its id can't be used again. */
  erase(): Promise<{ receipt_id: string }> {
    return this.#items.erase();
  }
}

type Data = Record<string, unknown> & { content?: unknown };
type Call = { id?: string; name: string; args: unknown };

const roles: Record<string, string> = { human: "user", ai: "assistant", system: "system" };

/** A message as items: its text, and each of its calls. What items have no words for is kept beside the first. */
function toItems(stored: StoredMessage): Item[] {
  const { content, tool_calls, tool_call_id, ...data } = stored.data as unknown as Data;
  const rest = { type: stored.type, data };
  if (stored.type === "tool") {
    const output = typeof content === "string" ? content : JSON.stringify(content);
    return [{ type: "function_call_output", call_id: tool_call_id, output, client: { rest } }];
  }
  const calls = ((tool_calls as Call[] | undefined) ?? []).map((call): Item => ({
    type: "function_call", call_id: call.id ?? newID(), name: call.name, arguments: JSON.stringify(call.args),
  }));
  const said = typeof content === "string" ? content !== "" : Array.isArray(content) && content.length > 0;
  const role = roles[stored.type] ?? "assistant";
  const text: Item = { type: "message", role, content: partsOf(content, stored.type) };
  const items = said || calls.length === 0 ? [text, ...calls] : calls;
  const plain = typeof content === "string";
  const first = { rest: { ...rest, plain } };
  return items.map((item, n) => ({ ...item, client: n === 0 ? first : { more: true as const } }));
}

function partsOf(content: unknown, type: string): unknown {
  if (!Array.isArray(content)) return content ?? "";
  const text = type === "ai" ? "output_text" : "input_text";
  return content.map((part: Data) => {
    if (part.type === "text") return { type: text, text: part.text };
    if (part.type !== "image_url") return part;
    const url = typeof part.image_url === "string" ? part.image_url : (part.image_url as Data).url;
    return { type: "input_image", image_url: url };
  });
}

function fromItems(items: Item[]): StoredMessage[] {
  const out: StoredMessage[] = [];
  for (const item of items) {
    const last = out.at(-1)?.data as unknown as (Data & { tool_calls: Call[] }) | undefined;
    if (item.client?.more && item.type === "function_call" && last?.tool_calls) last.tool_calls.push(callOf(item));
    else if (item.type === "message" || item.type === "function_call" || item.type === "function_call_output") {
      out.push(stored(item));
    }
  }
  return out;
}

const callOf = (item: Item): Call => {
  let args: unknown = {};
  try {
    args = JSON.parse(String(item.arguments));
  } catch {
    args = {}; // of a model that wrote no JSON: LangChain has no other form for it here
  }
  return { id: String(item.call_id), name: String(item.name), args };
};

function stored(item: Item): StoredMessage {
  const kept = item.client?.rest as { type?: string; data?: Data; plain?: boolean } | undefined;
  const type = kept?.type ?? { user: "human", assistant: "ai" }[String(item.role)] ??
    { function_call: "ai", function_call_output: "tool" }[item.type] ?? "system";
  const data: Data = { ...kept?.data, content: contentOf(item, kept?.plain ?? true) };
  if (type === "ai") data.tool_calls = item.type === "function_call" ? [callOf(item)] : [];
  if (type === "tool") data.tool_call_id = item.call_id;
  return { type, data } as unknown as StoredMessage;
}

function contentOf(item: Item, plain: boolean): unknown {
  if (item.type === "function_call_output") return String(item.output ?? "");
  const parts = Array.isArray(item.content) ? (item.content as Data[]) : [];
  if (plain) return parts.map((part) => part.text ?? "").join("");
  return parts.map((part) => {
    if (typeof part.text === "string") return { type: "text", text: part.text };
    return part.type === "input_image" ? { type: "image_url", image_url: { url: part.image_url } } : part;
  });
}
