// A run of @openai/agents whose history is a session of Turnledger; the model is the one that the server has.
import { Agent, OpenAIResponsesModel, Runner } from "@openai/agents";
import { Turnledger } from "@turnledger/client";
import { TurnledgerSession } from "@turnledger/client/agents";
import OpenAI from "openai";

const url = process.env.TURNLEDGER_URL ?? "http://127.0.0.1:8480";
const key = process.env.TURNLEDGER_KEY ?? "none";
const session = new TurnledgerSession({ client: new Turnledger({ url, key }) });
const model = new OpenAIResponsesModel(new OpenAI({ baseURL: `${url}/v1`, apiKey: key }), "any");
const agent = new Agent({ name: "Fitter", model, modelSettings: { store: false } });
const runner = new Runner({ tracingDisabled: true });
for (const question of ["Which gas?", "How much?"]) {
  const { finalOutput } = await runner.run(agent, question, { session });
  console.log(finalOutput);
}
console.log(`items: ${(await session.getItems()).length}`);
