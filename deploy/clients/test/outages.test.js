// Official clients, a model that fails, hangs and breaks off at random, and a server that is killed: no question stands
// twice for one answer, and every answer that a client has got stands right behind its question. CALLS says how many
// questions each client asks (300 in the long form), SEED what is drawn.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { ChatOpenAI } from "@langchain/openai";
import { Agent as MastraAgent } from "@mastra/core/agent";
import { Agent, OpenAIResponsesModel, Runner } from "@openai/agents";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import { start } from "../server.js";

const calls = Number(process.env.CALLS ?? (process.env.TURNLEDGER_TORTURE ? 300 : 30));
const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const hangs = 1500; // ms after which a client gives up on an answer
const perConversation = 6;

// random is a small generator (mulberry32), so that a run can be drawn again.
function random(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

let endpoint, server, client;

// moody is a model that answers the newest question two times out of three.
async function moody(draw) {
  const listener = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const question = JSON.parse(body).messages.findLast((m) => m.role === "user").content;
    const mood = draw();
    if (mood < 0.12) return response.writeHead(500).end('{"error":{"message":"not today"}}');
    response.writeHead(200, { "content-type": "text/event-stream" });
    const say = (choice) => response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, ...choice }] })}\n\n`);
    say({ delta: { content: "The answer to " } });
    if (mood < 0.2) return undefined; // it hangs
    if (mood < 0.33) return response.destroy();
    say({ delta: { content: question } });
    say({ finish_reason: "stop" });
    return response.end("data: [DONE]\n\n");
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  return listener;
}

const baseURL = () => `${server.url}/v1`;
const limited = () => AbortSignal.timeout(hangs);

// Each client asks a question in a conversation, and returns what it was answered.
const clients = {
  async openai(conversation, input, stream) {
    const patient = new OpenAI({ baseURL: baseURL(), apiKey: "none", timeout: hangs });
    if (!stream) return whole(await patient.responses.create({ model: "m", conversation, input }));
    return whole(await patient.responses.stream({ model: "m", conversation, input }, { signal: limited() }).finalResponse());
  },
  async Agents(conversationId, input, stream) {
    const model = new OpenAIResponsesModel(new OpenAI({ baseURL: baseURL(), apiKey: "none", timeout: hangs }), "m");
    const runner = new Runner({ tracingDisabled: true });
    const result = await runner.run(new Agent({ name: "A", model }), input, { conversationId, stream, signal: limited() });
    if (stream) await result.completed;
    return result.finalOutput;
  },
  async "AI SDK"(conversation, prompt, stream) {
    const model = createOpenAI({ baseURL: baseURL(), apiKey: "none" }).responses("m");
    const options = { model, prompt, providerOptions: { openai: { conversation } }, abortSignal: limited() };
    if (!stream) return (await generateText(options)).text;
    const result = streamText({ ...options, onError: () => {} });
    return result.text;
  },
  async LangChain(conversation, input, stream) {
    const model = new ChatOpenAI({
      model: "m", apiKey: "none", useResponsesApi: true, maxRetries: 1, timeout: hangs, modelKwargs: { conversation },
      configuration: { baseURL: baseURL() },
    });
    if (!stream) return (await model.invoke(input, { signal: limited() })).text;
    let all;
    for await (const part of await model.stream(input, { signal: limited() })) all = all ? all.concat(part) : part;
    return all.text;
  },
  async Mastra(conversation, prompt, stream) {
    const model = createOpenAI({ baseURL: baseURL(), apiKey: "none" }).responses("m");
    const agent = new MastraAgent({ id: "a", name: "a", instructions: "Answer.", model });
    const options = { providerOptions: { openai: { conversation } }, abortSignal: limited() };
    if (!stream) return (await agent.generate(prompt, options)).text;
    const result = await agent.stream(prompt, options);
    return result.text;
  },
};

function whole(response) {
  if (response.status !== "completed") throw new Error(`the response is ${response.status}`);
  return response.output_text;
}

// patient asks until it is told: the server may be down.
async function patient(ask) {
  for (;;) {
    try {
      return await ask();
    } catch (err) {
      if (err instanceof OpenAI.APIError && err.status && err.status < 500) throw err;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

async function listed(conversation) {
  const all = [];
  for await (const item of client.conversations.items.list(conversation, { order: "asc" })) {
    const said = item.role === "user" || item.role === "assistant"; // Mastra sends its instructions as an item
    if (said) all.push(`${item.role}: ${item.content.map((part) => part.text).join("")}`);
  }
  return all;
}

// asked has one client ask its questions, each until it is answered, and returns what went wrong.
async function asked(name, ask, draw) {
  const faults = [];
  let conversation, acknowledged = [], tries = 0, unheard = 0;
  // An answer that was recorded, and whose delivery a kill or the caller's patience cut off, nobody can tell from one
  // that was heard: the question is then asked and answered again, once for each such try. All else stands once.
  const looked = async () => {
    if (!conversation) return;
    const stands = await patient(() => listed(conversation));
    const left = [...stands];
    for (const { pair, failed } of acknowledged) {
      let times = 0;
      for (; left[0] === pair[0] && left[1] === pair[1]; times++) left.splice(0, 2);
      unheard += times - 1;
      if (times < 1 || times > 1 + failed) return faults.push(`${conversation}: ${pair[0]}\n${stands.join("\n")}`);
    }
    if (left.length) faults.push(`${conversation} has more:\n${stands.join("\n")}`);
  };
  for (let n = 0; n < calls; n++) {
    if (n % perConversation === 0) {
      await looked();
      conversation = (await patient(() => client.conversations.create({}))).id;
      acknowledged = [];
    }
    const question = `${name} question ${n}`;
    const stream = draw() < 0.5;
    for (let failed = 0; ; failed++) {
      tries++;
      try {
        const answer = await ask(conversation, question, stream);
        if (!answer?.includes(question)) throw new Error(`half an answer: ${answer}`);
        acknowledged.push({ pair: [`user: ${question}`, `assistant: ${answer}`], failed });
        break;
      } catch {
        await new Promise((done) => setTimeout(done, 50));
      }
    }
  }
  await looked();
  return { faults, tries, unheard };
}

before(async () => {
  endpoint = await moody(random(seed));
  server = await start({
    TURNLEDGER_MODEL_URL: `http://127.0.0.1:${endpoint.address().port}/v1`, TURNLEDGER_MODEL_NAME: "m",
    TURNLEDGER_MODEL_API: "chat",
  });
  client = new OpenAI({ baseURL: baseURL(), apiKey: "none" });
});
after(async () => {
  await server?.stop();
  endpoint?.closeAllConnections();
  endpoint?.close();
});

test(`each client asks ${calls} questions of a moody model, and its server is killed (seed ${seed})`, async (t) => {
  let running = true;
  const draw = random(seed + 1);
  const killer = (async () => {
    let kills = 0;
    for (; running; kills++) {
      await new Promise((done) => setTimeout(done, 2000 + 6000 * draw()));
      if (!running) break;
      await server.kill();
      await server.begin();
    }
    return kills;
  })();
  const results = await Promise.all(
    Object.entries(clients).map(([name, ask], i) => asked(name, ask, random(seed + 2 + i))),
  );
  running = false;
  t.diagnostic(`${await killer} kills, ${results.map((r) => r.tries)} tries, ${results.map((r) => r.unheard)} unheard`);
  assert.deepEqual(results.flatMap((r) => r.faults), []);
});
