// contextFor against the binary; the transport's requests against a server that notes them.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { modelMessageSchema } from "ai";
import { Turnledger } from "@turnledger/client";
import { contextFor, loadMessages, turnledgerTransport } from "@turnledger/client/ai";
import { start } from "../../../../deploy/clients/server.js";

test("a context becomes messages of the AI SDK, with calls and their results", async () => {
  const server = await start();
  try {
    const client = new Turnledger({ url: server.url });
    const call = { id: "c1", type: "function", function: { name: "weather", arguments: '{"city":"Ulm"}' } };
    await client.turns.record({
      session_id: "s", question_neutral: "How is the weather?", answer_neutral: "Sunny.",
      answer_messages: [
        { role: "assistant", content: null, tool_calls: [call] },
        { role: "tool", tool_call_id: "c1", content: "sunny" }, { role: "assistant", content: "Sunny." },
      ],
    });
    const context = await contextFor({ client, session_id: "s", message: "And now?", system_prompt: "Be brief." });
    assert.equal(context.system, "Be brief.");
    assert.equal(context.session_found, true);
    for (const message of context.messages) modelMessageSchema.parse(message);
    const input = { type: "tool-call", toolCallId: "c1", toolName: "weather", input: { city: "Ulm" } };
    const output = { type: "text", value: "sunny" };
    assert.deepEqual(context.messages, [
      { role: "user", content: "How is the weather?" }, { role: "assistant", content: [input] },
      { role: "tool", content: [{ type: "tool-result", toolCallId: "c1", toolName: "weather", output }] },
      { role: "assistant", content: "Sunny." }, { role: "user", content: "And now?" },
    ]);
  } finally {
    await server.stop();
  }
});

test("the transport asks, comes back, loads and stops by the routes of UI messages, each time with a fresh key", async () => {
  const asked = [];
  const http = createServer(async (ask, answer) => {
    let body = "";
    for await (const part of ask) body += part;
    asked.push(`${ask.method} ${ask.url} ${ask.headers.authorization}`);
    if (ask.method === "GET" && ask.url.endsWith("/stream")) return answer.writeHead(204).end();
    if (ask.url.includes("/messages")) {
      const older = ask.url.includes("cursor=older");
      const messages = [{ id: older ? "m1" : "m2", role: "user", parts: [{ type: "text", text: "Hello" }] }];
      return answer.end(JSON.stringify({ messages, next_cursor: older ? null : "older" }));
    }
    if (ask.url.endsWith("/stop")) return answer.writeHead(202).end();
    assert.equal(JSON.parse(body).id, "c/1");
    answer.writeHead(200, { "content-type": "text/event-stream", "x-vercel-ai-ui-message-stream": "v1" });
    answer.end('data: {"type":"start"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n');
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  let keys = 0;
  const client = new Turnledger({ url: `http://127.0.0.1:${http.address().port}`, key: () => `k${++keys}` });
  const transport = turnledgerTransport({ client });
  const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Hello" }] }];
  const stream = await transport.sendMessages({ chatId: "c/1", messages, trigger: "submit-message" });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk.type);
  assert.deepEqual(chunks, ["start", "finish"]);
  assert.equal(await transport.reconnectToStream({ chatId: "c1" }), null);
  assert.deepEqual((await loadMessages({ client, id: "c1" })).map((one) => one.id), ["m1", "m2"]);
  await transport.stop({ id: "c1" });
  assert.deepEqual(asked, [
    "POST /v1/ui/chat Bearer k1", "GET /v1/ui/chat/c1/stream Bearer k2", "GET /v1/ui/chat/c1/messages Bearer k3",
    "GET /v1/ui/chat/c1/messages?cursor=older Bearer k4", "POST /v1/ui/chat/c1/stop Bearer k5",
  ]);
  http.close();
});
