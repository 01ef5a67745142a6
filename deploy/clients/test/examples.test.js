// The examples of docs/examples/openai as a reader runs them, against a server of their own.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { start } from "../server.js";

const here = dirname(fileURLToPath(import.meta.url));
let server, folder;
before(async () => {
  server = await start();
  folder = await mkdtemp(join(here, "..", ".examples-")); // below the packages, which the examples import
  await cp(join(here, "../../../docs/examples/openai"), folder, { recursive: true });
});
after(async () => {
  await server?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

const echo = "[echo, no model is configured: set TURNLEDGER_MODEL_URL] You said:";

async function printed(example) {
  const env = { PATH: process.env.PATH, OPENAI_BASE_URL: `${server.url}/v1`, OPENAI_API_KEY: "none" };
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, example)], { env });
  return stdout.trimEnd().split("\n");
}

test("the openai package", async () => {
  assert.deepEqual(await printed("conversation.mjs"), [
    `answer: ${echo} Which gas does it need? (2 messages before)`,
    `streamed: ${echo} And how much of it? (4 messages before)`,
    `with a tool: ${echo} 1.10 a litre (8 messages before)`,
    "user: My boiler is a B20.",
    "assistant: Thank you, I have noted that.",
    "user: Which gas does it need?",
    `assistant: ${echo} Which gas does it need? (2 messages before)`,
    "user: And how much of it?",
    `assistant: ${echo} And how much of it? (4 messages before)`,
    "user: Propane",
    "function_call",
    "function_call_output",
    `assistant: ${echo} 1.10 a litre (8 messages before)`,
    "deleted: true",
  ]);
});

test("the Agents SDK", async () => {
  assert.deepEqual(await printed("agent.mjs"), [
    `Łódź: ${echo} sunny (3 messages before)`,
    `And tomorrow?: ${echo} sunny (7 messages before)`,
    "items: message, function_call, function_call_result, message, " +
      "message, function_call, function_call_result, message",
    "after popItem: 7",
  ]);
});

test("the AI SDK", async () => {
  assert.deepEqual(await printed("aisdk.mjs"), [
    `after 2 steps: ${echo} sunny (2 messages before)`,
    "message", "function_call", "function_call_output", "message",
  ]);
});
