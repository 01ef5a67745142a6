// TurnledgerSession in runs of @openai/agents, with history transactions, and inside the compaction session.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Agent, OpenAIResponsesCompactionSession, OpenAIResponsesModel, Runner, tool } from "@openai/agents";
import { Turnledger } from "@turnledger/client";
import { TurnledgerSession } from "@turnledger/client/agents";
import OpenAI from "openai";
import { z } from "zod";
import { start } from "../../../../deploy/clients/server.js";

let server, client, agent;
before(async () => {
  server = await start();
  client = new Turnledger({ url: server.url });
  agent = new Agent({
    name: "Forecaster",
    model: new OpenAIResponsesModel(new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none" }), "echo"),
    modelSettings: { store: false },
    tools: [tool({
      name: "weather", description: "The weather.", parameters: z.object({ city: z.string().nullable() }),
      execute: async () => "sunny", errorFunction: () => "sunny",
    })],
  });
});
after(() => server?.stop());

const kinds = async (session, limit) => (await session.getItems(limit)).map((one) => one.type ?? one.role);
const user = (text) => ({ type: "message", role: "user", content: text });
const said = (text) => ({
  type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text }],
});
const call = (id, args = "{}") => ({
  type: "function_call", callId: id, name: "weather", arguments: args, status: "completed",
});
const output = (id) => ({
  type: "function_call_result", callId: id, name: "weather", status: "completed",
  output: { type: "text", text: "sunny" },
});

test("two runs with a tool; windows never part a call from its output; pop, clear, erase", async () => {
  const session = new TurnledgerSession({ client });
  const runner = new Runner({ tracingDisabled: true });
  const one = ["message", "function_call", "function_call_result", "message"];
  await runner.run(agent, "How is the weather?", { session });
  assert.deepEqual(await kinds(session), one);
  await runner.run(agent, "And tomorrow?", { session });
  assert.deepEqual(await kinds(session), [...one, ...one]);
  assert.deepEqual(await kinds(session, 2), ["message"]); // the output's call would be the third
  assert.deepEqual(await kinds(session, 3), ["function_call", "function_call_result", "message"]);
  assert.equal((await session.popItem()).role, "assistant");
  assert.equal((await kinds(session)).length, 7);
  await session.clearSession();
  assert.deepEqual(await session.getItems(), []);
  assert.equal(await session.popItem(), undefined);
  assert.ok((await session.erase()).receipt_id);
  await assert.rejects(session.addItems([user("And?")]), { status: 410 });
});

test("what is added comes back as it was", async () => {
  const session = new TurnledgerSession({ client, session_id: "same" });
  const items = [
    user("Hello"), { role: "user", content: [{ type: "input_text", text: "There" }] },
    { type: "reasoning", id: "rs_1", content: [{ type: "input_text", text: "Hm" }] },
    { ...call("c1"), id: "fc_1" }, output("c1"), { ...said("Hi"), id: "msg_1" },
  ];
  await session.addItems(items);
  assert.deepEqual(await session.getItems(), items);
});

test("a transaction of history counts once", async () => {
  const session = new TurnledgerSession({ client, session_id: "transactions" });
  const append = { operationId: "o1", transaction: { type: "append_items", items: [user("Hello"), call("c1")] } };
  await session.applyHistoryTransaction(append);
  await session.applyHistoryTransaction(append);
  assert.deepEqual(await session.getItems(), [user("Hello"), call("c1")]);
  const other = { operationId: "o1", transaction: { type: "append_items", items: [user("Bye")] } };
  await assert.rejects(session.applyHistoryTransaction(other), { code: "request_id_in_use" });
  const replace = {
    operationId: "o2",
    transaction: {
      type: "replace_suffix", expectedSuffix: [call("c1")], replacement: [call("c1", '{"city":"Ulm"}'), output("c1")],
    },
  };
  await session.applyHistoryTransaction(replace);
  await session.applyHistoryTransaction(replace);
  assert.deepEqual(await session.getItems(), [user("Hello"), call("c1", '{"city":"Ulm"}'), output("c1")]);
  const wrong = { operationId: "o3", transaction: { ...replace.transaction, expectedSuffix: [user("Who?")] } };
  await assert.rejects(session.applyHistoryTransaction(wrong), { code: "history_changed" });
  assert.equal((await session.getItems()).length, 3);
});

for (const fails of [false, true]) {
  test(`inside the compaction session${fails ? ", with an addItems that fails" : ""}`, async () => {
    const session = new TurnledgerSession({ client, session_id: `compact-${fails}` });
    const items = [user("Hello"), call("c1"), output("c1"), said("Hi")];
    await session.addItems(items);
    let failures = fails ? 1 : 0;
    const add = session.addItems.bind(session);
    session.addItems = async (all) => {
      if (failures-- > 0) throw new Error("lost");
      return add(all);
    };
    const compacted = [{ type: "compaction", id: "cmp_1", encrypted_content: "sealed" }];
    const answer = { output: compacted, usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 } };
    const around = new OpenAIResponsesCompactionSession({
      client: { responses: { compact: async () => answer } }, underlyingSession: session, model: "gpt-5",
    });
    const run = around.runCompaction({ force: true, compactionMode: "input" });
    if (fails) await assert.rejects(run, /lost/);
    else await run;
    assert.deepEqual(await session.getItems(), fails ? items : compacted);
  });
}
