// The npm client of Durable Streams, unmodified, over a session's stream, as a server's key and as a browser's token.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { DurableStream, stream } from "@durable-streams/client";
import { start } from "../server.js";

let server, folder, key, token;

const call = async (method, path, body, as = key) => {
  const response = await fetch(`${server.url}/v1${path}`, {
    method, body: body && JSON.stringify(body), headers: { authorization: `Bearer ${as}` },
  });
  return { status: response.status, body: await response.json() };
};

const record = async (session, request, as) => {
  const made = await call("POST", `/sessions/${session}/turns`,
    { request_id: request, question_neutral: `question ${request}`, answer_neutral: "a" }, as);
  assert.equal(made.status, 201, JSON.stringify(made.body));
  return made.body.turn_id;
};

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "turnledger-keys-"));
  const auth = `keys:${join(folder, "keys.json")}`;
  key = execFileSync(process.env.TURNLEDGER_TEST_BINARY, ["keys", "create", "server", "--auth", auth, "--scopes",
    "turns:write,context:read,events:read,turns:redact,tokens:issue"], { stdio: ["ignore", "pipe", "ignore"] })
    .toString().trim();
  server = await start({ TURNLEDGER_AUTH: auth });
  const made = await call("POST", "/tokens",
    { identity_id: "ada", expires_in: 600, scopes: ["turns:write", "context:read"] });
  assert.equal(made.status, 201, JSON.stringify(made.body));
  token = made.body.token;
});

after(async () => {
  await server?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const urlOf = (session) => `${server.url}/v1/streams/sessions/${session}`;
const headersOf = (as) => ({ Authorization: `Bearer ${as}` });
const types = (events) => events.map((event) => event.type.replace("turnledger.", ""));

test("a browser's token begins a session and reads it as a key does, over a restart", async () => {
  await record("mine", "r1", token);
  for (const as of [key, token]) {
    const read = await stream({ url: urlOf("mine"), headers: headersOf(as), offset: "-1", live: false });
    assert.deepEqual(types(await read.json()), ["session.linked.v1", "turn.recorded.v1"]);
    assert.equal(read.upToDate, true);
    await server.kill();
    await server.begin();
    const behind = await stream({ url: urlOf("mine"), headers: headersOf(as), offset: read.offset, live: false });
    assert.deepEqual(await behind.json(), []);
    assert.equal(behind.offset, read.offset);
  }
  const head = await DurableStream.head({ url: urlOf("mine"), headers: headersOf(token) });
  assert.equal(head.contentType, "application/json");
  assert.equal(head.offset.length, 20);
  const unknown = stream({ url: urlOf("unknown"), headers: headersOf(token), offset: "-1", live: false });
  await assert.rejects(unknown, (error) => error.status === 404);
});

for (const live of ["sse", "long-poll"]) {
  test(`what comes is read by ${live}, each event once, until the session is erased`, async () => {
    const session = `live-${live}`;
    await record(session, "r1", token);
    const read = await stream({ url: urlOf(session), headers: headersOf(token), offset: "-1", live });
    const seen = [];
    let more;
    const reaches = async (count) => {
      while (seen.length < count) await new Promise((done) => (more = done));
    };
    read.subscribeJson(async (batch) => {
      seen.push(...batch.items);
      more?.();
    });
    await reaches(2);
    await record(session, "r2", token);
    await record(session, "r3", token);
    await reaches(4);
    assert.deepEqual(seen.slice(1).map((event) => event.data.request_id), ["r1", "r2", "r3"]);
    assert.equal((await call("DELETE", `/sessions/${session}`)).status, 202);
    await reaches(5);
    await read.closed;
    assert.ok(types(seen).includes("session.erased.v1"));
  });
}
