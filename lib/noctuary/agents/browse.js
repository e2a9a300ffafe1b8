// The page of `noctuary browse`. Every text of a memory becomes a text node, never HTML.
"use strict";

const TYPING_MS = 150; // after the last letter before it asks
const WALK = 3; // hops of a timeline in each direction
const $ = (id) => document.getElementById(id);
const [list, detail, query, wing] = ["list", "detail", "query", "wing"].map($);

/** Return an element; strings among its children become text. */
function make(tag, told = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(told)) {
    if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== ""));
  return made;
}

function ask(name, told = {}, signal = undefined) {
  const given = Object.entries(told).filter(([, value]) => value !== undefined && value !== "");
  return load(`api/${name}?${new URLSearchParams(given)}`, { signal });
}

/** Change something; what is sent are texts. */
function change(name, told) {
  return load(`api/${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(told) });
}

async function load(address, how) {
  let answer;
  try {
    answer = await fetch(address, how);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("noctuary browse does not answer any more: start it again");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// Where one is: all of it is in the address behind the #.

function here() {
  const [path, told] = location.hash.replace(/^#\/?/, "").split("?");
  return { path, ...Object.fromEntries(new URLSearchParams(told)) };
}

function link(path, told = {}) {
  const given = Object.entries(told).filter(([, value]) => value !== undefined && value !== "");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

const searched = () => ({ q: here().q, wing: here().wing });
const toMemory = (id) => link("memory", { id, ...searched() });
const toConcept = (name) => link("concept", { name, ...searched() });

// Small parts.

/** Return when a memory is of: the minute (UTC), or the day alone where its source tells no more. */
function when(moment) {
  if (!moment) return "undated";
  const [date, time] = [moment.slice(0, 10), moment.slice(11, 16)];
  return time && moment.slice(11, 19) !== "00:00:00" ? `${date} ${time}` : date;
}

const number = (n) => n.toLocaleString("en");
const spoken = (name) => name.replaceAll("_", " ");
const signed = (x) => `${x < 0 ? "\u2212" : "+"}${Math.abs(x).toFixed(3)}`;
const warning = (...said) => make("p", { class: "warning", role: "alert" }, ...said);
const note = (...said) => make("p", { class: "note" }, ...said);
const memoryLink = (id, ...said) => make("a", { href: toMemory(id) }, ...(said.length ? said : [`[${id}]`]));
const chip = (href, name, count) => make("a", { class: "chip", href }, make("bdi", {}, name), count === undefined ? "" : make("b", {}, number(count)));
const conceptLink = (name, count) => chip(toConcept(name), name, count);
const counted = (n, names) => `${number(n)} ${n === 1 ? names.replace(/ies$/, "y").replace(/s$/, "") : names}`;

/** Return elements with commas between them. */
const commas = (items) => items.flatMap((item, i) => (i ? [", ", item] : [item]));

function place(memory) {
  const where = [memory.wing, memory.room].filter(Boolean).join("/");
  return [`[${memory.id}]`, when(memory.created_at), where, memory.category, memory.kind === "summary" ? "summary" : ""]
    .filter(Boolean).join(" \u00b7 ");
}

function table(columns, rows) {
  const cells = (row) => row.map((cell, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, cell));
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, columns.map((column) => make("th", { scope: "col" }, column)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, cells(row))))));
}

function facts(told) {
  const rows = Object.entries(told).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  return make("dl", { class: "facts" },
    rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// The list: answers to a question, or the newest memories.

function hit(memory) {
  const steps = (memory.score_events || []).filter((step) => Math.abs(step.delta) >= 0.0005);
  const newer = memory.annotations?.superseded_by;
  const score = make("span", { class: "score" });
  if (memory.final_score !== undefined) {
    score.append(memory.final_score.toFixed(3));
    score.style.setProperty("--share", `${Math.round(memory.final_score * 100)}%`);
  }
  return make("li", {}, make("a", { class: "hit", href: toMemory(memory.id) },
    make("span", { class: "place" }, memory.final_score === undefined ? "" : score, place(memory),
      newer === undefined ? "" : make("strong", {}, ` superseded by [${newer}]`)),
    make("span", { class: "text" }, memory.content, memory.truncated ? " \u2026" : ""),
    steps.length ? make("span", { class: "steps" }, steps.map((step) =>
      make("span", { title: step.reason }, `${spoken(step.phase)} ${signed(step.delta)}`))) : ""));
}

function answerLines(found) {
  const { answerability: sure, memories } = found;
  const lines = found.warnings.map((w) => warning(`${w.code}: ${w.message}`));
  if (sure?.abstain) lines.push(warning("Probably none of these answers the question."));
  const where = here().wing ? ` in ${here().wing}` : "";
  const ms = Math.round((found.phase_timing_ms?.total ?? 0));
  lines.push(note(memories.length ? `${counted(memories.length, "memories")}${where} in ${ms} ms` : `Nothing was found${where}.`));
  return lines;
}

/** Return the form that asks why one memory did not come back. */
function whyForm() {
  const id = make("input", { name: "id", placeholder: "its id", "aria-label": "Id of the missing memory", maxlength: 200, autocomplete: "off" });
  const form = make("form", { class: "why" }, "One is missing? ", id, " ", make("button", {}, "Why?"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (id.value.trim()) location.hash = toMemory(id.value.trim());
  });
  return form;
}

async function showAnswers(told, signal) {
  const found = await ask("recall", { ...told, k: 20 }, signal);
  return [...answerLines(found), make("ol", {}, found.memories.map(hit)), whyForm()];
}

async function showNewest(told, signal) {
  const [state, found] = await Promise.all([ask("status", {}, signal), ask("newest", told, signal)]);
  const { counts, warnings } = state;
  const known = Object.entries(counts).map(([name, n]) => counted(n, name)).join(", ");
  const hits = make("ol", {}, found.memories.map(hit));
  const more = make("button", { class: "more" }, "Older ones");
  const mark = (left) => { more.hidden = left === 0; };
  more.addEventListener("click", async () => {
    const last = found.memories[found.memories.length - 1];
    const next = await ask("newest", { ...told, after: last.id });
    found.memories.push(...next.memories);
    hits.append(...next.memories.map(hit));
    mark(next.left);
  });
  mark(found.left);
  return [
    ...warnings.map((w) => warning(`${w.code}: ${w.message}`)),
    told.wing ? note(`${counted(found.total, "memories")} in ${told.wing}, newest first`) : note(known),
    told.wing ? "" : make("ul", { class: "wings" }, Object.entries(state.wings).map(([name, n]) =>
      make("li", {}, chip(link("", { wing: name }), name, n)))),
    hits, more,
  ];
}

let listed; // what the list shows, as told
let listing = new AbortController();

async function showList() {
  const told = searched();
  const key = JSON.stringify(told);
  if (key === listed) return markOpened();
  listed = key;
  listing.abort();
  listing = new AbortController();
  const { signal } = listing;
  try {
    const shown = await (told.q ? showAnswers(told, signal) : showNewest(told, signal));
    if (!signal.aborted) list.replaceChildren(...shown.filter(Boolean));
  } catch (error) {
    if (signal.aborted) return;
    listed = undefined;
    list.replaceChildren(warning(error.message));
  }
  markOpened();
}

function markOpened() {
  const opened = location.hash;
  for (const one of list.querySelectorAll(".hit")) {
    if (one.getAttribute("href") === opened) one.setAttribute("aria-current", "true");
    else one.removeAttribute("aria-current");
  }
}

// What may be done with one memory: buttons with a key each, below them a form or what came of it.

const ACTIONS = {
  confirm: ["k", "Still true"], replace: ["r", "Replace"], end: ["n", "No longer true"],
  reach: ["e", "Reach"], forget: ["f", "Forget"], skip: ["s", "Skip"],
};
const REACHES = { "": "as its words say", "reach:everywhere": "every project", "reach:project": "its own project" };
const HELP = [["/", "ask"], ["\u2191", ""], ["\u2193", "choose"], ["Enter", "open"], ["Esc", "back"]];
let leave; // closes the form that is open
let said = []; // of the last change, for the page that is shown after it
const backLink = () => make("p", { class: "back" }, make("a", { href: link("", searched()) }, "\u2190 back to the list"));

function takeSaid() {
  const parts = said.splice(0);
  return parts.length ? [make("div", { class: "said", role: "status" }, parts)] : [];
}

/** Show a page, and in the help line what its keys do. */
function fill(parts) {
  detail.replaceChildren(...parts.filter(Boolean));
  const shown = [...detail.querySelectorAll(".actions button")].map((one) => [one.getAttribute("aria-keyshortcuts"), one.firstChild.data.toLowerCase()]);
  document.querySelector("footer").replaceChildren(...[...HELP, ...shown].flatMap(([key, does]) => [make("kbd", {}, key), ` ${does} `]));
}

/** Return the buttons for a memory; `after` takes what to say of a change, and the id to show: null for none. */
function actionParts(item, state, after, skip) {
  const id = String(item.id); // numbers are ids too
  const [below, trouble] = [make("div"), make("div")];
  let isBusy = false;
  const run = async (work) => {
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    await work().catch((error) => trouble.replaceChildren(warning(error.message)));
    isBusy = false;
  };
  const done = (what, next) => below.isConnected && after(what, next); // not on the page that came meanwhile
  const send = (name, told, what) => run(() => change(name, { id, ...told }).then(() => done([what])));
  const close = () => { below.replaceChildren(); leave = undefined; };
  const open = (button, title, parts, work) => {
    const cancel = make("button", { type: "button" }, "Cancel", make("kbd", {}, "Esc"));
    const form = make("form", { class: "act", "aria-label": title }, parts, make("p", {}, make("button", {}, title), " ", cancel));
    leave = () => { close(); button.focus(); };
    cancel.addEventListener("click", leave);
    form.addEventListener("submit", (event) => { event.preventDefault(); work(); });
    form.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.requestSubmit());
    below.replaceChildren(form);
    if (!below.isConnected) leave = undefined;
    form.querySelector("textarea, select, button").focus();
  };
  const does = {
    confirm: () => send("confirm", {}, "Noted: it still holds."),
    end: () => (state.has_ended ? send("end", { undo: "yes" }, "It holds again.")
      : send("end", {}, "It has ended: only a recall with an earlier date finds it.")),
    reach: (button) => {
      const choice = make("select", { "aria-label": "Reach" }, Object.entries(REACHES).map(([value, name]) => make("option", { value }, name)));
      choice.value = state.reach;
      open(button, "Set", [make("label", {}, "It holds in ", choice)], () => send("reach", { reach: choice.value }, `It holds in ${REACHES[choice.value]}.`));
    },
    replace: (button) => {
      const text = make("textarea", { rows: 4, maxlength: 1_000_000, "aria-label": "What holds now" });
      text.value = item.content;
      open(button, "Keep", [text, note("It takes over wing, room and tags. Ctrl+Enter keeps it.")], () => run(async () => {
        if (text.value.trim() === item.content.trim()) throw new Error("the text is the same: change it first");
        const kept = await change("replace", { id, text: text.value });
        done(["Kept as ", memoryLink(kept.id), kept.note ? `; ${kept.note}.` : "; the graph knows it after the next night.",
          ...kept.similar.flatMap((one) => [" Nearly the same: ", memoryLink(one.id), "."])], kept.recallable ? kept.id : undefined);
      }));
    },
    forget: (button) => run(async () => {
      const plan = await change("forget", { id });
      if (!plan.token) throw new Error(plan.message);
      open(button, "Forget for good", planParts(plan), () => run(async () => done(receiptParts(id, await change("forget", { id, token: plan.token })), null)));
    }),
    skip,
  };
  const buttons = [...state.actions, ...(skip ? ["skip"] : [])].map((name) => {
    const [key, title] = ACTIONS[name];
    const button = make("button", { type: "button", "aria-keyshortcuts": key }, name === "end" && state.has_ended ? "True again" : title, make("kbd", {}, key));
    button.addEventListener("click", () => { close(); does[name](button); });
    return button;
  });
  return buttons.length ? [make("div", { class: "actions", role: "group", "aria-label": "Change this memory" }, buttons), below, trouble] : [];
}

/** Return what would be forgotten, and from where. */
function planParts(plan) {
  const rows = plan.memories.map((m) => {
    const from = [...m.places, ...(m.snapshots ? [counted(m.snapshots, "snapshots")] : [])];
    return make("li", {}, note(`[${m.id}] ${when(m.created_at)} \u00b7 in ${from.join(", ")}`), m.content);
  });
  const summaries = plan.summaries ? `, and ${counted(plan.summaries, "summaries")} made again without it` : "";
  return [make("p", {}, make("strong", {}, `${counted(rows.length, "memories")} would be forgotten${summaries}. This cannot be undone.`)),
    make("ol", { class: "line plan" }, rows), plan.warnings.map((w) => warning(w))];
}

/** Return what was done; as long as the night has to purge it, with a button that runs one. */
function receiptParts(id, done) {
  const removed = Object.entries(done.removed).map(([where, n]) => note(`${counted(n, "rows")} deleted: ${where}`));
  const parts = make("div", {}, make("h2", {}, done.receipt ? "Receipt" : "Hidden"), make("p", {}, `${done.message}.`), removed, done.warnings.map((w) => warning(w)));
  if (done.receipt || !done.can_purge) return [parts];
  const purge = make("button", {}, "Purge now: run a night");
  purge.addEventListener("click", () => {
    purge.replaceWith("A night runs \u2026");
    change("forget", { id })
      .then(({ token, message }) => (token ? change("forget", { id, token, night: "yes" }) : Promise.reject(new Error(message))))
      .then((purged) => parts.replaceWith(...receiptParts(id, purged)), (error) => parts.append(warning(error.message)));
  });
  parts.append(purge);
  return [parts];
}

/** Show what came of a change: the memory, the one in its place, or (null) none any more. */
function showChanged(id, what, next = id) {
  [said, listed, leave] = [what, undefined, undefined];
  if (next === null) {
    showList();
    fill([backLink(), make("h1", {}, `Memory [${id}]`), ...takeSaid()]);
    detail.querySelector("button")?.focus();
  } else if (String(next) === id) show();
  else location.hash = toMemory(next);
}

// Memories that nobody has checked for long, one after the other.

let skipped = [];

async function showReview(at, signal) {
  const found = await ask("aged", {}, signal);
  const left = found.memories.filter((one) => !skipped.includes(one.id));
  const parts = [make("h1", {}, "Review"), ...takeSaid()];
  if (!left.length) {
    const rest = found.total ? `${counted(found.total, "memories")} left for another time.` : "Nothing to review: every memory was checked lately.";
    skipped = [];
    return [...parts, note(found.is_own ? rest : "This store holds nothing that `noctuary remember` kept.")];
  }
  const [one] = left;
  const [item, state] = await Promise.all(["item", "actions"].map((name) => ask(name, { id: one.id }, signal)));
  const next = (what) => { [said, listed] = [what, undefined]; show(); };
  const skip = () => { skipped.push(one.id); show(); };
  parts.push(note(`${number(found.total - skipped.length)} left \u00b7 ${one.checked_by} ${when(one.checked_at?.slice(0, 10))}${one.valid_until ? `, ends ${when(one.valid_until)}` : ""}`));
  return [...parts, ...memoryParts({ ...item, ...state }, actionParts(item, state, next, skip))];
}

// One memory: all of it, why it came back, what was before and after, what it is connected with.

async function showMemory({ id, q, wing: narrowed }, signal) {
  const asked = [
    ask("item", { id }, signal),
    ask("actions", { id }, signal),
    ask("related", { id }, signal),
    q ? ask("why", { id, q, wing: narrowed, k: 20 }, signal) : undefined,
  ];
  const [item, state, related, why] = await Promise.allSettled(asked);
  if (signal.aborted) return [];
  const parts = [make("h1", {}, `Memory [${id}]`), ...takeSaid()];
  if (item.status === "rejected") parts.push(...(parts.length > 1 ? [] : [warning(item.reason.message)]));
  else if (state.status === "rejected" || item.value.kind === "summary") parts.push(...memoryParts(item.value));
  else parts.push(...memoryParts({ ...item.value, ...state.value }, actionParts(item.value, state.value, (what, next) => showChanged(id, what, next))));
  if (why.status === "rejected" && item.status === "rejected") return parts; // both say the same
  if (why.status === "rejected") parts.push(warning(why.reason.message));
  else if (why.value) parts.push(...whyParts(why.value, q));
  // The graph knows what the last night read.
  if (item.status === "rejected" || related.status === "rejected") return parts;
  if (item.value.kind === "summary") parts.push(...await clusterParts(id, signal));
  else parts.push(...await timelineParts(item.value, signal));
  return [...parts, ...relatedParts(related.value)];
}

function memoryParts(item, actions = []) {
  const notes = [];
  const newer = item.superseded_by ?? item.replaced_by;
  if (newer !== undefined) notes.push(warning("A newer memory replaces it: ", memoryLink(newer)));
  if (item.has_ended) notes.push(warning(`It ended: ${when(item.valid_until)}.`));
  if (item.archived_behind !== undefined) notes.push(warning("It is archived; a recall returns ", memoryLink(item.archived_behind), " in its place."));
  const told = {
    created: when(item.created_at), wing: item.wing, room: item.room,
    category: item.category, importance: item.importance.toFixed(2), tags: item.tags.join(", "),
    session: item.session_id, user: item.user, "written by": item.written_by,
    confirmed: item.confirmed_at && when(item.confirmed_at), ends: item.has_ended ? undefined : item.valid_until && when(item.valid_until),
    reach: item.reach && REACHES[item.reach],
    summary: item.summarized_by === undefined ? undefined : memoryLink(item.summarized_by),
  };
  return [...notes, make("div", { class: "whole" }, item.content), ...actions, facts(told)];
}

function whyParts(why, q) {
  const parts = [make("h2", {}, "Why"), note("For \u201c", q, "\u201d")];
  parts.push(...why.sentences.map((sentence) => make("p", {}, sentence)));
  const other = why.facts?.last_returned;
  const columns = other === undefined ? ["step", "score", "reason"] : ["step", "score", `of [${other}]`, "reason"];
  const rows = (why.steps || []).map((step) => [
    spoken(step.phase), signed(step.delta),
    ...(other === undefined ? [] : [signed(step.delta_of_last_returned)]), step.reason || "",
  ]);
  if (rows.length) parts.push(table(columns, rows));
  return parts;
}

async function clusterParts(id, signal) {
  const whole = await ask("cluster", { id }, signal);
  const rows = whole.sources.map((m) => make("li", {}, note(memoryLink(m.id), " ", when(m.created_at)), make("div", { class: "whole" }, m.content)));
  return [make("h2", {}, `Stands for ${counted(rows.length, "memories")}`), make("ol", { class: "line" }, rows)];
}

/** Return the memories that a relation leads to, nearest first, some hops far. */
async function walk(id, relation, signal) {
  const found = [];
  let from = [id];
  for (let hop = 0; hop < WALK && from.length; hop += 1) {
    const answers = await Promise.all(from.map((one) => ask("related", { id: one }, signal)));
    const next = answers.flatMap((answer) => answer.memories)
      .filter((m) => m.relation === relation && m.direction === "out")
      .filter((m) => m.id !== id && !found.some((known) => known.id === m.id));
    found.push(...next);
    from = next.map((m) => m.id);
  }
  return found;
}

async function timelineParts(item, signal) {
  const names = ["supersedes", "previous_turn", "next_turn", "superseded_by"];
  const [older, before, after, newer] = await Promise.all(names.map((name) => walk(item.id, name, signal)));
  if (!older.length && !before.length && !after.length && !newer.length) return [];
  const rows = (memories, said) => memories.map((m) => make("li", {},
    note(memoryLink(m.id), ` ${when(m.created_at)} \u00b7 ${said}`), m.line));
  return [make("h2", {}, "Before and after"), make("ol", { class: "line" },
    rows(older.reverse(), "replaced"), rows(before.reverse(), "said before"),
    make("li", { "aria-current": "true" }, note(`[${item.id}] ${when(item.created_at)} \u00b7 this one`)),
    rows(after, "said after"), rows(newer, "replaces it"))];
}

const IN_TIME = ["supersedes", "superseded_by", "previous_turn", "next_turn", "summarizes"];

function relatedParts(related) {
  const parts = [];
  if (related.neighbours.length) {
    parts.push(make("h2", {}, "Concepts"), make("p", { class: "chips" },
      related.neighbours.map((c) => conceptLink(c.name, c.shared))));
  }
  const others = related.memories.filter((m) => !IN_TIME.includes(m.relation));
  if (others.length) {
    parts.push(make("h2", {}, "Connected memories"), make("ul", { class: "line" }, others.map((m) => make("li", {},
      note(memoryLink(m.id), ` ${when(m.created_at)}`, m.concept ? ` \u00b7 ${m.concept}` : "", m.weight === undefined ? "" : ` \u00b7 ${m.weight.toFixed(2)}`),
      m.line))));
  }
  const more = related.totals.memories - related.memories.length;
  if (more > 0) parts.push(note(`and ${number(more)} more`));
  return parts;
}

// Concepts.

async function showConcept({ name }, signal) {
  const found = await ask("related", { concept: name }, signal);
  const { concept, memories, relations, neighbours, totals } = found;
  const heading = (title, shown, total) => make("h2", {}, `${title} (${shown < total ? `${number(shown)} of ` : ""}${number(total)})`);
  const parts = [make("h1", {}, concept.name)];
  if (concept.aliases.length) parts.push(note(`also: ${concept.aliases.join(", ")}`));
  if (relations.length) {
    parts.push(heading("Stated relations", relations.length, totals.relations), make("ul", { class: "line" },
      relations.map((r) => make("li", { class: r.open ? undefined : "ended" },
        conceptLink(r.direction === "out" ? concept.name : r.other), ` ${spoken(r.relation)} `,
        conceptLink(r.direction === "out" ? r.other : concept.name),
        note(r.open ? `since ${when(r.valid_from)}` : `${when(r.valid_from)} to ${when(r.valid_to)}`, "; said by ",
          ...commas(r.evidence.map((id) => memoryLink(id))))))));
  }
  if (neighbours.length) {
    parts.push(heading("In the same memories", neighbours.length, totals.neighbours), make("p", { class: "chips" },
      neighbours.map((c) => conceptLink(c.name, c.shared))));
  }
  parts.push(heading("Memories", memories.length, totals.memories), make("ul", { class: "line" },
    memories.map((m) => make("li", {}, note(memoryLink(m.id), ` ${when(m.created_at)} \u00b7 ${m.role}`,
      m.replaced_by === undefined ? "" : make("span", {}, " \u00b7 superseded by ", memoryLink(m.replaced_by))), m.line))));
  return parts;
}

async function showConcepts(_, signal) {
  const { concepts } = await ask("concepts", {}, signal);
  const name = make("input", { type: "search", placeholder: "Name of a person, thing or topic", "aria-label": "Name of a concept", maxlength: 200, autocomplete: "off" });
  const form = make("form", { class: "why" }, name, " ", make("button", {}, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (name.value.trim()) location.hash = link("concept", { name: name.value.trim() });
  });
  const rows = concepts.map((c) => [
    make("a", { href: link("concept", { name: c.name }) }, c.name), c.kind, number(c.memories), number(c.relations), number(c.steps),
  ]);
  return [make("h1", {}, "Concepts"), form, note(`The ${rows.length} with most connections`),
    table(["concept", "kind", "memories", "relations", "steps"], rows)];
}

// The last night: what serves since then, and its own report.

async function showNight(_, signal) {
  const [state, night] = await Promise.all([ask("status", {}, signal), ask("night", {}, signal)]);
  const hours = state.last_night_hours;
  const parts = [make("h1", {}, "Last night"), ...state.warnings.map((w) => warning(`${w.code}: ${w.message}`)),
    facts({
      "went through": hours === undefined ? "never" : hours < 1 ? `${Math.round(hours * 60)} min ago` : `${hours.toFixed(1)} h ago`,
      "snapshot": state.snapshot_id, "built": state.built_at?.slice(0, 16).replace("T", " "), "encoder": state.encoder || "none",
      "store": state.store, "user": state.user, "wing": state.wing,
      ...Object.fromEntries(Object.entries(state.counts).map(([name, n]) => [name, number(n)])),
    })];
  if (night.is_shown) {
    parts.push(make("p", {}, make("a", { href: "report", target: "_blank", rel: "noopener" }, "The night\u2019s report"), " on its own"),
      make("iframe", { src: "report", title: "The night\u2019s report", sandbox: "" }));
  } else if (night.path) {
    parts.push(note(`Its report is about more memories than this page may show: ${night.path}`));
  } else parts.push(note("There is no report yet."));
  return parts;
}

// What the hooks of this machine's agents added to prompts.

async function showTokens(_, signal) {
  const { days, sessions } = await ask("tokens", {}, signal);
  const parts = [make("h1", {}, "Tokens"), note("What hooks added to prompts on this machine, estimated; kept for 30 days after a session\u2019s last prompt.")];
  if (!days.length) return [...parts, note("Nothing was added yet.")];
  const who = (one) => [one.agent, one.session_id?.slice(0, 8), one.cwd?.split("/").pop()].filter(Boolean).join(" \u00b7 ") || "not ended yet";
  return [...parts, table(["day (UTC)", "tokens", "sessions"], days.map((one) => [one.day, number(one.tokens), number(one.sessions)])),
    make("h2", {}, "Sessions"), table(["session", "tokens", "last"], sessions.map((one) => [who(one), number(one.tokens), one.last_day]))];
}

// Moving about.

const PAGES = { memory: showMemory, review: showReview, concept: showConcept, concepts: showConcepts, night: showNight, tokens: showTokens };
const ALONE = ["review", "concepts", "concept", "night", "tokens"]; // without the list beside them
let opening = new AbortController();

async function show() {
  const at = here();
  const page = PAGES[at.path];
  const isAlone = ALONE.includes(at.path) && !(at.path === "concept" && at.q);
  document.body.dataset.pane = isAlone ? "page" : page ? "both" : "list";
  const nav = { memory: "#/", concept: "#/concepts" }[at.path] || `#/${at.path}`;
  for (const one of document.querySelectorAll("nav a")) {
    if (one.getAttribute("href") === nav) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  if (document.activeElement !== query) query.value = at.q || "";
  wing.value = at.wing || "";
  opening.abort();
  opening = new AbortController();
  leave = undefined;
  const { signal } = opening;
  if (!isAlone) showList();
  if (!page) return fill([]);
  try {
    const parts = await page(at, signal);
    if (signal.aborted) return;
    fill([page === showMemory || page === showConcept ? backLink() : "", ...parts]);
  } catch (error) {
    if (signal.aborted) return;
    fill([warning(error.message)]);
  }
  detail.scrollTop = 0;
  if (window.matchMedia("(max-width: 60rem)").matches) window.scrollTo(0, 0);
}

function search() {
  const told = { q: query.value.trim(), wing: wing.value };
  history.replaceState(null, "", link("", told));
  show();
}

let typing;
query.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, TYPING_MS);
});
wing.addEventListener("change", search);
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  search();
});

