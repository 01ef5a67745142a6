// A turnledger of this tree as a process, on a port and with data of its own.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, statSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const binary = process.env.TURNLEDGER_TEST_BINARY;
if (!binary) {
  throw new Error("set TURNLEDGER_TEST_BINARY to a turnledger; make test-clients does");
}

// start returns a running server. Its address stays the same over kill and begin. written() is how many bytes of events
// it has written to its files; freeze and thaw stop it for a while. env are settings of it, and verb is what it does.
export async function start(env = {}, verb = ["dev"]) {
  const folder = await mkdtemp(join(tmpdir(), "turnledger-clients-"));
  const port = await freePort();
  const server = { url: `http://127.0.0.1:${port}`, pid: 0 };
  let process;
  server.begin = async () => {
    process = spawn(binary, [...verb, "--data-dir", folder, "--listen", `127.0.0.1:${port}`], {
      env: { PATH: globalThis.process.env.PATH, HOME: globalThis.process.env.HOME, ...env },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let words = "";
    process.stderr.on("data", (part) => (words = (words + part).slice(-4000)));
    for (let tries = 0; tries < 600; tries++) {
      if (process.exitCode !== null) throw new Error(`turnledger ended: ${words}`);
      const ready = await fetch(`${server.url}/readyz`).catch(() => undefined);
      if (ready?.ok) return;
      await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error(`turnledger is not ready: ${words}`);
  };
  const end = async (signal) => {
    if (process.exitCode !== null || process.signalCode !== null) return;
    process.kill(signal);
    await once(process, "exit");
  };
  server.kill = () => end("SIGKILL");
  server.freeze = () => process.kill("SIGSTOP");
  server.thaw = () => process.kill("SIGCONT");
  server.stop = async () => {
    await end("SIGINT");
    await rm(folder, { recursive: true, force: true });
  };
  await server.begin();
  const blocks = readdirSync(folder, { recursive: true })
    .filter((name) => /streams\/TURNS-\d+\/msgs$/.test(name))
    .map((name) => join(folder, name));
  if (blocks.length === 0 && !env.TURNLEDGER_NATS_URL) throw new Error("the files of the log are not where they are expected");
  server.written = () =>
    blocks
      .flatMap((blocksOf) => readdirSync(blocksOf).map((name) => join(blocksOf, name)))
      .reduce((sum, name) => sum + (statSync(name, { throwIfNoEntry: false })?.size ?? 0), 0);
  return server;
}

export async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  return port;
}
