// The openai package: a conversation, answers of the model in it, a tool, its items, and its end.
//   npm install openai
//   OPENAI_BASE_URL=http://127.0.0.1:8480/v1 OPENAI_API_KEY=$TURNLEDGER_KEY node conversation.mjs
import OpenAI from "openai";

const client = new OpenAI();
const [model] = (await client.models.list()).data;

// Made with items that are there already, as after a move from elsewhere.
const conversation = await client.conversations.create({
  metadata: { customer: "4711" },
  items: [
    { role: "user", content: "My boiler is a B20." },
    { role: "assistant", content: "Thank you, I have noted that." },
  ],
});

// An answer at once, and one as a stream. What is asked and answered becomes part of the conversation.
const answer = await client.responses.create({
  model: model.id, conversation: conversation.id, input: "Which gas does it need?",
});
console.log(`answer: ${answer.output_text}`);
const stream = await client.responses.create({
  model: model.id, conversation: conversation.id, input: "And how much of it?", stream: true,
});
let streamed = "";
for await (const event of stream) if (event.type === "response.output_text.delta") streamed += event.delta;
console.log(`streamed: ${streamed}`);

// A tool: the model asks for it, the program runs it, and the answer goes on in the same turn.
const tools = [{
  type: "function", name: "price", strict: false,
  parameters: { type: "object", properties: { fuel: { type: "string" } } },
}];
const asked = await client.responses.create({ model: model.id, conversation: conversation.id, input: "Propane", tools });
const outputs = asked.output
  .filter((item) => item.type === "function_call")
  .map((item) => ({ type: "function_call_output", call_id: item.call_id, output: "1.10 a litre" }));
const told = await client.responses.create({ model: model.id, conversation: conversation.id, input: outputs, tools });
console.log(`with a tool: ${told.output_text}`);

for await (const item of client.conversations.items.list(conversation.id, { order: "asc", limit: 4 })) {
  console.log(item.type === "message" ? `${item.role}: ${item.content[0].text}` : item.type);
}

const { deleted } = await client.conversations.delete(conversation.id); // erases it
console.log(`deleted: ${deleted}`);
