// Vercel's AI SDK: two steps with a tool in one conversation.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { checked } from "../official.js";
import { start } from "../server.js";

let server, client, spy, model;
before(async () => {
  server = await start();
  spy = checked();
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" });
  model = createOpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", fetch: spy }).responses("echo");
});
after(() => server?.stop());

const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string().optional() }),
  execute: async () => "sunny",
});

const ways = {
  "at once": (options) => generateText(options),
  "as a stream": async (options) => {
    const result = streamText({ ...options, onError: ({ error }) => { throw error; } });
    await result.consumeStream();
    return { text: await result.text, steps: await result.steps };
  },
};

for (const [way, generate] of Object.entries(ways)) {
  test(`two steps with a tool in a conversation, ${way}: the question stands once`, async () => {
    const { id } = await client.conversations.create({});
    const { text, steps } = await generate({
      model, prompt: "How is the weather?", tools: { weather }, stopWhen: stepCountIs(3),
      providerOptions: { openai: { conversation: id } },
    });
    assert.ok(text);
    assert.equal(steps.length, 2);
    const all = [];
    for await (const item of client.conversations.items.list(id, { order: "asc" })) all.push(item);
    assert.deepEqual(all.map((item) => item.type), ["message", "function_call", "function_call_output", "message"]);
  });
}

test("every answer was as OpenAI's document says", (t) => {
  if (!spy.complete) return t.skip("set TURNLEDGER_TEST_OPENAPI to OpenAI's document");
  assert.deepEqual(spy.faults, []);
  assert.ok(spy.count > 10, `only ${spy.count} were looked at`);
});
