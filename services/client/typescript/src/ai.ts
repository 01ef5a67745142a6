import { DefaultChatTransport } from "ai";
import type { ModelMessage, UIMessage } from "ai";
import type { Context, ContextBody } from "./api.js";
import type { InSession, Turnledger } from "./index.js";
import { segment } from "./send.js";

/** The messages of a chat, oldest first, for `useChat({ messages })`. */
export async function loadMessages<M extends UIMessage = UIMessage>(
  args: { client: Turnledger; id: string; limit?: number },
): Promise<M[]> {
  const all: M[] = [];
  const path = `/v1/ui/chat/${segment(args.id)}/messages`;
  for (let cursor: string | undefined; ;) {
    const query = { cursor, limit: args.limit };
    const page = await args.client.sender.json<{ messages: M[]; next_cursor: string | null }>({
      method: "GET", path, query,
    });
    all.unshift(...page.messages);
    if (!page.next_cursor || (args.limit !== undefined && all.length >= args.limit)) return all;
    cursor = page.next_cursor;
  }
}

/** The transport of `useChat`. `stop` also ends the answer at the server, which a hang-up does not. */
export class TurnledgerTransport<M extends UIMessage = UIMessage> extends DefaultChatTransport<M> {
  readonly #client: Turnledger;

  constructor(client: Turnledger) {
    super({ api: `${client.sender.url}/v1/ui/chat`, headers: () => client.sender.headers(), fetch: client.sender.fetch });
    this.#client = client;
  }

  async stop(args: { id: string; turn_id?: string }): Promise<void> {
    const { id, ...body } = args;
    const path = `/v1/ui/chat/${segment(id)}/stop`;
    await this.#client.sender.text({ method: "POST", path, body, again: body.turn_id !== undefined });
  }
}

/** The transport of `useChat({ transport })`. */
export function turnledgerTransport<M extends UIMessage = UIMessage>(
  args: { client: Turnledger },
): TurnledgerTransport<M> {
  return new TurnledgerTransport<M>(args.client);
}

/** A context for `streamText`: its system texts and its messages, and what else the server says of it. */
export async function contextFor(
  args: { client: Turnledger } & InSession & ContextBody,
): Promise<Omit<Context, "messages" | "system"> & { system: string | undefined; messages: ModelMessage[] }> {
  const { client, ...rest } = args;
  const { messages, ...context } = await client.context.build({ ...rest, format: "openai" });
  const system = messages.filter((message) => message.role === "system").map((message) => textOf(message.content));
  const names = new Map<unknown, string>();
  const turns = messages.filter((message) => message.role !== "system").map((message) => modelMessage(message, names));
  return { ...context, system: system.length > 0 ? system.join("\n\n") : undefined, messages: turns };
}

type Loose = Record<string, unknown>;

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return String(content ?? "");
  return content.map((part: Loose) => part.text ?? "").join("");
}

function modelMessage(message: Loose, names: Map<unknown, string>): ModelMessage {
  if (message.role === "tool") {
    const toolName = names.get(message.tool_call_id) ?? "";
    const output = { type: "text" as const, value: textOf(message.content) };
    const toolCallId = String(message.tool_call_id);
    return { role: "tool", content: [{ type: "tool-result", toolCallId, toolName, output }] };
  }
  if (message.role !== "assistant") return { role: "user", content: userContent(message.content) };
  const calls = ((message.tool_calls as Loose[] | undefined) ?? []).map((call) => {
    const { name, arguments: input } = call.function as { name: string; arguments: string };
    names.set(call.id, name);
    return { type: "tool-call" as const, toolCallId: String(call.id), toolName: name, input: parsed(input) };
  });
  const text = textOf(message.content);
  if (calls.length === 0) return { role: "assistant", content: text };
  return { role: "assistant", content: text ? [{ type: "text", text }, ...calls] : calls };
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}

function userContent(content: unknown) {
  if (!Array.isArray(content)) return String(content ?? "");
  return content.map((part: Loose) => {
    const url = (part.image_url as Loose | undefined)?.url;
    if (typeof url !== "string") return { type: "text" as const, text: textOf([part]) };
    return { type: "file" as const, mediaType: "image/*", data: new URL(url) };
  });
}
