// Checks answers against OpenAI's own document, which is not in this repository: TURNLEDGER_TEST_OPENAPI names it.
// Without it the clients' own checks are all there is.
import { readFileSync } from "node:fs";
import Ajv from "ajv/dist/2020.js";

const file = process.env.TURNLEDGER_TEST_OPENAPI;
const document = file ? JSON.parse(readFileSync(file, "utf8")) : undefined;
const checks = new Map();

// checked is a fetch that notes in faults where an answer is not as the document says. count says how many were checked.
export function checked() {
  const check = async (url, init) => {
    const answer = await fetch(url, init);
    if (!document || !answer.ok) return answer;
    const path = new URL(url).pathname.replace(/^\/v1/, "");
    const method = (init?.method ?? "GET").toLowerCase();
    const kind = answer.headers.get("content-type").split(";")[0];
    const schema = schemaOf(method, path, kind);
    if (!schema) return answer;
    const text = await answer.text();
    const all = kind === "text/event-stream" ? blocks(text) : [JSON.parse(text)];
    for (const one of all) {
      check.faults.push(...faultsOf(schema, one, `${method} ${path}`));
      check.count++;
    }
    return new Response(text, { status: answer.status, headers: answer.headers });
  };
  check.count = 0;
  check.faults = [];
  check.complete = Boolean(document);
  return check;
}

function blocks(text) {
  return text
    .split("\n")
    .filter((line) => line.startsWith("data: "))
    .map((line) => JSON.parse(line.slice("data: ".length)));
}

function schemaOf(method, path, kind) {
  for (const [pattern, operations] of Object.entries(document.paths)) {
    const fits = new RegExp(`^${pattern.replace(/\{[^}]+\}/g, "[^/]+")}$`);
    const schema = operations[method]?.responses?.["200"]?.content?.[kind]?.schema;
    if (!pattern.includes("?") && schema && fits.test(path)) return schema;
  }
  return undefined;
}

function faultsOf(schema, value, where) {
  const key = JSON.stringify(schema);
  if (!checks.has(key)) {
    const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: false });
    checks.set(key, ajv.compile({ ...plain(schema), components: plain(document.components) }));
  }
  const check = checks.get(key);
  return check(value) ? [] : [`${where}: ${ajvWords(check.errors)}: ${JSON.stringify(value)}`];
}

const ajvWords = (errors) => errors.slice(-3).map((e) => `${e.instancePath} ${e.message}`).join("; ");

// plain leaves out what a validator takes for more than it is: the alternatives of the document overlap, since its
// discriminator is not a part of JSON Schema.
function plain(schema) {
  if (Array.isArray(schema)) return schema.map(plain);
  if (schema === null || typeof schema !== "object") return schema;
  const out = {};
  for (const [name, value] of Object.entries(schema)) {
    if (name === "discriminator" || name === "$recursiveRef" || name === "$recursiveAnchor") continue;
    out[name === "oneOf" ? "anyOf" : name] = plain(value);
  }
  // OpenAI's own server has null in these places, which the document does not say: a response without a user or, while
  // it has no answer, without a usage, and the first and last item of an empty list.
  const usage = out.properties?.usage;
  if (usage?.$ref?.endsWith("/ResponseUsage")) out.properties.usage = { anyOf: [usage, { type: "null" }] };
  for (const name of ["user", "first_id", "last_id"]) {
    const member = out.properties?.[name];
    if (member?.type === "string") member.type = ["string", "null"];
  }
  return out;
}
