// The openai package: conversations, items, responses with a tool, retries.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { checked } from "../official.js";
import { proxied } from "../proxy.js";
import { start } from "../server.js";

const rounds = process.env.TURNLEDGER_TORTURE ? 200 : 5;

let server, client, spy;
before(async () => {
  server = await start();
  spy = checked();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", fetch: spy });
});
after(() => server?.stop());

const said = (role, text) => ({ type: "message", role, content: text });

async function listed(conversation, options = {}) {
  const all = [];
  for await (const item of client.conversations.items.list(conversation, { order: "asc", ...options })) all.push(item);
  return all;
}

const textOf = (item) => item.content[0].text;

test("a conversation is made, described, listed and deleted", async () => {
  const made = await client.conversations.create({ metadata: { topic: "a" }, items: [said("user", "Hello")] });
  assert.match(made.id, /^conv_[0-9a-f]{48}$/);
  assert.deepEqual(made.metadata, { topic: "a" });
  const changed = await client.conversations.update(made.id, { metadata: { topic: "b", more: "c" } });
  assert.deepEqual(changed.metadata, { topic: "b", more: "c" });
  assert.deepEqual(await client.conversations.retrieve(made.id), changed);
  assert.deepEqual(await client.conversations.delete(made.id), {
    id: made.id, object: "conversation.deleted", deleted: true,
  });
  await assert.rejects(client.conversations.retrieve(made.id), OpenAI.NotFoundError);
  await assert.rejects(client.conversations.items.list(made.id), OpenAI.NotFoundError);
});

test("items keep their order in both directions and in pages of 7", async () => {
  const { id } = await client.conversations.create({});
  const sent = [];
  for (let batch = 0; batch < 3; batch++) {
    const items = Array.from({ length: 20 }, (_, i) => said(i % 2 ? "assistant" : "user", `${batch}.${i}`));
    sent.push(...items.map((item) => item.content));
    const answer = await client.conversations.items.create(id, { items });
    assert.equal(answer.data.length, items.length);
  }
  assert.deepEqual((await listed(id)).map(textOf), sent);
  assert.deepEqual((await listed(id, { limit: 7 })).map(textOf), sent);
  assert.deepEqual((await listed(id, { limit: 7, order: "desc" })).map(textOf), sent.toReversed());
});

test("an item is read and deleted by its id", async () => {
  const { id } = await client.conversations.create({ items: [said("user", "one"), said("assistant", "two")] });
  const [one, two] = await listed(id);
  assert.deepEqual(await client.conversations.items.retrieve(one.id, { conversation_id: id }), one);
  assert.equal((await client.conversations.items.delete(two.id, { conversation_id: id })).id, id);
  assert.deepEqual(await listed(id), [one]);
  await assert.rejects(client.conversations.items.delete(two.id, { conversation_id: id }), OpenAI.NotFoundError);
});

test("what include does not name is kept and not shown", async () => {
  const { id } = await client.conversations.create({
    items: [said("user", "think"), { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "sealed" }],
  });
  assert.equal((await listed(id))[1].encrypted_content ?? null, null);
  assert.equal((await listed(id, { include: ["reasoning.encrypted_content"] }))[1].encrypted_content, "sealed");
});

test("a body that is wrong is told by the member's name", async () => {
  await assert.rejects(client.conversations.create({ metadata: { topic: 7 } }), (err) => {
    assert.ok(err instanceof OpenAI.BadRequestError);
    assert.equal(err.code, "invalid_type");
    assert.equal(err.param, "metadata");
    return true;
  });
  const { id } = await client.conversations.create({});
  await assert.rejects(client.conversations.items.create(id, { items: [] }), { status: 400, code: "empty_array" });
});

