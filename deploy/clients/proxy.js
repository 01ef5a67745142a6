// Stands between a client and a server, and loses answers: the server has done its work, and the client does not hear
// of it.
import { once } from "node:events";
import { createServer, request } from "node:http";

// proxied returns a proxy before a server. lose(then) makes it lose the next answer to a POST, and calls then before
// the client sees the connection break.
export async function proxied(server) {
  let lose;
  const proxy = createServer(async (ask, answer) => {
    const body = await bytes(ask);
    const onward = request(server.url + ask.url, { method: ask.method, headers: { ...ask.headers, connection: "close" } });
    onward.on("error", () => ask.socket.destroy());
    onward.on("response", async (got) => {
      const whole = await bytes(got).catch(() => undefined);
      const then = ask.method === "POST" ? lose : undefined;
      if (then) {
        lose = undefined;
        out.lost++;
        await then();
      }
      if (then || whole === undefined) return ask.socket.destroy();
      answer.writeHead(got.statusCode, { ...got.headers, "content-length": whole.length });
      answer.end(whole);
    });
    onward.end(body);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const out = {
    url: `http://127.0.0.1:${proxy.address().port}`,
    lost: 0,
    lose: (then = async () => {}) => (lose = then),
    stop: () => proxy.close(),
  };
  return out;
}

async function bytes(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}
