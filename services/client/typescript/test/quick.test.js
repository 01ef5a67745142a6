// The blocks of docs/quick.md, as a reader runs them.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { start } from "../../../../deploy/clients/server.js";

const run = promisify(execFile);
const here = fileURLToPath(new URL("..", import.meta.url));
const blocks = {};
let server, folder;
before(async () => {
  const page = await readFile(join(here, "../../../docs/quick.md"), "utf8");
  for (const [, language, text] of page.matchAll(/^```(\w+)\n(.*?)^```$/gms)) blocks[language] = text;
  folder = await mkdtemp(join(here, ".quick-")); // in the package, and in the Go module
  server = await start();
});
after(async () => {
  await server?.stop();
  if (folder) await rm(folder, { recursive: true, force: true });
});

// ran returns what a block prints.
async function ran(name, language, command, ...args) {
  const file = join(folder, name);
  await writeFile(file, blocks[language]);
  const env = { ...process.env, TURNLEDGER_URL: server.url, TURNLEDGER_KEY: "none" };
  return (await run(command, [...args, file], { env, cwd: folder })).stdout;
}

const prompt = [
  { role: "user", content: "Which gas?" }, { role: "assistant", content: "Propane." },
  { role: "user", content: "How much?" },
];
const lines = (text) => text.trimEnd().split("\n").map((line) => JSON.parse(line));

test("curl", async () => assert.deepEqual(JSON.parse(await ran("quick.sh", "sh", "sh")).messages, prompt));
test("Go", async () => assert.deepEqual(lines(await ran("main.go", "go", "go", "run")), prompt));
test("TypeScript", async () => assert.deepEqual(lines(await ran("quick.mjs", "js", "node")), prompt));
test("Python", async () => assert.deepEqual(lines(await ran("quick.py", "python", "python3")), prompt));