const weather = {
  type: "function", name: "weather", description: "The weather of a city.", strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

// ranTool takes a run with one call of a tool to its end: ask gives a response to some input.
async function ranTool(ask) {
  const first = await ask([said("user", "How is the weather?")]);
  const call = first.output.find((item) => item.type === "function_call");
  assert.ok(call, "the model called no tool");
  const second = await ask([{ type: "function_call_output", call_id: call.call_id, output: "sunny" }], first);
  assert.equal(second.status, "completed");
  assert.ok(second.output_text);
  assert.ok(second.usage.input_tokens > 0);
  return { first, second };
}

const streamed = async (body) => {
  const events = [];
  const stream = client.responses.stream(body);
  for await (const event of stream) events.push(event);
  assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
  assert.equal(events.at(-1).type, "response.completed");
  return stream.finalResponse();
};

for (const [way, create] of Object.entries({
  "at once": (body) => client.responses.create(body),
  "as a stream": (body) => streamed(body),
})) {
  test(`a run with a tool in a conversation, ${way}`, async () => {
    const { id } = await client.conversations.create({});
    const { second } = await ranTool((input) => create({ model: "echo", conversation: id, input, tools: [weather] }));
    assert.equal(second.conversation.id, id);
    assert.deepEqual((await listed(id)).map((item) => item.type), [
      "message", "function_call", "function_call_output", "message",
    ]);
  });

  test(`a run with a tool by the response before, ${way}`, async () => {
    const { first, second } = await ranTool((input, before) =>
      create({ model: "echo", previous_response_id: before?.id, input, tools: [weather] }));
    assert.equal(second.previous_response_id, first.id);
    assert.equal((await client.responses.retrieve(second.id)).output_text, second.output_text);
    const input = await client.responses.inputItems.list(second.id, { order: "asc" });
    assert.deepEqual(input.data.map((item) => item.type), ["message", "function_call", "function_call_output"]);
    await client.responses.delete(second.id);
    await assert.rejects(client.responses.retrieve(second.id), OpenAI.NotFoundError);
  });
}

test("many continue one response at once: all are right, and none sees another", async () => {
  const root = await client.responses.create({ model: "echo", input: "root" });
  const all = await Promise.all(Array.from({ length: 100 }, (_, i) =>
    client.responses.create({ model: "echo", previous_response_id: root.id, input: `branch ${i}` })));
  assert.equal(new Set(all.map((r) => r.id)).size, all.length);
  for (const [i, r] of all.entries()) {
    const input = await client.responses.inputItems.list(r.id, { order: "asc", limit: 100 });
    const texts = input.data.filter((item) => item.role === "user").map(textOf);
    assert.deepEqual(texts.filter((text) => text.startsWith("branch")), [`branch ${i}`]);
  }
});

test("what the SDK sends again after a kill between the append and the answer stands once", async () => {
  const proxy = await proxied(server);
  const retrying = new OpenAI({ baseURL: `${proxy.url}/v1`, apiKey: "none", maxRetries: 4 });
  try {
    const { id } = await retrying.conversations.create({});
    const sent = [];
    const add = async (...items) => {
      sent.push(...items.map((item) => item.content));
      await retrying.conversations.items.create(id, { items });
    };
    for (let n = 0; proxy.killed < rounds; n++) {
      proxy.killing = true;
      await add(said("user", `${n}`)); // one event
      await add(said("assistant", `${n} answer`), said("user", `${n} more`), said("assistant", `${n} again`));
      proxy.killing = false;
      proxy.lose(); // the answer alone
      await add(said("assistant", `${n} at last`));
      assert.equal(proxy.lost, n + 1);
      assert.ok(n < 20 * rounds, `only ${proxy.killed} kills came between an append and its answer`);
    }
    assert.deepEqual((await listed(id)).map(textOf), sent);
  } finally {
    proxy.stop();
  }
});

test("a response that the SDK asks for again after a kill between an append and the answer is one turn", async () => {
  const proxy = await proxied(server);
  const retrying = new OpenAI({ baseURL: `${proxy.url}/v1`, apiKey: "none", maxRetries: 4 });
  try {
    const { id } = await retrying.conversations.create({});
    const root = await retrying.responses.create({ model: "echo", input: "root" });
    await retrying.responses.create({ model: "echo", previous_response_id: root.id, input: "goes on" });
    const made = new Set();
    proxy.killing = true;
    let n = 0;
    for (; proxy.killed < rounds; n++) {
      for (const history of [{ conversation: id }, { previous_response_id: root.id }, {}]) {
        const response = await retrying.responses.create({ model: "echo", input: `${n}`, ...history });
        assert.equal((await client.responses.retrieve(response.id)).output_text, response.output_text);
        made.add(response.id);
      }
      assert.ok(n < 20 * rounds, `only ${proxy.killed} kills came between an append and its answer`);
    }
    assert.equal(made.size, 3 * n);
    const texts = (await listed(id)).map(textOf);
    assert.equal(texts.length, 2 * n);
    assert.deepEqual(texts.filter((_, i) => i % 2 === 0), Array.from({ length: n }, (_, i) => `${i}`));
  } finally {
    proxy.stop();
  }
});

test("every answer was as OpenAI's document says", (t) => {
  if (!spy.complete) return t.skip("set TURNLEDGER_TEST_OPENAPI to OpenAI's document");
  assert.deepEqual(spy.faults, []);
  assert.ok(spy.count > 200, `only ${spy.count} were looked at`);
});
