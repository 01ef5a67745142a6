// The examples as a reader runs them.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { start } from "../../../../deploy/clients/server.js";

const echo = "[echo, no model is configured: set TURNLEDGER_MODEL_URL] You said:";

test("the examples print what they should", async () => {
  const server = await start();
  try {
    const printed = async (name) => {
      const file = fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
      const env = { PATH: process.env.PATH, TURNLEDGER_URL: server.url };
      return (await promisify(execFile)(process.execPath, [file], { env })).stdout.trimEnd().split("\n");
    };
    assert.deepEqual(await printed("record.mjs"), [
      "user: Which gas does it need?", "assistant: Propane.", "user: How much of it?",
      `answer: ${echo} How much of it? (2 messages before)`,
    ]);
    assert.deepEqual(await printed("agent.mjs"), [
      `${echo} Which gas? (0 messages before)`, `${echo} How much? (2 messages before)`, "items: 4",
    ]);
    assert.deepEqual(await printed("langchain.mjs"), ["I see 1 messages.", "I see 3 messages."]);
  } finally {
    await server.stop();
  }
});
