// Vercel's AI SDK: steps with a tool in one conversation.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
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

// chatEndpoint is a model behind a chat endpoint. It calls the tool again until it has the outputs of three calls, and
// refuses what OpenAI refuses: calls and outputs that do not follow each other.
async function chatEndpoint() {
  const endpoint = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const { messages } = JSON.parse(body);
    const calls = messages.flatMap((m) => m.tool_calls ?? []).map((call) => call.id);
    const outputs = messages.filter((m) => m.role === "tool").map((m) => m.tool_call_id);
    if (JSON.stringify(calls) !== JSON.stringify(outputs) || new Set(calls).size !== calls.length) {
      response.writeHead(400, { "content-type": "application/json" });
      return response.end(JSON.stringify({ error: { message: `calls ${calls}, outputs ${outputs}` } }));
    }
    const call = { index: 0, id: `call_${calls.length}`, type: "function", function: { name: "weather", arguments: "{}" } };
    const delta = calls.length < 3 ? { tool_calls: [call] } : { content: "Sunny." };
    const finish = calls.length < 3 ? "tool_calls" : "stop";
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const choice of [{ index: 0, delta }, { index: 0, delta: {}, finish_reason: finish }]) {
      response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: "m", choices: [choice] })}\n\n`);
    }
    response.end("data: [DONE]\n\n");
  });
  await once(endpoint.listen(0, "127.0.0.1"), "listening");
  return endpoint;
}

// With each step the SDK sends the question and all outputs of the run again.
for (const [way, generate] of Object.entries(ways)) {
  test(`four steps with a tool in a conversation, ${way}: each item stands once`, async () => {
    const endpoint = await chatEndpoint();
    const url = `http://127.0.0.1:${endpoint.address().port}/v1`;
    const asking = await start({ TURNLEDGER_MODEL_URL: url, TURNLEDGER_MODEL_NAME: "m" });
    try {
      const conversations = new OpenAI({ baseURL: `${asking.url}/v1`, apiKey: "none" }).conversations;
      const { id } = await conversations.create({});
      const { text, steps } = await generate({
        model: createOpenAI({ baseURL: `${asking.url}/v1`, apiKey: "none", fetch: spy }).responses("m"),
        prompt: "How is the weather?", tools: { weather }, stopWhen: stepCountIs(5),
        providerOptions: { openai: { conversation: id } },
      });
      assert.equal(text, "Sunny.");
      assert.equal(steps.length, 4);
      const all = [];
      for await (const item of conversations.items.list(id, { order: "asc" })) all.push(item.call_id ?? item.role);
      assert.deepEqual(all, ["user", "call_0", "call_0", "call_1", "call_1", "call_2", "call_2", "assistant"]);
    } finally {
      await asking.stop();
      endpoint.close();
    }
  });
}

test("every answer was as OpenAI's document says", (t) => {
  if (!spy.complete) return t.skip("set TURNLEDGER_TEST_OPENAPI to OpenAI's document");
  assert.deepEqual(spy.faults, []);
  assert.ok(spy.count > 10, `only ${spy.count} were looked at`);
});
