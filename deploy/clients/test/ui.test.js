// useChat's chat of the AI SDK 6, and the transport of Durable Streams for it, unmodified, against UI messages.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createDurableChatTransport } from "@durable-streams/aisdk-transport";
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls, safeValidateUIMessages } from "ai6";
import { gate, scripted, stateOf, until, words } from "../chats.js";
import { start } from "../server.js";

let model, server, folder, headers;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "turnledger-keys-"));
  const auth = `keys:${join(folder, "keys.json")}`;
  const key = execFileSync(process.env.TURNLEDGER_TEST_BINARY, ["keys", "create", "server", "--auth", auth, "--scopes",
    "turns:write,context:read"], { stdio: ["ignore", "pipe", "ignore"] }).toString().trim();
  headers = { Authorization: `Bearer ${key}` };
  model = await scripted();
  server = await start({
    TURNLEDGER_AUTH: auth, TURNLEDGER_MODEL_URL: `${model.url}/v1`, TURNLEDGER_MODEL_NAME: "any",
  });
});
after(async () => {
  await server?.stop();
  model?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const transports = {
  "its own transport": () => new DefaultChatTransport({ api: `${server.url}/v1/ui/chat`, headers }),
  "the transport of Durable Streams": () => createDurableChatTransport({
    api: `${server.url}/v1/ui/chat`, headers: { ...headers, "X-Turnledger-Stream": "durable" },
  }),
};

class Chat extends AbstractChat {
  constructor({ messages, ...init }) {
    super({ ...init, state: stateOf(messages) });
  }
}

async function loaded(id) {
  const page = await (await fetch(`${server.url}/v1/ui/chat/${id}/messages`, { headers })).json();
  const valid = await safeValidateUIMessages({ messages: page.messages });
  assert.ok(valid.success, valid.error?.message);
  return page.messages;
}

const said = (messages) => messages.map((message) => `${message.id} ${message.role}: ${words(message)}`);

for (const [name, transport] of Object.entries(transports)) {
  const id = name.replaceAll(" ", "-");

  test(`a chat by ${name} is loaded in mid-answer, stopped, and goes on`, async () => {
    let held = gate();
    model.script = () => ["one ", held.closed, "two"];
    const chat = new Chat({ id, transport: transport() });
    const sent = chat.sendMessage({ text: "count" });
    await until(() => words(chat.lastMessage) === "one ", "the first word");
    const other = new Chat({ id, transport: transport(), messages: await loaded(id) });
    const resumed = other.resumeStream();
    await until(() => words(other.lastMessage) === "one ", "its first word");
    held.open();
    await Promise.all([sent, resumed]);
    assert.equal(words(chat.lastMessage), "one two");
    for (const messages of [other.messages, await loaded(id)]) assert.deepEqual(said(messages), said(chat.messages));

    held = gate();
    const next = other.sendMessage({ text: "again" });
    await until(() => words(other.lastMessage) === "one ", "the first word");
    const stopped = await fetch(`${server.url}/v1/ui/chat/${id}/stop`, { method: "POST", headers, body: "{}" });
    assert.equal(stopped.status, 202);
    await next;
    held.open();
    assert.equal(words(other.lastMessage), "one ");
    assert.deepEqual(said(await loaded(id)), said(other.messages));
    await other.resumeStream();
    assert.equal(other.error, undefined);
    assert.equal(other.status, "ready");

    model.script = (messages) => [`${messages.length} messages`];
    await other.regenerate();
    assert.equal(words(other.lastMessage), "3 messages");
    assert.deepEqual(said(await loaded(id)), said(other.messages));
  });

  test(`a tool of the client puts out by ${name}`, async () => {
    const call = { id: "call_1", function: { name: "weather", arguments: '{"city":"Bonn"}' } };
    model.script = (messages) => messages.at(-1).role === "tool" ? ["It is ", messages.at(-1).content] : ["Let me see. ", call];
    const chat = new Chat({
      id: `${id}-tool`, transport: transport(), sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
      onToolCall: ({ toolCall }) => void chat.addToolOutput({
        tool: "weather", toolCallId: toolCall.toolCallId, output: "warm",
      }),
    });
    const tools = { weather: { inputSchema: { type: "object" } } };
    await chat.sendMessage({ text: "weather?" }, { body: { tools } });
    await until(() => chat.status === "ready" && words(chat.lastMessage).includes("It is"), "the end");
    assert.equal(words(chat.lastMessage), "Let me see. It is warm");
    assert.deepEqual(said(await loaded(`${id}-tool`)), said(chat.messages));
  });
}
