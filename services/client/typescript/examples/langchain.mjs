// A chain of LangChain whose history is a session of Turnledger. The model is a stand-in that counts its messages.
import { AIMessage } from "@langchain/core/messages";
import { ChatPromptTemplate, MessagesPlaceholder } from "@langchain/core/prompts";
import { RunnableLambda, RunnableWithMessageHistory } from "@langchain/core/runnables";
import { Turnledger } from "@turnledger/client";
import { TurnledgerChatMessageHistory } from "@turnledger/client/langchain";

const url = process.env.TURNLEDGER_URL ?? "http://127.0.0.1:8480";
const client = new Turnledger({ url, key: process.env.TURNLEDGER_KEY });
const prompt = ChatPromptTemplate.fromMessages([new MessagesPlaceholder("history"), ["human", "{input}"]]);
const model = RunnableLambda.from((value) => new AIMessage(`I see ${value.toChatMessages().length} messages.`));
const chain = new RunnableWithMessageHistory({
  runnable: prompt.pipe(model), inputMessagesKey: "input", historyMessagesKey: "history",
  getMessageHistory: (session_id) => new TurnledgerChatMessageHistory({ client, session_id }),
});
const config = { configurable: { sessionId: `example-${Date.now()}` } };
for (const input of ["Which gas?", "How much?"]) console.log((await chain.invoke({ input }, config)).text);
