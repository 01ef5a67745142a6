// LangChain's ChatOpenAI on the Responses API: an answer, one that goes on with it, a tool, and streams.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { tool } from "@langchain/core/tools";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { checked } from "../official.js";
import { start } from "../server.js";

let server, spy, model;
before(async () => {
  server = await start();
  spy = checked();
  model = new ChatOpenAI({
    model: "echo", apiKey: "none", useResponsesApi: true, configuration: { baseURL: `${server.url}/v1`, fetch: spy },
  });
});
after(() => server?.stop());

const ways = {
  "at once": (runnable, input, options) => runnable.invoke(input, options),
  "as a stream": async (runnable, input, options) => {
    let whole;
    for await (const part of await runnable.stream(input, options)) whole = whole ? whole.concat(part) : part;
    return whole;
  },
};

for (const [way, ask] of Object.entries(ways)) {
  test(`an answer goes on with the response before, ${way}`, async () => {
    const first = await ask(model, "Hello");
    assert.match(first.text, /You said: Hello \(0 messages before\)/);
    const before = { previous_response_id: first.response_metadata.id };
    const second = await ask(model, "And now?", before);
    assert.match(second.text, /You said: And now\? \(2 messages before\)/);
  });

  test(`a tool, ${way}`, async () => {
    const weather = tool(async () => "sunny", { name: "weather", description: "", schema: z.object({ city: z.string() }) });
    const question = new HumanMessage("Łódź");
    const asked = await ask(model.bindTools([weather]), [question]);
    assert.deepEqual(asked.tool_calls.map((call) => [call.name, call.args]), [["weather", { city: "Łódź" }]]);
    const output = new ToolMessage({ content: "sunny", tool_call_id: asked.tool_calls[0].id });
    const told = await ask(model, [output], { previous_response_id: asked.response_metadata.id });
    assert.match(told.text, /You said: sunny/);
  });
}

test("every answer was as OpenAI's document says", (t) => {
  if (!spy.complete) return t.skip("set TURNLEDGER_TEST_OPENAPI to OpenAI's document");
  assert.deepEqual(spy.faults, []);
  assert.ok(spy.count >= 8, `only ${spy.count} were looked at`);
});
