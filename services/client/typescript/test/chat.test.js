// Answers of a model that speaks when it is told: hang-ups, watching, stopping.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { after, before, test } from "node:test";
import { Turnledger } from "@turnledger/client";
import { start } from "../../../../deploy/clients/server.js";

let model, server, client;
before(async () => {
  model = await speaker();
  server = await start({ TURNLEDGER_MODEL_URL: `${model.url}/v1`, TURNLEDGER_MODEL_NAME: "any" });
  client = new Turnledger({ url: server.url });
});
after(async () => {
  await server?.stop();
  model?.stop();
});

// speaker is a model whose answers are open until end() is called; say(text) adds a piece to each of them.
async function speaker() {
  const open = new Set();
  let begun = deferred();
  const piece = (delta, finish_reason = null) => {
    const chunk = { id: "c", object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }] };
    return `data: ${JSON.stringify(chunk)}\n\n`;
  };
  const http = createServer((ask, answer) => {
    ask.resume();
    answer.writeHead(200, { "content-type": "text/event-stream" });
    open.add(answer);
    begun.resolve();
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  return {
    url: `http://127.0.0.1:${http.address().port}`,
    asked: async () => {
      await begun.promise;
      begun = deferred();
    },
    say: (text) => open.forEach((one) => one.write(piece({ role: "assistant", content: text }))),
    end: () => {
      open.forEach((one) => one.end(`${piece({}, "stop")}data: [DONE]\n\n`));
      open.clear();
    },
    stop: () => {
      open.forEach((one) => one.destroy());
      http.close();
    },
  };
}

function deferred() {
  const out = {};
  out.promise = new Promise((resolve) => (out.resolve = resolve));
  return out;
}

// cutting is a proxy before the server that cuts all connections when it is told.
async function cutting() {
  const sockets = new Set();
  let asked = 0;
  const http = createServer((ask, answer) => {
    asked++;
    const onward = request(server.url + ask.url, { method: ask.method, headers: ask.headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      got.pipe(answer);
    });
    onward.on("error", () => undefined);
    answer.on("close", () => onward.destroy());
    ask.pipe(onward);
  }).listen(0, "127.0.0.1");
  http.on("connection", (socket) => sockets.add(socket));
  await once(http, "listening");
  return {
    url: `http://127.0.0.1:${http.address().port}`,
    asked: () => asked,
    cut: () => sockets.forEach((socket) => socket.destroy()),
    stop: () => http.close(),
  };
}

const textOf = (events) => events.filter((one) => one.type === "delta").map((one) => one.content).join("");

test("a stream whose connection is cut goes on, and no piece comes twice", async () => {
  const proxy = await cutting();
  const events = [];
  const reading = (async () => {
    const stream = new Turnledger({ url: proxy.url }).chat.stream({ thread_id: "cut", content: "Hello" });
    for await (const one of stream) {
      events.push(one);
      if (one.content === "one ") {
        proxy.cut();
        model.say("two ");
      } else if (one.content === "two ") {
        proxy.cut();
        model.say("three");
        model.end();
      }
    }
  })();
  await model.asked();
  model.say("one ");
  await reading;
  assert.equal(events.at(-1).type, "done");
  assert.equal(events.at(-1).content, "one two three");
  assert.ok("one two three".startsWith(textOf(events)), textOf(events));
  assert.ok(proxy.asked() >= 2);
  const { turns } = await client.sessions.turns({ session_id: "cut" });
  assert.deepEqual(turns.map((one) => one.answer_neutral), ["one two three"]);
  proxy.stop();
});

test("attach shows the running answer from its beginning; stop ends it with what is there", async () => {
  const nothing = [];
  for await (const one of client.chat.attach({ thread_id: "watch" })) nothing.push(one);
  assert.deepEqual(nothing, []);
  const sending = client.chat.send({ thread_id: "watch", content: "Hello" });
  await model.asked();
  model.say("one ");
  const watched = [];
  for await (const one of client.chat.attach({ thread_id: "watch" })) {
    watched.push(one);
    if (one.content === "one ") model.say("two");
    else if (one.content === "two") {
      const stopped = await client.chat.stop({ thread_id: "watch" });
      assert.equal(stopped.turn_id, watched[0].turn_id);
    }
  }
  assert.deepEqual(watched.map((one) => one.type), ["begun", "delta", "delta", "done"]);
  const answer = await sending;
  assert.deepEqual([answer.content, answer.finish_reason], ["one two", "stopped"]);
  assert.equal((await client.chat.stop({ thread_id: "watch" })).turn_id, null);
});

// broken is a server whose first answer breaks off behind two events; rest answers what is asked then.
async function broken(rest) {
  const asked = [];
  const http = createServer(async (ask, answer) => {
    for await (const _ of ask);
    asked.push(`${ask.method} ${ask.url}`);
    if (asked.length > 1) return rest(ask, answer);
    answer.writeHead(200, { "content-type": "text/event-stream" });
    answer.write(`id: 1\nevent: begun\ndata: {"thread_id":"t","turn_id":"a"}\n\n`);
    answer.write(`id: 2\nevent: delta\ndata: {"content":"one"}\n\n`, () => ask.socket.destroy());
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  return { asked, client: new Turnledger({ url: `http://127.0.0.1:${http.address().port}` }), stop: () => http.close() };
}

test("whoever comes back to an answer names its turn, and does not ask for ever", async () => {
  const over = await broken((ask, answer) => {
    if (ask.method === "GET") return answer.writeHead(204).end();
    answer.end(`id: 9\nevent: done\ndata: {"content":"one two"}\n\n`);
  });
  const events = [];
  for await (const one of over.client.chat.stream({ thread_id: "t", content: "q" })) events.push(one.type);
  assert.deepEqual(events, ["begun", "delta", "done"]);
  assert.equal(over.asked[1], "GET /v1/threads/t/messages/stream?from=2&turn_id=a");
  over.stop();
  const gone = await broken((_, answer) => answer.writeHead(404).end());
  await assert.rejects(async () => {
    for await (const _ of gone.client.chat.stream({ thread_id: "t", content: "q" }));
  }, { status: 404 });
  assert.equal(gone.asked.length, 3);
  gone.stop();
});
