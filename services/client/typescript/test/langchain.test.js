// TurnledgerChatMessageHistory: what is added comes back, in chains, too.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { ChatPromptTemplate, MessagesPlaceholder } from "@langchain/core/prompts";
import { RunnableLambda, RunnableWithMessageHistory } from "@langchain/core/runnables";
import { Turnledger } from "@turnledger/client";
import { TurnledgerChatMessageHistory } from "@turnledger/client/langchain";
import { start } from "../../../../deploy/clients/server.js";

let server, client;
before(async () => {
  server = await start();
  client = new Turnledger({ url: server.url });
});
after(() => server?.stop());

const shown = (messages) => messages.map((one) => {
  const { type, data } = JSON.parse(JSON.stringify(one.toDict()));
  return [type, data.content, data.id, data.name];
});

test("messages come back as they were, with calls, names and ids", async () => {
  const history = new TurnledgerChatMessageHistory({ client, session_id: "l1" });
  assert.deepEqual(await history.getMessages(), []);
  const calls = [{ id: "c1", name: "weather", args: { city: "Ulm" } }, { id: "c2", name: "time", args: {} }];
  const called = (message) => message.tool_calls.map(({ id, name, args }) => ({ id, name, args }));
  const all = [
    new SystemMessage("Be brief."), new HumanMessage({ content: "Hello", name: "ann", id: "h1" }),
    new AIMessage({ content: "Let me see.", tool_calls: calls }),
    new ToolMessage({ content: "sunny", tool_call_id: "c1", name: "weather" }),
    new ToolMessage({ content: "noon", tool_call_id: "c2" }), new AIMessage("Sunny at noon."),
    new HumanMessage({ content: [{ type: "text", text: "Thanks" }] }),
    new AIMessage({ content: "", tool_calls: calls }),
  ];
  await history.addMessages(all);
  const back = await history.getMessages();
  assert.deepEqual(shown(back), shown(all));
  assert.deepEqual(called(back[2]), calls);
  assert.deepEqual(called(back[7]), calls);
  assert.equal(back[3].tool_call_id, "c1");
});

test("a chain with its history; clear begins anew, and native calls see the turns", async () => {
  const prompt = ChatPromptTemplate.fromMessages([new MessagesPlaceholder("history"), ["human", "{input}"]]);
  const model = RunnableLambda.from((value) => new AIMessage(`${value.toChatMessages().length} messages`));
  const chain = new RunnableWithMessageHistory({
    runnable: prompt.pipe(model), inputMessagesKey: "input", historyMessagesKey: "history",
    getMessageHistory: (session_id) => new TurnledgerChatMessageHistory({ client, session_id }),
  });
  const config = { configurable: { sessionId: "l2" } };
  assert.equal((await chain.invoke({ input: "Hello" }, config)).text, "1 messages");
  assert.equal((await chain.invoke({ input: "And now?" }, config)).text, "3 messages");
  const { history } = await client.sessions.history({ session_id: "l2" });
  assert.deepEqual(history.map((one) => one.question_neutral), ["Hello", "And now?"]);
  await new TurnledgerChatMessageHistory({ client, session_id: "l2" }).clear();
  assert.equal((await chain.invoke({ input: "Again" }, config)).text, "1 messages");
});
