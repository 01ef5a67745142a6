// Stands between a client and a server, and loses answers: the server has done its work, and the client does not hear
// of it.
import { once } from "node:events";
import { createServer, request } from "node:http";

// proxied returns a proxy before a server. lose() makes it lose the next answer to a POST. While killing is true, each
// POST that is no retry is one during which the server is killed, if it can be caught between the append and the answer:
// it has written events to its files, and no byte of the answer has come. killed counts the kills.
export async function proxied(server) {
  let lose = false;
  let restarted = Promise.resolve();
  const proxy = createServer(async (ask, answer) => {
    const body = await bytes(ask);
    const before = server.written();
    let answered = false;
    const onward = request(server.url + ask.url, { method: ask.method, headers: { ...ask.headers, connection: "close" } });
    onward.on("error", async () => {
      await restarted;
      ask.socket.destroy();
    });
    onward.on("response", async (got) => {
      answered = true;
      const whole = await bytes(got).catch(() => undefined);
      const lost = ask.method === "POST" && lose;
      if (lost) {
        lose = false;
        out.lost++;
      }
      if (lost || whole === undefined) return ask.socket.destroy();
      answer.writeHead(got.statusCode, { ...got.headers, "content-length": whole.length });
      answer.end(whole);
    });
    onward.end(body);
    if (out.killing && ask.method === "POST" && ask.headers["x-stainless-retry-count"] === "0") {
      restarted = killed(before, () => answered);
      await restarted;
    }
  });

  // killed watches the server's files while a request is answered. What the server sent before it was stopped has
  // arrived some milliseconds later.
  async function killed(before, answered) {
    while (!answered() && server.written() === before) await new Promise((done) => setImmediate(done));
    if (answered()) return;
    server.freeze();
    await new Promise((done) => setTimeout(done, 20));
    if (answered()) return server.thaw();
    out.killed++;
    await server.kill();
    await server.begin();
  }

  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const out = {
    url: `http://127.0.0.1:${proxy.address().port}`,
    lost: 0,
    killed: 0,
    killing: false,
    lose: () => (lose = true),
    stop: () => proxy.close(),
  };
  return out;
}

async function bytes(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}
