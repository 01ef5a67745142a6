// Official clients over a server whose model is scripted: what OpenAI-compatible models send, and what becomes of it.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, beforeEach, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { ChatOpenAI } from "@langchain/openai";
import { Agent as MastraAgent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { Agent, OpenAIResponsesModel, Runner, tool } from "@openai/agents";
import { generateText, stepCountIs, tool as aiTool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { start } from "../server.js";

let endpoint, server, client, ai, script, asked;

// chatModel is an endpoint of chat completions. script answers a request: with chunks' choices, or with a status.
async function chatModel() {
  const listener = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    asked.push(JSON.parse(body).messages);
    const answer = script(asked.at(-1), asked.length);
    if (typeof answer === "number") return response.writeHead(answer).end("{}");
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const choice of answer) {
      if (choice === "cut") return response.destroy();
      const data = { model: "model-of-the-endpoint", choices: [{ index: 0, delta: {}, ...choice }] };
      response.write(`data: ${JSON.stringify(data)}\n\n`);
    }
    response.end("data: [DONE]\n\n");
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  return listener;
}

const says = (text) => [{ delta: { content: text } }, { finish_reason: "stop" }];
const calls = (...pieces) => [
  ...pieces.map((tool_call) => ({ delta: { tool_calls: [tool_call] } })), { finish_reason: "tool_calls" },
];
const call = (args, more = {}) => ({ type: "function", function: { name: "get_weather", arguments: args }, ...more });
const answered = (messages) => messages.some((m) => m.role === "tool");

before(async () => {
  endpoint = await chatModel();
  server = await start({
    TURNLEDGER_MODEL_URL: `http://127.0.0.1:${endpoint.address().port}/v1`, TURNLEDGER_MODEL_NAME: "m",
    TURNLEDGER_MODEL_API: "chat",
  });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  ai = createOpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" }).responses("m");
});
beforeEach(() => (asked = []));
after(async () => {
  await server?.stop();
  endpoint?.closeAllConnections();
  endpoint?.close();
});

async function listed(conversation) {
  const all = [];
  for await (const item of client.conversations.items.list(conversation, { order: "asc" })) all.push(item);
  return all;
}

const tools = [{ type: "function", name: "get_weather", strict: false, parameters: { type: "object" } }];
const cities = (response) => response.output.map((item) => [item.type, item.arguments]);
const twoCities = [["function_call", '{"city":"Oslo"}'], ["function_call", '{"city":"Rome"}']];

for (const [name, more] of Object.entries({
  "without index": [{ id: "a" }, { id: "b" }],
  "all with index 0": [{ id: "a", index: 0 }, { id: "b", index: 0 }],
  "without ids": [{ id: "", index: 0 }, { index: 1 }],
})) {
  test(`openai: parallel calls ${name}, and their outputs`, async () => {
    script = (messages) => answered(messages) ? says("Both are dry.")
      : calls(...more.map((m, i) => call(`{"city":"${["Oslo", "Rome"][i]}"}`, m)));
    const { id } = await client.conversations.create({});
    const first = await client.responses.create({ model: "m", conversation: id, input: "Where does it rain?", tools });
    assert.deepEqual(cities(first), twoCities);
    const ids = first.output.map((item) => item.call_id);
    assert.ok(ids.every(Boolean) && new Set(ids).size === 2, `${ids}`);
    const outputs = ids.map((call_id) => ({ type: "function_call_output", call_id, output: "dry" }));
    const second = await client.responses.create({ model: "m", conversation: id, input: outputs, tools });
    assert.equal(second.output_text, "Both are dry.");
    assert.deepEqual(asked[1].filter((m) => m.role === "tool").map((m) => m.tool_call_id), ids);
  });
}

const now = (execute) => tool({ name: "get_weather", description: "", parameters: z.object({}), execute });
const ranBy = async (weather, input, options) => {
  const agent = new Agent({ name: "A", model: new OpenAIResponsesModel(client, "m"), tools: [weather] });
  return new Runner({ tracingDisabled: true }).run(agent, input, options);
};

test("Agents: a tool without arguments is run, and thoughts and signatures go back with its call", async () => {
  let runs = 0;
  const signed = { extra_content: { google: { thought_signature: "sig" } } };
  script = (messages) => answered(messages) ? says("Dry.")
    : [{ delta: { reasoning_content: "hm" } }, ...calls(call("", { id: "a", index: 0, ...signed }))];
  const { id } = await client.conversations.create({});
  const result = await ranBy(now(() => `dry ${++runs}`), "Weather?", { conversationId: id });
  assert.equal(result.finalOutput, "Dry.");
  assert.equal(runs, 1);
  const back = asked[1].find((m) => m.tool_calls);
  assert.equal(back.reasoning_content, "hm");
  assert.deepEqual(back.tool_calls[0].extra_content, signed.extra_content);
});

test("Agents: a run whose model says nothing after the tool keeps its items", async () => {
  script = (messages) => answered(messages) ? [{ finish_reason: "stop" }] : calls(call("{}", { id: "a", index: 0 }));
  const result = await ranBy(now(() => "dry"), "Weather?");
  assert.equal(result.finalOutput ?? "", "");
  assert.equal(result.newItems.length, 3);
});

test("openai: the thoughts of a model in responses.stream(), under one name of the model", async () => {
  const thinks = (text) => ({ delta: { reasoning_content: text } });
  script = () => [thinks("Let me "), thinks("think."), ...says("Four.")];
  const stream = client.responses.stream({ model: "m", input: "2+2?" });
  const names = new Set();
  for await (const event of stream) if (event.response?.model) names.add(event.response.model);
  const whole = await stream.finalResponse();
  assert.equal(whole.output_text, "Four.");
  assert.equal(whole.output.find((item) => item.type === "reasoning").content[0].text, "Let me think.");
  assert.equal(names.size, 1);
});

test("openai: a filter that leaves nothing ends the turn, whose question stands in no later prompt", async () => {
  script = (messages) => {
    if (messages.at(-1).content.includes("forbidden")) return [{ finish_reason: "content_filter" }];
    return JSON.stringify(messages).includes("forbidden") ? 400 : says("Four.");
  };
  const { id } = await client.conversations.create({});
  const first = await client.responses.create({ model: "m", conversation: id, input: "forbidden" });
  assert.equal(first.status, "incomplete");
  assert.equal(first.incomplete_details.reason, "content_filter");
  const second = await client.responses.create({ model: "m", conversation: id, input: "2+2?" });
  assert.equal(second.output_text, "Four.");
});

// Two calls without ids, one of them without arguments: each is run once, and its output reaches the model.
const runners = {
  "AI SDK": async (execute, providerOptions) => {
    const get_weather = aiTool({ inputSchema: z.object({ city: z.string().optional() }), execute });
    return (await generateText({
      model: ai, prompt: "Where does it rain?", tools: { get_weather }, stopWhen: stepCountIs(3), providerOptions,
    })).text;
  },
  Mastra: async (execute, providerOptions) => {
    const get_weather = createTool({
      id: "get_weather", description: "", inputSchema: z.object({ city: z.string().optional() }), execute,
    });
    const agent = new MastraAgent({ id: "a", name: "a", instructions: "Tell it.", model: ai, tools: { get_weather } });
    return (await agent.generate("Where does it rain?", { providerOptions, maxSteps: 3 })).text;
  },
};
for (const [name, run] of Object.entries(runners)) {
  test(`${name}: calls without ids in a conversation`, async () => {
    script = (messages) => answered(messages) ? says("Both are dry.")
      : calls(call(`{"city":"Oslo"}`, { index: 0 }), call("", { id: "", index: 1 }));
    const { id } = await client.conversations.create({});
    let runs = 0;
    assert.equal(await run(async () => `dry ${++runs}`, { openai: { conversation: id } }), "Both are dry.");
    assert.equal(runs, 2);
    assert.deepEqual(asked[1].filter((m) => m.role === "tool").map((m) => m.content).sort(), ["dry 1", "dry 2"]);
    const questions = (await listed(id)).filter((item) => item.role === "user");
    assert.equal(questions.length, 1);
  });
}

test("LangChain: a stream that fails throws", async () => {
  script = () => [{ delta: { content: "Half of " } }, "cut"];
  const model = new ChatOpenAI({
    model: "m", apiKey: "none", useResponsesApi: true, maxRetries: 0, configuration: { baseURL: `${server.url}/v1` },
  });
  await assert.rejects(async () => {
    for await (const part of await model.stream("Tell me.")) assert.ok(part);
  });
});

test("openai: a path that is not here is told in OpenAI's form", async () => {
  await assert.rejects(client.embeddings.create({ model: "m", input: "x" }), (err) => {
    assert.ok(err instanceof OpenAI.APIError);
    assert.ok(err.error?.message, JSON.stringify(err.error));
    return true;
  });
});
