// @openai/agents: a run with a tool by a session, by a conversation and by the response before.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { checked } from "../official.js";
import { start } from "../server.js";

let server, client, spy, agent, runner;
before(async () => {
  server = await start();
  spy = checked();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", fetch: spy });
  agent = new Agent({
    name: "Forecaster",
    instructions: "Tell the weather.",
    model: new OpenAIResponsesModel(client, "echo"),
    tools: [tool({
      name: "weather", description: "The weather of a city.", parameters: z.object({ city: z.string().nullable() }),
      execute: async () => "sunny", errorFunction: () => "sunny",
    })],
  });
  runner = new Runner({ tracingDisabled: true });
});
after(() => server?.stop());

async function ran(input, options) {
  const result = await runner.run(agent, input, options);
  if (options.stream) {
    let text = "";
    for await (const part of result.toTextStream()) text += part;
    await result.completed;
    assert.ok(text);
  }
  assert.ok(result.finalOutput);
  return result;
}

const kinds = ["message", "function_call", "function_call_output", "message"];

async function listed(conversation) {
  const all = [];
  for await (const item of client.conversations.items.list(conversation, { order: "asc" })) all.push(item);
  return all;
}

for (const stream of [false, true]) {
  const way = stream ? "as a stream" : "at once";
  test(`two runs with a session, ${way}; its last item goes, then all`, async () => {
    const session = new OpenAIConversationsSession({ client });
    await ran("How is the weather?", { session, stream });
    const id = await session.getSessionId();
    assert.deepEqual((await listed(id)).map((item) => item.type), kinds);
    const { lastResponseId } = await ran("And tomorrow?", { session, stream });
    const given = async () => {
      const page = await client.responses.inputItems.list(lastResponseId, { order: "asc", limit: 100 });
      return page.data.map((item) => item.id);
    };
    const all = await listed(id);
    const users = all.filter((item) => item.role === "user").map((item) => item.content[0].text);
    assert.deepEqual(users, ["How is the weather?", "And tomorrow?"]);
    const first = all.slice(0, kinds.length).map((item) => item.id);
    assert.deepEqual((await given()).slice(0, kinds.length), first, "what was sent again is shared");
    await session.popItem();
    assert.deepEqual(await listed(id), all.slice(0, -1));
    await session.clearSession();
    await assert.rejects(client.conversations.retrieve(id), OpenAI.NotFoundError);
    assert.ok(!(await given()).some((item) => first.includes(item)), "and deleted with the conversation");
  });

  test(`a run in a conversation, ${way}`, async () => {
    const { id } = await client.conversations.create({});
    await ran("How is the weather?", { conversationId: id, stream });
    assert.deepEqual((await listed(id)).map((item) => item.type), kinds);
  });

  test(`two runs by the response before, ${way}`, async () => {
    const first = await ran("How is the weather?", { stream });
    const second = await ran("And tomorrow?", { previousResponseId: first.lastResponseId, stream });
    const input = await client.responses.inputItems.list(second.lastResponseId, { order: "asc", limit: 100 });
    const users = input.data.filter((item) => item.role === "user").map((item) => item.content[0].text);
    assert.deepEqual(users, ["How is the weather?", "And tomorrow?"]);
  });
}

test("every answer was as OpenAI's document says", (t) => {
  if (!spy.complete) return t.skip("set TURNLEDGER_TEST_OPENAPI to OpenAI's document");
  assert.deepEqual(spy.faults, []);
  assert.ok(spy.count > 50, `only ${spy.count} were looked at`);
});
