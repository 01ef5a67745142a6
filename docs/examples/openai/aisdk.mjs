// Vercel's AI SDK: two steps with a tool, in a conversation in Turnledger.
//   npm install openai ai @ai-sdk/openai zod
//   OPENAI_BASE_URL=http://127.0.0.1:8480/v1 OPENAI_API_KEY=$TURNLEDGER_KEY node aisdk.mjs
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const client = new OpenAI();
const [model] = (await client.models.list()).data;
const { id } = await client.conversations.create();
const openai = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });

const { text, steps } = await generateText({
  model: openai.responses(model.id),
  prompt: "Łódź",
  tools: {
    weather: tool({
      description: "The weather of a city.", inputSchema: z.object({ city: z.string() }), execute: async () => "sunny",
    }),
  },
  stopWhen: stepCountIs(3),
  providerOptions: { openai: { conversation: id } },
});
console.log(`after ${steps.length} steps: ${text}`);
for await (const item of client.conversations.items.list(id, { order: "asc" })) console.log(item.type);
