// Writes src/api.ts from the API's own description: npm run types [-- FILE or URL] [--stdout]
import { readFile, writeFile } from "node:fs/promises";

// What the client calls; their forms and all that these name are written.
const roots = [
  "Chat", "ChatBody", "Context", "ContextBody", "CorrectBody", "DescribeBody", "EraseBody", "Erased", "FinalizeBody",
  "ForkBody", "History", "Line", "LineBody", "LinkBody", "Listed", "Problem", "Receipt", "ResetBody", "Search",
  "SearchQuery", "Session", "SessionsQuery", "StartBody", "Stopped", "Token", "TokenInBody",
  "Turn", "Turns",
];

const where = process.argv.slice(2).find((word) => !word.startsWith("--")) ??
  new URL("../../../httpapi/v1/testdata/openapi.json", import.meta.url);
const text = /^https?:/.test(String(where)) ? await (await fetch(where)).text() : await readFile(where, "utf8");
const { schemas } = JSON.parse(text).components;
const out = ["// Made by `npm run types` from the API's /openapi.json: do not edit."];
const queue = [...roots];
const seen = new Set(queue);

function typeOf(schema, indent) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    if (!seen.has(name)) seen.add(name) && queue.push(name);
    return name;
  }
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  const types = [schema.type].flat();
  return types.map((type) => plain(type, schema, indent)).join(" | ");
}

function plain(type, schema, indent) {
  switch (type) {
    case "string": case "boolean": case "null": return type;
    case "integer": case "number": return "number";
    case "array": return `Array<${typeOf(schema.items ?? {}, indent)}>`;
    case "object":
      if (schema.properties) return `{\n${members(schema, `${indent}  `)}${indent}}`;
      return `Record<string, ${typeof schema.additionalProperties === "object"
        ? typeOf(schema.additionalProperties, indent) : "unknown"}>`;
    default: return "unknown";
  }
}

function members(schema, indent) {
  const required = new Set(schema.required);
  return Object.entries(schema.properties ?? {}).map(([name, of]) => {
    const note = of.description ? noted(of.description, indent) : "";
    return `${note}${indent}${name}${required.has(name) ? "" : "?"}: ${typeOf(of, indent)};\n`;
  }).join("");
}

function noted(text, indent) {
  const lines = [""];
  for (const word of text.replaceAll("*/", "* /").split(" ")) {
    if (lines.at(-1).length + word.length > 105) lines.push("");
    lines.push(`${lines.pop()} ${word}`);
  }
  return `${indent}/**${lines.join(`\n${indent} *`)} */\n`;
}

const written = [];
for (let name; (name = queue.shift());) {
  written.push([name, `export interface ${name} {\n${members(schemas[name], "  ")}}`]);
}
written.sort(([a], [b]) => (a < b ? -1 : 1));
const page = `${out.concat(written.map(([, one]) => one)).join("\n\n")}\n`;
if (process.argv.includes("--stdout")) process.stdout.write(page);
else await writeFile(new URL("../src/api.ts", import.meta.url), page);
