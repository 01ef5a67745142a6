// What npm pack makes: its size, its types, and an empty project that compiles with it.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { start } from "../../../../deploy/clients/server.js";

const run = promisify(execFile);
const here = fileURLToPath(new URL("..", import.meta.url));
let folder, tarball;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "turnledger-package-"));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: here });
  tarball = join(folder, stdout.trim().split("\n").at(-1));
});
after(async () => {
  if (folder) await rm(folder, { recursive: true, force: true });
});

test("the tarball is under 60 KB", async () => {
  assert.ok((await stat(tarball)).size < 60_000, `${(await stat(tarball)).size} bytes`);
});

test("the types are those of the server's own description", async () => {
  const server = await start();
  try {
    const script = join(here, "scripts/types.mjs");
    const { stdout } = await run(process.execPath, [script, `${server.url}/openapi.json`, "--stdout"]);
    assert.equal(await readFile(join(here, "src/api.ts"), "utf8"), stdout);
  } finally {
    await server.stop();
  }
});

test("an empty project compiles under tsc --strict, and no exported type is any", async () => {
  await writeFile(join(folder, "package.json"), '{"name":"empty","private":true,"type":"module"}');
  await run("npm", ["install", "--silent", "--no-audit", "--no-fund", "--omit=peer", tarball], { cwd: folder });
  await writeFile(join(folder, "index.ts"), `
    import { Turnledger, TurnledgerError, type Turn } from "@turnledger/client";
    const client = new Turnledger({ url: "http://127.0.0.1:8480", key: async () => "k", retries: 2 });
    type IsAny<T> = 0 extends 1 & T ? true : false;
    type Known<T> = IsAny<T> extends true ? never : T extends (...args: infer A) => infer R
      ? IsAny<A> extends true ? never : IsAny<Awaited<R>> extends true ? never : true : true;
    const known: { [K in keyof Turnledger]: Known<Turnledger[K]> } & { [K in keyof Turnledger["turns"]]:
      Known<Turnledger["turns"][K]> } | undefined = undefined;
    export async function all(): Promise<Turn | string> {
      const turn = await client.turns.record({ session_id: "s", question_neutral: "?", answer_neutral: "!" });
      // @ts-expect-error: there is no such member
      void turn.nothing;
      // @ts-expect-error: a session is missing
      void client.turns.record({ question_neutral: "?" });
      for await (const event of client.events({ follow: false })) void (event.position satisfies string);
      for await (const piece of client.chat.stream({ content: "Hello" })) {
        if (piece.type === "delta") void piece.content;
      }
      return known === undefined && turn instanceof TurnledgerError ? "error" : turn;
    }`);
  const tsc = join(here, "node_modules/.bin/tsc");
  const flags = ["--strict", "--noEmit", "--target", "ES2022", "--module", "NodeNext", "--types", "", "index.ts"];
  await run(tsc, flags, { cwd: folder }).catch((error) => assert.fail(error.stdout));
  const types = "node_modules/@turnledger/client/dist";
  const { stdout } = await run("grep", ["-rn", "[:<(|] *any\\b", types, "--include=*.d.ts"], { cwd: folder })
    .catch((error) => error);
  assert.equal(stdout, "");
});

test("the adapters compile under tsc --strict with their peers", async () => {
  for (const peer of ["@langchain", "@openai", "ai", "zod", "openai"]) {
    await symlink(join(here, "node_modules", peer), join(folder, "node_modules", peer)).catch(() => undefined);
  }
  await writeFile(join(folder, "adapters.ts"), `
    import type { Session } from "@openai/agents";
    import type { ChatTransport, ModelMessage, UIMessage } from "ai";
    import { Turnledger } from "@turnledger/client";
    import { TurnledgerSession } from "@turnledger/client/agents";
    import { TurnledgerChatMessageHistory } from "@turnledger/client/langchain";
    import { contextFor, loadMessages, turnledgerTransport } from "@turnledger/client/ai";
    const client = new Turnledger({ url: "http://127.0.0.1:8480" });
    export const session: Session = new TurnledgerSession({ client });
    export const history = new TurnledgerChatMessageHistory({ client, session_id: "s" });
    export const transport: ChatTransport<UIMessage> = turnledgerTransport({ client });
    export const messages: Promise<UIMessage[]> = loadMessages({ client, id: "s" });
    export const prompt: Promise<ModelMessage[]> =
      contextFor({ client, session_id: "s", message: "?" }).then((context) => context.messages);`);
  const flags = ["--strict", "--noEmit", "--skipLibCheck", "--target", "ES2022", "--module", "NodeNext", "--types", ""];
  await run(join(here, "node_modules/.bin/tsc"), [...flags, "adapters.ts"], { cwd: folder })
    .catch((error) => assert.fail(error.stdout));
});
