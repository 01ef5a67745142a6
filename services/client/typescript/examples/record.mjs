// Records a turn, builds a prompt, and asks the configured model.
import { Turnledger } from "@turnledger/client";

const url = process.env.TURNLEDGER_URL ?? "http://127.0.0.1:8480";
const client = new Turnledger({ url, key: process.env.TURNLEDGER_KEY });
const session_id = `example-${Date.now()}`;
await client.turns.record({ session_id, question_neutral: "Which gas does it need?", answer_neutral: "Propane." });
const { messages } = await client.context.build({ session_id, message: "How much of it?" });
for (const { role, content } of messages) console.log(`${role}: ${content}`);
for await (const event of client.chat.stream({ thread_id: session_id, content: "How much of it?" })) {
  if (event.type === "done") console.log(`answer: ${event.content}`);
}
