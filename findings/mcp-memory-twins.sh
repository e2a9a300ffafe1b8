#!/usr/bin/env bash
# The reference MCP memory server 2026.8.31 writes twins that it then cannot tell apart.
#
# Behaviour: (1) `create_entities` drops a name that is in the file, but not one that stands twice in the same call:
# two entities of one name are written. (2) `add_observations` likewise writes a text twice that one call holds twice,
# and `create_entities` keeps repeated texts. (3) Observations are added to the first of two twins only. (4) The last
# line has no line end, so that a line appended by another tool joins it.
# Good guess: the name is the entity's key, an observation is there once, and the file ends in a line end.
# Source: @modelcontextprotocol/server-memory 2026.8.31 (npm), dist/index.js `createEntities`, `addObservations`,
# `saveGraph`.
set -euo pipefail
version=2026.8.31
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . "@modelcontextprotocol/server-memory@$version"
export MEMORY_FILE_PATH="$folder/memory.jsonl"
cat > drive.mjs <<'NODE'
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const server = spawn("node", ["node_modules/@modelcontextprotocol/server-memory/dist/index.js"], { stdio: ["pipe", "pipe", "ignore"] });
const waiting = new Map();
createInterface({ input: server.stdout }).on("line", (line) => {
  const answer = JSON.parse(line);
  waiting.get(answer.id)?.(answer);
});
let last = 0;
const ask = (method, params) => new Promise((resolve) => {
  waiting.set(++last, resolve);
  server.stdin.write(JSON.stringify({ jsonrpc: "2.0", id: last, method, params }) + "\n");
});
const call = (name, args) => ask("tools/call", { name, arguments: args });
await ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "finding", version: "1" } });
server.stdin.write(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }) + "\n");
await call("create_entities", { entities: [
  { name: "Mill", entityType: "customer", observations: ["pays in spring", "pays in spring"] },
  { name: "Mill", entityType: "place", observations: ["lies at the brook"] },
] });
await call("add_observations", { observations: [{ entityName: "Mill", contents: ["grinds rye", "grinds rye"] }] });
server.kill();
NODE
node drive.mjs
echo "@modelcontextprotocol/server-memory $version wrote:"
cat memory.jsonl
echo
node - <<'NODE'
const text = require("node:fs").readFileSync("memory.jsonl", "utf8");
const mills = text.split("\n").map((line) => JSON.parse(line)).filter((item) => item.name === "Mill");
const same = mills.length === 2
  && JSON.stringify(mills[0].observations) === JSON.stringify(["pays in spring", "pays in spring", "grinds rye", "grinds rye"])
  && mills[1].observations.length === 1 && !text.endsWith("\n");
console.log(same ? "as described" : "CHANGED");
process.exit(same ? 0 : 1);
NODE
