// Chats of the AI SDK, unmodified, by turnledgerTransport and loadMessages against the binary.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  AbstractChat, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls,
  safeValidateUIMessages,
} from "ai";
import { Turnledger } from "@turnledger/client";
import { loadMessages, turnledgerTransport } from "@turnledger/client/ai";
import { gate, scripted, stateOf, until, words } from "../../../../deploy/clients/chats.js";
import { freePort, start } from "../../../../deploy/clients/server.js";

// Two processes: the one that answers, and another on the same log, by which pages are loaded again.
let model, server, beside, client, elsewhere;
before(async () => {
  model = await scripted();
  const nats = `127.0.0.1:${await freePort()}`;
  const env = {
    TURNLEDGER_MODEL_URL: `${model.url}/v1`, TURNLEDGER_MODEL_NAME: "any", TURNLEDGER_STREAM_KEY: "k".repeat(32),
    TURNLEDGER_TOKEN_KEY: "t".repeat(32),
  };
  server = await start({ ...env, TURNLEDGER_NATS_LISTEN: nats, TURNLEDGER_SYNC: "always" });
  beside = await start({ ...env, TURNLEDGER_NATS_URL: `nats://${nats}` }, ["serve", "--roles", "api,context,chat"]);
  client = new Turnledger({ url: server.url });
  elsewhere = new Turnledger({ url: beside.url });
});
after(async () => {
  await beside?.stop();
  await server?.stop();
  model?.stop();
});

const call = (name, args) => ({ id: "call_1", function: { name, arguments: JSON.stringify(args) } });

// Chat is a chat as a framework keeps it.
class Chat extends AbstractChat {
  constructor(init) {
    super({ transport: turnledgerTransport({ client }), ...init, state: stateOf(init.messages) });
  }
}

// reloaded is the chat as another page loads it from the other process, whose messages the SDK's own validator takes.
async function reloaded(id, init = {}) {
  const messages = await loadMessages({ client: elsewhere, id });
  if (messages.length > 0) {
    const valid = await safeValidateUIMessages({ messages });
    assert.ok(valid.success, valid.error?.message);
  }
  return new Chat({ id, messages, transport: turnledgerTransport({ client: elsewhere }), ...init });
}

const said = (chat) => chat.messages.map((message) => `${message.id} ${message.role}: ${words(message)}`);

const echo = (messages) => [`${messages.length} `, String(messages.at(-1).content)];

test("a chat is the same when another page loads it", async () => {
  model.script = echo;
  assert.deepEqual((await reloaded("fresh")).messages, []);
  const chat = new Chat({ id: "fresh" });
  await chat.sendMessage({ text: "one" });
  await chat.sendMessage({ text: "two" });
  assert.equal(chat.error, undefined);
  assert.equal(words(chat.lastMessage), "3 two");
  const other = await reloaded("fresh");
  assert.deepEqual(said(other), said(chat));
  await other.sendMessage({ text: "three" });
  assert.equal(words(other.lastMessage), "5 three");
  await other.resumeStream();
  assert.equal(other.status, "ready");
});

test("a page that is loaded in mid-answer shows the text once", async () => {
  const { closed, open } = gate();
  model.script = () => ["one ", closed, "two"];
  const chat = new Chat({ id: "mid" });
  const sent = chat.sendMessage({ text: "count" });
  await until(() => chat.lastMessage?.role === "assistant" && words(chat.lastMessage) === "one ", "the first word");
  const others = [await reloaded("mid"), await reloaded("mid")];
  const resumed = others.map((other) => other.resumeStream());
  await until(() => others.every((other) => other.messages.length === 2 && words(other.messages[1]) === "one "), "theirs");
  open();
  await Promise.all([sent, ...resumed]);
  for (const one of [chat, ...others, await reloaded("mid")]) {
    assert.deepEqual(said(one), said(chat));
    assert.equal(words(one.lastMessage), "one two");
  }
});

test("stop ends the answer at the server, and what was said stays", async () => {
  const { closed, open } = gate();
  model.script = () => ["one ", closed, "two"];
  let ended;
  const chat = new Chat({ id: "stop", onFinish: (end) => (ended = end) });
  const sent = chat.sendMessage({ text: "count" });
  await until(() => chat.lastMessage?.role === "assistant" && words(chat.lastMessage) === "one ", "the first word");
  await turnledgerTransport({ client: elsewhere }).stop({ id: "stop" });
  await sent;
  open();
  assert.equal(ended.isError, false);
  assert.equal(words(chat.lastMessage), "one ");
  assert.deepEqual(said(await reloaded("stop")), said(chat));
  model.script = echo;
  await chat.sendMessage({ text: "on" });
  assert.equal(words(chat.lastMessage), "3 on");
});

test("a regenerated answer stands when the page is loaded again", async () => {
  let n = 0;
  model.script = () => [`answer ${++n}`];
  let chat = new Chat({ id: "anew" });
  await chat.sendMessage({ text: "one" });
  await chat.sendMessage({ text: "two" });
  for (let times = 0; times < 3; times++) {
    await chat.regenerate();
    assert.equal(chat.error, undefined);
    assert.equal(words(chat.lastMessage), `answer ${n}`);
    const again = await reloaded("anew");
    assert.deepEqual(said(again), said(chat));
    chat = again;
  }
  await chat.regenerate({ messageId: chat.messages[1].id });
  assert.equal(chat.messages.length, 2);
  assert.deepEqual(said(await reloaded("anew")), said(chat));
});

