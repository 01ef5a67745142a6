// The client against the binary of this tree, and against servers that fail.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Turnledger, TurnledgerError } from "@turnledger/client";
import { start } from "../../../../deploy/clients/server.js";

let server, client;
before(async () => {
  server = await start();
  client = new Turnledger({ url: server.url });
});
after(() => server?.stop());

test("a turn is recorded, read, corrected and redacted", async () => {
  const turn = await client.turns.record({
    session_id: "a/b", request_id: "r1", question_neutral: "Which gas?", answer_neutral: "Propane.",
  });
  assert.equal(turn.status, "finalized");
  assert.equal((await client.turns.record({
    session_id: "a/b", request_id: "r1", question_neutral: "Which gas?", answer_neutral: "Propane.",
  })).duplicate, true);
  const { messages } = await client.context.build({ session_id: "a/b", message: "How much?" });
  assert.deepEqual(messages.map((one) => one.content), ["Which gas?", "Propane.", "How much?"]);
  const corrected = await client.turns.correct({ session_id: "a/b", turn_id: turn.turn_id, answer_neutral: "Butane." });
  assert.equal(corrected.record_version, 2);
  assert.deepEqual(await client.sessions.history({ session_id: "a/b" }), {
    history: [{ question_neutral: "Which gas?", answer_neutral: "Butane." }],
  });
  const gone = await client.turns.redact({ session_id: "a/b", turn_id: corrected.turn_id, reason: "asked" });
  assert.equal(gone.status, "redacted");
  assert.deepEqual(await client.sessions.turns({ session_id: "a/b", limit: 5 }), { turns: [], next_cursor: null });
});

test("a turn of two calls, a fork, a description, an erasure", async () => {
  const started = await client.turns.start({ session_id: "s2", question_neutral: "When?" });
  await client.turns.finalize({ session_id: "s2", turn_id: started.turn_id, answer_neutral: "Now." });
  const branch = await client.sessions.fork({ session_id: "s2", request_id: "f1", new_session_id: "s2b" });
  assert.deepEqual([branch.session_id, branch.forked_from.session_id], ["s2b", "s2"]);
  assert.equal((await client.sessions.describe({ session_id: "s2", title: "Times" })).title, "Times");
  const { receipt_id } = await client.sessions.erase({ session_id: "s2" });
  assert.equal((await client.receipts.get({ receipt_id })).kind, "session");
  await assert.rejects(client.turns.start({ session_id: "s2", question_neutral: "And?" }), (error) => {
    assert.ok(error instanceof TurnledgerError);
    assert.deepEqual([error.code, error.status, error.retryable], ["session_erased", 410, false]);
    return true;
  });
});

test("a page with a token records its own sessions, and sees no others", async () => {
  const { token } = await client.tokens.create({
    identity_id: "ann", expires_in: 600, scopes: ["turns:write", "context:read"],
  });
  const page = new Turnledger({ url: server.url, key: async () => token });
  await page.turns.record({ session_id: "page", question_neutral: "?", answer_neutral: "!" });
  assert.equal((await client.sessions.get({ session_id: "page" })).identity_id, "ann");
  await client.turns.record({ session_id: "hers", identity_id: "bea", question_neutral: "?", answer_neutral: "!" });
  await assert.rejects(page.sessions.get({ session_id: "hers" }), { code: "session_not_found", status: 404 });
});

test("many turns are answered line by line, in order", async () => {
  const turns = Array.from({ length: 1203 }, (_, n) => ({
    session_id: `m${n % 3}`, request_id: `q${n}`, answer_neutral: "Yes.",
    question_neutral: n === 7 ? "" : `Question ${n}`,
  }));
  const lines = await client.turns.recordMany({ turns });
  assert.deepEqual(lines.map((one) => one.line), turns.map((_, n) => n + 1));
  assert.deepEqual(lines.filter((one) => one.http_status !== 201).map((one) => [one.line, one.code]), [
    [8, "invalid_argument"],
  ]);
});

test("chat, whole and piece by piece; the same request is answered once", async () => {
  const first = await client.chat.send({ content: "Hello" });
  assert.match(first.content, /You said: Hello/);
  const events = [];
  for await (const one of client.chat.stream({ thread_id: first.thread_id, content: "And now?" })) events.push(one);
  assert.deepEqual([events[0].type, events.at(-1).type], ["begun", "done"]);
  assert.equal(
    events.filter((one) => one.type === "delta").map((one) => one.content).join(""), events.at(-1).content,
  );
});