function move(by) {
  const hits = [...list.querySelectorAll(".hit")];
  const at = hits.indexOf(document.activeElement);
  if (at + by < 0) query.focus();
  else hits[Math.min(at + by, hits.length - 1)]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const isTyping = event.target.matches("input, select, textarea");
  // Not where another memory of the list is chosen than the opened one.
  const action = !isTyping && !event.target.matches(".hit:not([aria-current])") && /^[a-z]$/.test(event.key)
    && detail.querySelector(`.actions [aria-keyshortcuts="${event.key}"]`);
  if (event.key === "/" && !isTyping) {
    query.focus();
    query.select();
  } else if (event.key === "ArrowDown" && (!isTyping || event.target === query)) move(1);
  else if (event.key === "ArrowUp" && !isTyping) move(-1);
  else if (event.key === "Enter" && event.target === query) {
    // The browser asks again; with an answer already there, it opens the first one.
    if (listed !== JSON.stringify({ ...searched(), q: query.value.trim() || undefined })) return;
    const first = list.querySelector(".hit");
    first?.focus(); // so that the next key is for the memory
    first?.click();
  } else if (event.key === "Escape" && leave) leave();
  else if (event.key === "Escape") {
    if (PAGES[here().path]) location.hash = link("", searched());
    else if (query.value) {
      query.value = "";
      search();
    }
    query.focus();
  } else if (action) action.click();
  else return;
  event.preventDefault();
});

window.addEventListener("hashchange", show);

wing.append(make("option", { value: "" }, "all wings"));
ask("status").then((state) => {
  if (state.store) document.title = `${state.store.split("/").pop()} \u00b7 noctuary`;
  wing.append(...Object.entries(state.wings).map(([name, n]) => make("option", { value: name }, `${name} (${number(n)})`)));
  wing.value = here().wing || "";
  wing.hidden = wing.length < 3;
}, () => undefined);
show();
if (here().path === "") query.focus();
