// The Agents SDK: two runs with a tool, whose history is a conversation in Turnledger.
//   npm install openai @openai/agents zod
//   OPENAI_BASE_URL=http://127.0.0.1:8480/v1 OPENAI_API_KEY=$TURNLEDGER_KEY node agent.mjs
import { Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

const client = new OpenAI();
const [model] = (await client.models.list()).data;
const agent = new Agent({
  name: "Forecaster",
  instructions: "Tell the weather.",
  model: new OpenAIResponsesModel(client, model.id),
  tools: [tool({
    name: "weather", description: "The weather of a city.", parameters: z.object({ city: z.string() }),
    execute: async () => "sunny",
  })],
});
const session = new OpenAIConversationsSession({ client });
const runner = new Runner({ tracingDisabled: true }); // traces would go to OpenAI

for (const question of ["Łódź", "And tomorrow?"]) {
  const { finalOutput } = await runner.run(agent, question, { session });
  console.log(`${question}: ${finalOutput}`);
}
const items = await session.getItems();
console.log(`items: ${items.map((item) => item.type ?? "message").join(", ")}`);

await session.popItem(); // takes the last answer back
console.log(`after popItem: ${(await session.getItems()).length}`);
await session.clearSession(); // erases the conversation