test("a message that is edited under its id takes the place of what came behind it", async () => {
  model.script = echo;
  const chat = new Chat({ id: "edit" });
  for (const text of ["one", "two", "three"]) await chat.sendMessage({ text });
  const { id } = chat.messages[2];
  await chat.sendMessage({ text: "another", messageId: id });
  assert.equal(words(chat.lastMessage), "3 another");
  const branch = (await client.sessions.get({ session_id: "edit" })).current_branch;
  assert.ok(branch);
  for (let n = 0; n < 10; n++) await chat.sendMessage({ text: `more ${n}` });
  assert.deepEqual(said(await reloaded("edit")), said(chat));
  assert.equal((await client.sessions.get({ session_id: "edit" })).current_branch, branch);
  assert.equal((await client.sessions.turns({ session_id: "edit" })).turns.length, 3, "nothing is lost");
});

const weather = { weather: { description: "The weather", inputSchema: { type: "object", properties: { city: { type: "string" } } } } };

// withTools is a model that calls a tool once, and then says what it was told.
const withTools = (name = "weather", held) => (messages) => messages.at(-1).role === "tool"
  ? ["It is ", ...(held ? [held] : []), messages.at(-1).content] : ["Let me see. ", call(name, { city: "Bonn" })];

test("a tool of the client puts out into its turn, once, and a page that is loaded meanwhile has both steps", async () => {
  const { closed, open } = gate();
  model.script = withTools("weather", closed);
  const chat = new Chat({
    id: "tool", sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall: ({ toolCall }) => void chat.addToolOutput({
      tool: "weather", toolCallId: toolCall.toolCallId, output: { warm: true },
    }),
  });
  const sent = chat.sendMessage({ text: "weather?" }, { body: { tools: weather } });
  await until(() => chat.lastMessage && words(chat.lastMessage) === "Let me see. It is ", "the second step");
  const other = await reloaded("tool");
  const resumed = other.resumeStream();
  await until(() => words(other.lastMessage) === "Let me see. It is ", "its second step");
  open();
  await Promise.all([sent, resumed]);
  const third = await reloaded("tool");
  for (const one of [chat, other, third]) {
    assert.equal(one.messages.length, 2);
    assert.equal(words(one.lastMessage), 'Let me see. It is {"warm":true}');
    const part = one.lastMessage.parts.find((part) => part.type === "tool-weather");
    assert.deepEqual([part.state, part.input, part.output], ["output-available", { city: "Bonn" }, { warm: true }]);
  }
  assert.equal((await client.sessions.turns({ session_id: "tool" })).turns.length, 1);
  model.script = echo;
  await third.sendMessage({ text: "thanks" });
  assert.equal(third.messages.length, 4);
  assert.deepEqual(said(await reloaded("tool")), said(third));
  assert.equal((await client.sessions.get({ session_id: "tool" })).current_branch, null);
});

for (const approved of [true, false]) {
  test(`a call is ${approved ? "approved" : "denied"} by a page that was loaded since`, async () => {
    model.script = withTools("remove");
    const id = `approval-${approved}`;
    const first = new Chat({ id });
    const tools = { remove: { inputSchema: { type: "object" }, needsApproval: true } };
    await first.sendMessage({ text: "remove it" }, { body: { tools } });
    const chat = await reloaded(id, { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
    const asked = chat.lastMessage.parts.find((part) => part.type === "tool-remove");
    assert.equal(asked.state, "approval-requested");
    const seen = first.lastMessage.parts.find((part) => part.type === "tool-remove");
    assert.deepEqual(asked, JSON.parse(JSON.stringify(seen)));
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved, reason: "so" });
    await until(() => chat.status === "ready" && words(chat.lastMessage).includes("It is "), "the answer");
    assert.equal(words(chat.lastMessage), `Let me see. It is {"approved":${approved},"reason":"so"}`);
    const again = await reloaded(id);
    assert.deepEqual(said(again), said(chat));
    const part = again.lastMessage.parts.find((part) => part.type === "tool-remove");
    assert.equal(part.state, approved ? "output-available" : "output-denied");
  });
}

test("an image goes to the model, and the list has a text in its place", async () => {
  let shown;
  model.script = (messages) => {
    shown ??= JSON.stringify(messages);
    return ["A pixel."];
  };
  const chat = new Chat({ id: "image" });
  const url = "data:image/png;base64,iVBORw0KGgo=";
  await chat.sendMessage({ text: "what is it?", files: [{ type: "file", mediaType: "image/png", url, filename: "a.png" }] });
  assert.equal(words(chat.lastMessage), "A pixel.");
  assert.ok(shown.includes(url));
  const again = await reloaded("image");
  assert.equal(again.messages.length, 2);
  assert.ok(!JSON.stringify(again.messages).includes("base64"));
  await chat.sendMessage({ text: "and now?" });
  assert.equal((await client.sessions.get({ session_id: "image" })).current_branch, null);
});

test("a page with a token of its own begins its chat, and no other sees it", async () => {
  model.script = echo;
  const { token } = await client.tokens.create({
    identity_id: "ada", expires_in: 60, scopes: ["turns:write", "context:read"],
  });
  const page = new Turnledger({ url: server.url, key: token });
  const chat = new Chat({ id: "page", transport: turnledgerTransport({ client: page }) });
  await chat.sendMessage({ text: "hello" });
  assert.equal(words(chat.lastMessage), "1 hello");
  assert.equal((await client.sessions.get({ session_id: "page" })).identity_id, "ada");
  const { token: bobs } = await client.tokens.create({
    identity_id: "bob", expires_in: 60, scopes: ["turns:write", "context:read"],
  });
  const other = new Turnledger({ url: server.url, key: bobs });
  await assert.rejects(loadMessages({ client: other, id: "page" }), { status: 404 });
  assert.equal(await turnledgerTransport({ client: other }).reconnectToStream({ chatId: "page" }), null);
});