test("events go on behind the last one when the server is killed", async () => {
  const seen = [];
  const end = new AbortController();
  const reading = (async () => {
    for await (const event of client.events({ session_id: "k", follow: true }, { signal: end.signal })) {
      seen.push(event.position);
      if (seen.length === 6) return;
    }
  })();
  for (let n = 0; n < 6; n++) {
    await client.turns.record({ session_id: "k", request_id: `k${n}`, question_neutral: "?", answer_neutral: "!" });
    if (n === 2) {
      await server.kill();
      await server.begin();
    }
  }
  await reading;
  assert.equal(new Set(seen).size, 6);
});

test("a write during which the server is killed counts once", async () => {
  for (let n = 0; n < 3; n++) {
    const turns = Array.from({ length: 20 }, (_, i) => i);
    const writes = turns.map((i) => client.turns.record({
      session_id: `kill${n}`, question_neutral: `Question ${i}`, answer_neutral: "Yes.",
    }));
    const settled = Promise.all(writes);
    await server.kill();
    await server.begin();
    await settled;
    const { turns: all } = await client.sessions.turns({ session_id: `kill${n}`, limit: 100 });
    assert.deepEqual(all.map((one) => one.question_neutral).sort(), turns.map((i) => `Question ${i}`).sort());
  }
});

// failing is a server that fails as it is told, and then answers; it keeps the bodies that it was sent.
async function failing(failures) {
  const bodies = [];
  const http = createServer(async (ask, answer) => {
    let body = "";
    for await (const part of ask) body += part;
    bodies.push(body);
    const failure = failures.shift();
    if (failure === "hang up") return ask.socket.destroy();
    const after = failure === 429 ? { "retry-after": "0" } : {};
    answer.writeHead(failure ?? 200, { "content-type": "application/json", ...after });
    answer.end(failure ? JSON.stringify({ code: "some", detail: "some", status: failure }) : "{}");
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  return { url: `http://127.0.0.1:${http.address().port}`, bodies, stop: () => http.close() };
}

test("a write comes again with its request id after 502, 503, 504, 429 and a lost connection", async () => {
  const other = await failing([502, 503, 504, 429, "hang up"]);
  const one = new Turnledger({ url: other.url });
  await one.turns.record({ session_id: "s", question_neutral: "?", answer_neutral: "!" });
  assert.equal(other.bodies.length, 6);
  assert.equal(new Set(other.bodies).size, 1);
  assert.ok(JSON.parse(other.bodies[0]).request_id);
  other.stop();
});

test("a stop without a turn is sent once, and an id that would name another call is none", async () => {
  const other = await failing(["hang up"]);
  const one = new Turnledger({ url: other.url });
  await assert.rejects(one.chat.stop({ thread_id: "t" }), { code: "connection_lost" });
  await assert.rejects(async () => one.turns.record({ session_id: "..", question_neutral: "?" }), { status: 422 });
  await assert.rejects(async () => one.sessions.turns({ session_id: "." }), { status: 422 });
  assert.equal(other.bodies.length, 1);
  other.stop();
});

test("an answer of many turns that came in part is asked for again", async () => {
  let asked = 0;
  const line = (n) => `${JSON.stringify({ line: n, http_status: 201, turn_id: "t" })}\n`;
  const http = createServer(async (ask, answer) => {
    for await (const _ of ask);
    answer.end([line(1), `${line(1)}{"line":2,`, line(1) + line(2)][asked++]);
  }).listen(0, "127.0.0.1");
  await once(http, "listening");
  const one = new Turnledger({ url: `http://127.0.0.1:${http.address().port}` });
  const turn = { session_id: "s", question_neutral: "?", answer_neutral: "!" };
  const lines = await one.turns.recordMany({ turns: [turn, turn] });
  assert.deepEqual(lines.map((l) => l.http_status), [201, 201]);
  assert.equal(asked, 3);
  http.close();
});

test("what can't succeed is not tried again, and retries bounds the rest", async () => {
  for (const [failures, asked, status, retryable] of [[[409], 1, 409, false], [[503, 503], 2, 503, true]]) {
    const other = await failing(failures);
    const one = new Turnledger({ url: other.url, retries: 1 });
    const write = one.turns.record({ session_id: "s", question_neutral: "?" });
    await assert.rejects(write, { status, retryable, code: "some" });
    assert.equal(other.bodies.length, asked);
    other.stop();
  }
});

test("a reset is sent once", async () => {
  const other = await failing([503]);
  const one = new Turnledger({ url: other.url });
  await assert.rejects(one.sessions.reset({ session_id: "s" }), { status: 503 });
  assert.equal(other.bodies.length, 1);
  other.stop();
});
