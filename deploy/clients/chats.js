// What tests of chats share: a model that is told what to say, and what a chat of the AI SDK keeps.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";

// scripted is a model that answers by model.script(messages): texts and calls in pieces, of which a promise holds back
// what follows.
export async function scripted() {
  const model = { script: () => ["Hello."] };
  const http = createServer(async (ask, answer) => {
    let body = "";
    for await (const part of ask) body += part;
    answer.writeHead(200, { "content-type": "text/event-stream" });
    const send = (delta, finish_reason = null) => answer.write(`data: ${JSON.stringify({
      id: "c", object: "chat.completion.chunk", choices: [{ index: 0, delta: { role: "assistant", ...delta }, finish_reason }],
    })}\n\n`);
    let reason = "stop";
    for (const piece of model.script(JSON.parse(body).messages)) {
      if (piece instanceof Promise) await piece;
      else if (typeof piece === "string") send({ content: piece });
      else {
        reason = "tool_calls";
        send({ tool_calls: [{ index: 0, type: "function", ...piece }] });
      }
    }
    send({}, reason);
    answer.end("data: [DONE]\n\n");
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  model.url = `http://127.0.0.1:${http.address().port}`;
  model.stop = () => http.closeAllConnections() || http.close();
  return model;
}

// stateOf is what a chat of the AI SDK keeps, as a framework does it.
export const stateOf = (messages = []) => ({
  status: "ready", error: undefined, messages,
  pushMessage(message) { this.messages = [...this.messages, message]; },
  popMessage() { this.messages = this.messages.slice(0, -1); },
  replaceMessage(n, message) { this.messages = this.messages.with(n, structuredClone(message)); },
  snapshot: (thing) => structuredClone(thing),
});

export const words = (message) => (message?.parts ?? []).map((part) => part.text ?? "").join("");

export async function until(holds, what) {
  for (let tries = 0; tries < 1000; tries++) {
    if (await holds()) return;
    await new Promise((done) => setTimeout(done, 10));
  }
  assert.fail(`not in 10 s: ${what}`);
}

// gate is a promise that open() ends.
export function gate() {
  let open;
  const closed = new Promise((done) => (open = done));
  return { closed, open };
}
