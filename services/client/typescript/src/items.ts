import { segment, type CallOptions, type Sender } from "./send.js";

/** An item of a conversation, as the server keeps it. `client` is what an adapter keeps beside it. */
export interface Item {
  type: string;
  id?: string;
  client?: { id?: string; more?: true; rest?: Record<string, unknown>; operation?: Operation };
  [member: string]: unknown;
}

/** A change of history that replaced items; they count as gone from then on. */
export interface Operation {
  id: string;
  replaces: string[];
}

const itemsOfCall = 500;
const pageSize = 100;

/** The items of one session, by the Conversations routes. */
export class Items {
  constructor(readonly sender: Sender, readonly session: string, readonly options?: CallOptions) {}

  get #path() {
    return `/v1/conversations/${segment(this.session)}`;
  }

  /** Adds items, at most 500 in one step. The same key again adds nothing, and answers as the first time. */
  async add(items: Item[], key: string): Promise<Item[]> {
    const out: Item[] = [];
    for (let from = 0; from < items.length; from += itemsOfCall) {
      const body = { items: items.slice(from, from + itemsOfCall) };
      const headers = { "idempotency-key": from === 0 ? key : `${key}#${from}` };
      const path = `${this.#path}/items`;
      out.push(...(await this.sender.json<{ data: Item[] }>({ method: "POST", path, body, headers })).data);
    }
    return out;
  }

  /** Makes the session exist. */
  begin(): Promise<unknown> {
    const path = `/v1/sessions/${segment(this.session)}`;
    const body = { kind: "conversation", request_id: "turnledger-client" };
    return this.sender.json({ method: "PATCH", path, body });
  }

  /** The newest items, the newest first, page by page. A session that does not exist has none. */
  async *newest(): AsyncGenerator<Item> {
    const gone = new Set<string>();
    for (let after: string | undefined; ;) {
      const query = { order: "desc", limit: pageSize, after };
      const page = await this.sender
        .json<{ data: Item[]; has_more: boolean; last_id: string | null }>({
          method: "GET", path: `${this.#path}/items`, query,
        })
        .catch((error: { status?: number }) => {
          if (error.status === 404 && after === undefined) return { data: [], has_more: false, last_id: null };
          throw error;
        });
      for (const item of page.data) {
        for (const id of item.client?.operation?.replaces ?? []) gone.add(id);
        if (!gone.has(item.id ?? "")) yield item;
      }
      if (!page.has_more || page.last_id === null) return;
      after = page.last_id;
    }
  }

  async remove(id: string, key: string): Promise<void> {
    const path = `${this.#path}/items/${segment(id)}`;
    await this.sender.json({ method: "DELETE", path, headers: { "idempotency-key": key } });
  }

  reset(): Promise<unknown> {
    const path = `/v1/sessions/${segment(this.session)}/reset`;
    return this.sender.json({ method: "POST", path, body: {}, again: false });
  }

  erase(): Promise<{ receipt_id: string }> {
    return this.sender.json({ method: "DELETE", path: `/v1/sessions/${segment(this.session)}`, body: {} });
  }
}

/** The newest `limit` items, which come newest first, in the order of the log, without outputs whose call is older. */
export function windowOf(newestFirst: Item[], limit: number): Item[] {
  const all = newestFirst.slice(0, limit).reverse();
  const calls = new Set<unknown>();
  return all.filter((item) => {
    if (item.call_id === undefined) return true;
    if (!item.type.endsWith("_output")) calls.add(item.call_id);
    return calls.has(item.call_id);
  });
}
