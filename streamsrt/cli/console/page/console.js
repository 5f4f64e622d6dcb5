// The page: what the address names is asked for, drawn, and asked for again while the page is visible.
//
// 1. The address is the state: #/ all applications, #/app/NAME/VIEW one of them, #/letters/TOPIC dead letters.
// 2. Every text is set as text, never as markup: topics, keys and errors come from elsewhere.
// 3. What a person types and where they have scrolled stays when the page is drawn anew.

import { drawGraph } from "./graph.js";

const EVERY_MS = 2000, MOVES = 6;
const VIEWS = ["topology", "tasks", "members", "topics", "stores", "upgrade", "instances"];
const main = document.getElementById("main"), tabs = document.getElementById("tabs");
const crumbs = document.getElementById("crumbs"), status = document.getElementById("status");
const remembered = { filter: "", sort: {}, lookup: null, chosen: new Set(), sure: "", told: "" };
let token = sessionStorage.getItem("token"), drawn = "", paused = false, timer = 0, letterTopics = [];

// ------------------------------------------------------------------------------------------------------------ elements

function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return made;
}

const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits });
const has = (value) => value !== null && value !== undefined && value !== "";
const rate = (value) => (value === null || value === undefined ? "" : `${number(value)}/s`);
const seconds = (value) => (value === null || value === undefined ? "–" : value < 90 ? `${value.toFixed(0)} s` : `${(value / 60).toFixed(0)} min`);
const time = (ms) => (ms === null || ms === undefined || ms < 0 ? "–" : new Date(ms).toISOString().replace("T", " ").slice(0, 19));
const tone = (state) => ({ class: /stable|running/i.test(state) ? "good" : /empty|dead|not|error/i.test(state) ? "bad" : "warn" });
const card = (label, value, attributes = {}) => h("div", { class: "card" }, h("b", attributes, value), h("span", {}, label));

// A table whose columns are [title, value of a row, {number, cell, wide, rare}]: a rare one is there if a row has a value.
function table(name, every, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const columns = every.filter(([, value, how = {}]) => !how.rare || rows.some((row) => has(value(row))));
  const sorted = remembered.sort[name] ?? null, by = columns.find(([title]) => title === sorted?.title);
  if (by) rows = [...rows].sort((a, b) => sorted.sign * compare(by[1](a), by[1](b)));
  const again = (title) => () => {
    remembered.sort[name] = { title, sign: sorted?.title === title ? -sorted.sign : 1 };
    refresh();
  };
  const head = columns.map(([title, , how = {}]) =>
    h("th", { class: how.number && "number", scope: "col", "aria-sort": sorted?.title === title ? (sorted.sign > 0 ? "ascending" : "descending") : null },
      h("button", { type: "button", onclick: again(title) }, title)));
  const body = rows.map((row) => h("tr", {}, columns.map(([title, value, how = {}]) =>
    h("td", { "data-title": title, class: how.number ? "number" : how.wide ? "wide" : how.whole ? "whole" : null }, how.cell ? how.cell(row) : typeof value(row) === "number" ? number(value(row)) : String(value(row) ?? "–")))));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function filtered(rows, text) {
  const wanted = remembered.filter.toLowerCase();
  return wanted ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : rows;
}

function filter(label) {
  const input = h("input", { id: "filter", type: "search", placeholder: label, "aria-label": label, oninput: () => { remembered.filter = input.value; refresh(); } });
  input.value = remembered.filter;
  return h("form", { onsubmit: (event) => event.preventDefault() }, input);
}

// --------------------------------------------------------------------------------------------------------- applications

function overview({ groups, letter_topics }) {
  letterTopics = letter_topics;
  const rows = filtered(groups, (row) => row.group);
  return [
    filter("Filter applications"),
    table("groups", [
      ["Application", (row) => row.group, { cell: (row) => h("a", { href: `#/app/${encodeURIComponent(row.group)}/topology` }, row.group) }],
      ["State", (row) => row.state, { cell: (row) => h("span", tone(row.state), row.state) }],
      ["Protocol", (row) => row.protocol],
      ["Epoch", (row) => row.topology_epoch, { number: true }],
      ["Members", (row) => Object.entries(row.members).map(([epoch, count]) => `${count} with epoch ${epoch}`).join(", ") || "none"],
      ["Active", (row) => row.tasks.active, { number: true }],
      ["Standby", (row) => row.tasks.standby, { number: true }],
      ["Warm-up", (row) => row.tasks.warmup, { number: true }],
      ["Lag", (row) => row.lag, { number: true }],
      ["Records/s", (row) => row.records_per_second, { number: true }],
      ["To restore", (row) => row.to_restore, { number: true }],
    ], rows, "No application runs in this cluster, and none has committed anything."),
    ...(letter_topics.length ? [h("h2", {}, "Dead letters"), h("ul", {}, letter_topics.map((topic) => h("li", {}, h("a", { href: `#/letters/${encodeURIComponent(topic)}` }, topic))))] : []),
  ];
}

const summary = (app) => h("div", { class: "cards" },
  card("state", app.state, tone(app.state)), card("topology epoch", number(app.topology_epoch)), card("protocol", app.protocol),
  card("members", number(app.members.length)), card("active tasks", number(app.tasks.filter((each) => each.role === "active").length)),
  card("lag", number(app.topics.reduce((sum, each) => sum + (each.lag ?? 0), 0))),
  card("upgrade", app.headline, app.headline === "one version" ? {} : { class: "warn" }));

// The width for a drawing on a phone; null where there is more.
const narrow = () => {
  const { paddingLeft, paddingRight } = getComputedStyle(main);
  return matchMedia("(max-width: 640px)").matches ? main.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) : null;
};

const SHOWN = {
  topology: (app) => [
    summary(app), ...app.advice.map((text) => h("div", { class: "advice" }, text)),
    app.parts.length ? h("div", { class: "scroll" }, drawGraph(app.parts, app.topics, rate, narrow()))
      : h("p", { class: "quiet" }, "The topology is not known: a classic group does not report it. Start instances with --http HOST:PORT."),
    app.parts.some((part) => !part.knows_sinks) ? h("p", { class: "quiet" }, "The topics that it writes to are not drawn: the group does not report them. Start instances with --http HOST:PORT.") : null,
  ],
  tasks: (app) => [
    filter("Filter tasks by id, role, member, phase"),
    table("tasks", [
      ["Task", (row) => row.task], ["Role", (row) => row.role], ["Member", (row) => row.member, { whole: true }],
      ["Lag", (row) => row.lag, { number: true }],
      ["Behind", (row) => row.behind ?? (row.restoring.length || null), { number: true, rare: true, cell: (row) => restoring(row) }],
      ["Phase", (row) => row.phase], ["Stream time, UTC", (row) => row.stream_time_ms, { whole: true, cell: (row) => time(row.stream_time_ms) }],
      ["Pending calls", (row) => row.pending_calls || null, { number: true, rare: true }],
      ["Counters", (row) => counters(row), { whole: true, rare: true }], ["Why", (row) => row.why, { wide: true, rare: true }],
    ], filtered(app.tasks, (row) => `${row.task} ${row.role} ${row.member} ${row.phase ?? ""}`), "No task is assigned, or none matches the filter."),
  ],
  members: (app) => [table("members", [
    ["Member", (row) => row.name], ["Client", (row) => row.client_id, { whole: true }], ["Host", (row) => row.host],
    ["Epoch", (row) => row.topology_epoch], ["Version", (row) => row.digest],
    ["Active", (row) => row.tasks.active, { number: true }], ["Standby", (row) => row.tasks.standby, { number: true }], ["Warm-up", (row) => row.tasks.warmup, { number: true }],
    ["Query address", (row) => row.endpoint], ["Process", (row) => row.process, { cell: (row) => h("span", { title: row.process }, row.process.slice(0, 8)) }],
    ["Away", (row) => (row.is_away ? "stopped" : ""), { rare: true }],
  ], app.members, "No instance runs.")],
  topics: (app) => [table("topics", [
    ["Topic", (row) => row.topic], ["Partitions", (row) => row.partitions, { number: true }],
    ["Lag", (row) => row.lag, { number: true }], ["Records/s", (row) => row.records_per_second, { number: true }],
    ["Read by", (row) => row.read_by, { rare: true, cell: (row) => row.read_by ?? "tasks" }],
  ], app.topics, "The application reads no topic yet.")],
  stores: (app) => [
    lookup(app),
    table("stores", [["Store", (row) => row.name], ["Kind", (row) => row.kind], ["Keys", (row) => row.key_serde], ["Values", (row) => row.value_serde]],
      app.stores, app.instances.length ? "No instance has answered over HTTP yet: the view of the instances shows why."
        : "Stores are shown for instances with --http: no instance of this application has it."),
  ],
  upgrade: (app) => [
    summary(app), ...app.advice.map((text) => h("div", { class: "advice" }, text)),
    app.last_assignment ? h("p", {}, `Last assignment: ${named(app.last_assignment)}`) : null,
    app.drain ? h("p", {}, `Being read to the end: ${app.drain.topics.join(", ")}, ${number(app.drain.records)} records left, ${seconds(app.drain.eta_s)}`) : null,
    h("h2", {}, "Versions"),
    table("versions", [
      ["Epoch", (row) => row.topology_epoch], ["Version", (row) => row.digest], ["Members", (row) => row.members, { number: true }],
      ["Active", (row) => row.tasks.active, { number: true }], ["Standby", (row) => row.tasks.standby, { number: true }], ["Warm-up", (row) => row.tasks.warmup, { number: true }],
    ], app.versions, "No instance runs."),
    h("h2", {}, "Warming up"),
    table("warming", [
      ["Task", (row) => row.task], ["Member", (row) => row.member], ["Behind", (row) => row.behind, { number: true }],
      ["Records/s", (row) => row.offsets_per_second, { number: true }], ["Time left", (row) => row.eta_s, { cell: (row) => seconds(row.eta_s) }],
    ], app.warming_up, "No task is warming up."),
    h("h2", {}, "Rebalances"),
    app.rebalances === null ? h("p", { class: "quiet" }, "This broker does not report why groups were rebalanced.")
      : table("rebalances", [
        ["Time, UTC", (row) => row.at_ms, { whole: true, cell: (row) => time(row.at_ms) }], ["Epoch", (row) => row.epoch, { number: true }], ["Why", (row) => named(row.reasons.join("; ")), { wide: true }], ["Moves", (row) => countMoves(row.moves), { wide: true, cell: (row) => moved(row.moves) }],
      ], app.rebalances, "None since the broker started."),
  ],
  instances: (app) => [table("instances", [
    ["Instance", (row) => row.address], ["State", (row) => row.state, { cell: (row) => h("span", tone(row.state ?? "not reachable"), row.unreachable || row.state) }],
    ["Processed", (row) => row.processed_records, { number: true }],
    ["Pending calls", (row) => row.pending_calls || null, { number: true, rare: true }],
    ["Loops", (row) => row.loops.flatMap((loop) => [loop.commit, loop.poll, ...loop.tasks]).filter((text) => text && !row.statuses.includes(text)).join("; "), { wide: true }],
    ["Status", (row) => row.statuses.join("; "), { wide: true, rare: true }],
  ], app.instances, "No instance answers over HTTP: start instances with --http HOST:PORT.")],
};

function restoring(row) {
  const left = row.restoring.reduce((sum, each) => sum + each.remaining_records, 0);
  if (!left) return number(row.behind);
  const done = row.restoring.reduce((sum, each) => sum + each.restored_records, 0);
  const etas = row.restoring.map((each) => each.eta_s).filter((each) => each !== null);
  return [h("progress", { max: done + left, value: done, "aria-label": "restored" }), ` ${number(left)} left${etas.length ? `, ${seconds(Math.max(...etas))}` : ""}`];
}

// Members by the names that all other views have.
const named = (text) => text.replace(/([\w-]{22}) \((?:instance ([^,)]+)(?:, [^)]*)?|([^)]+))\)/g, (_, id, instance, where) => instance ?? `${id.slice(0, 8)} on ${where}`);

// The broker tells the first ones, and how many more there are.
function countMoves(moves) {
  const more = /^and (\d+) more$/.exec(moves.at(-1) ?? "");
  return more ? moves.length - 1 + Number(more[1]) : moves.length;
}

function moved(moves) {
  if (!moves.length) return "no task moves";
  const list = h("ul", {}, moves.map((each) => h("li", {}, named(each))));
  return moves.length <= MOVES ? list : h("details", {}, h("summary", {}, `${number(countMoves(moves))} moves`), list);
}

const counters = (row) => Object.entries(row.counters).filter(([, count]) => count).map(([name, count]) => `${name} ${number(count)}`).join(", ");

function lookup(app) {
  const store = h("select", { name: "store", "aria-label": "Store" }, app.stores.map((each) => h("option", { value: each.name, selected: remembered.lookup?.store === each.name }, each.name)));
  const key = h("input", { name: "key", id: "key", placeholder: "Key", "aria-label": "Key", required: true });
  key.value = remembered.lookup?.key ?? "";
  const shown = h("pre", { id: "found", hidden: !remembered.lookup?.text }, remembered.lookup?.text ?? "");
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    remembered.lookup = { store: store.value, key: key.value, text: "" };
    const path = `/api/groups/${encodeURIComponent(app.group)}/stores/${encodeURIComponent(store.value)}/keys/${encodeURIComponent(key.value)}`;
    const found = await ask(path).catch((error) => ({ message: error.message }));
    remembered.lookup.text = JSON.stringify(found.answer ?? found, null, 2);
    refresh();
  } }, store, key, h("button", {}, "Look up"));
  return app.stores.length ? h("section", {}, form, shown) : null;
}

// Letters are chosen, replayed or dropped where the console allows it: the second press of a button does it.
function changes(topic, waiting) {
  const chosen = waiting.filter((each) => remembered.chosen.has(each)), what = chosen.length === 1 ? "1 dead letter" : `${number(chosen.length)} dead letters`;
  const act = (verb) => async () => {
    if (remembered.sure !== verb) {
      remembered.sure = verb;
      return refresh();
    }
    remembered.sure = "";
    const path = `/api/letters/${encodeURIComponent(topic)}/${verb.toLowerCase()}`;
    const found = await ask(path, { letters: chosen }).catch((error) => ({ message: error.message }));
    remembered.told = found.message ?? [`${number(found.done)} done`, ...found.left.map((each) => `${number(each.letters)} left: ${each.why}`)].join("; ");
    remembered.chosen.clear();
    look();
  };
  const button = (verb) => h("button", { type: "button", id: verb, disabled: !chosen.length, class: remembered.sure === verb ? "warn" : null, onclick: act(verb) },
    remembered.sure === verb ? `Press again to ${verb.toLowerCase()} ${what}` : `${verb} ${what}`);
  const all = h("button", { type: "button", id: "all", disabled: !waiting.length, onclick: () => {
    waiting.forEach((each) => remembered.chosen.add(each));
    refresh();
  } }, "Select all shown");
  return h("form", { onsubmit: (event) => event.preventDefault() }, all, button("Replay"), button("Drop"), h("span", { id: "told", role: "status" }, remembered.told));
}

function choice(row) {
  const box = h("input", { type: "checkbox", id: `letter ${row.letter}`, "aria-label": `Select ${row.letter}`, onchange: () => {
    remembered.chosen[box.checked ? "add" : "delete"](row.letter);
    remembered.sure = remembered.told = "";
    refresh();
  } });
  box.checked = remembered.chosen.has(row.letter);
  return row.state === "waiting" ? box : "";
}

function letters({ topic, numbers, newest, allows_changes }) {
  const shown = filtered(newest, (row) => Object.values(row).join(" "));
  return [
    h("h2", {}, "Counts"),
    table("numbers", [["Application", (row) => row.application], ["Step", (row) => row.step], ["Error", (row) => row.error], ["State", (row) => row.state], ["Dead letters", (row) => row.letters, { number: true }]], numbers, "The topic has no dead letters."),
    h("h2", {}, "Newest"), filter("Filter dead letters"),
    allows_changes ? changes(topic, shown.filter((row) => row.state === "waiting").map((row) => row.letter)) : null,
    table("letters", [
      ...(allows_changes ? [["Selected", (row) => (remembered.chosen.has(row.letter) ? 1 : 0), { cell: choice }]] : []),
      ["Position", (row) => row.letter], ["Time, UTC", (row) => row.time.replace("T", " "), { whole: true }], ["Application", (row) => row.application], ["Step", (row) => row.step],
      ["Origin", (row) => row.origin, { whole: true }], ["Error", (row) => row.error], ["Message", (row) => row.message, { wide: true }], ["State", (row) => row.state],
    ], shown, "None."),
    h("p", { class: "quiet" }, `streamsrt dlq show ${topic} POSITION shows all details of a dead letter; use dlq replay or dlq drop to replay or drop them.`),
  ];
}

// ------------------------------------------------------------------------------------------------------ asking, drawing

async function ask(path, change) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  if (change) headers["content-type"] = "application/json";
  const response = await fetch(path, change ? { method: "POST", headers, body: JSON.stringify(change) } : { headers });
  const body = await response.json();
  if (!response.ok) throw new Error(body.message ?? `HTTP ${response.status}`);
  return body;
}

function place() {
  const [what = "", name = "", view = "topology"] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (what === "app" && name) return { path: `/api/groups/${encodeURIComponent(name)}`, name, view: VIEWS.includes(view) ? view : "topology", draw: SHOWN[VIEWS.includes(view) ? view : "topology"] };
  if (what === "letters" && name) return { path: `/api/letters/${encodeURIComponent(name)}`, name, view: "", draw: letters };
  return { path: "/api/groups", name: "", view: "", draw: overview };
}

let last = null;

const FOCUSABLE = "a[href], button, input, select, summary, [tabindex]";
const known = (element) => element.id || `${element.tagName} ${element.getAttribute("href") ?? ""} ${element.textContent}`;

/** Whoever works with the keyboard stays where they are: on the same element, wherever it is now. */
function keepFocus(draw) {
  const at = document.activeElement, from = at?.selectionStart;
  const index = [...main.querySelectorAll(FOCUSABLE)].indexOf(at), name = index < 0 ? "" : known(at);
  draw();
  if (index < 0) return;
  const drawn = [...main.querySelectorAll(FOCUSABLE)];
  const same = [drawn[index], ...drawn].find((each) => each && known(each) === name) ?? drawn[index];
  same?.focus({ preventScroll: true });
  if (same instanceof HTMLInputElement && from !== undefined && from !== null) same.setSelectionRange(from, from);
}

function refresh() {
  if (last === null) return;
  const at = place();
  if (last.path !== at.path) return;
  const opened = [...main.querySelectorAll("details")].map((each) => each.open);
  const scrolls = [...main.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  keepFocus(() => {
    main.replaceChildren(...at.draw(last.body).filter(Boolean));
    main.setAttribute("aria-busy", "false");
    document.getElementById("filter-key").hidden = !document.getElementById("filter");
    [...main.querySelectorAll(".scroll")].forEach((each, index) => { each.scrollLeft = scrolls[index] ?? 0; });
    [...main.querySelectorAll("details")].forEach((each, index) => { each.open = opened[index] ?? false; });
  });
}

function frame(at) {
  document.title = at.name ? `${at.name} – streamsrt` : "streamsrt console";
  crumbs.replaceChildren(at.name || "all applications");
  const isApp = at.draw !== overview && at.draw !== letters;
  document.getElementById("view-keys").hidden = !isApp;
  tabs.replaceChildren(...(isApp ? VIEWS.map((view) => h("a", { href: `#/app/${encodeURIComponent(at.name)}/${view}`, "aria-current": view === at.view ? "page" : null }, view)) : []));
}

async function look() {
  clearTimeout(timer);
  const at = place(), key = `${at.path} ${at.view}`;
  if (drawn !== key) {
    if (drawn.split(" ")[0] !== at.path) {
      remembered.lookup = null;
      remembered.chosen.clear();
      remembered.sure = remembered.told = "";
    }
    remembered.filter = "";
    drawn = key;
    main.setAttribute("aria-busy", "true");
    frame(at);
    // What another address names is not shown under this one, least of all its buttons.
    if (last?.path === at.path) refresh();
    else main.replaceChildren(h("p", { class: "quiet" }, paused ? "Paused; press p to resume." : "Loading…"));
  }
  if (!paused && !document.hidden) {
    try {
      const body = await ask(at.path);
      if (place().path === at.path) {
        last = { path: at.path, body };
        refresh();
      }
      said(`as of ${time(Date.now()).slice(11)} UTC`);
    } catch (error) {
      said(error.message, "bad");
      if (last?.path !== place().path) main.replaceChildren(h("p", { class: "bad" }, error.message));
    }
  }
  timer = setTimeout(look, EVERY_MS);
}

function said(text, tone = "") {
  status.textContent = text;
  status.className = tone;
}

// The printed address, also where the tab shows the page already: then the browser does not load it again.
function takeToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return;
  token = decodeURIComponent(given[1]);
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", "#/");
}

takeToken();
addEventListener("hashchange", () => {
  takeToken();
  look();
});
matchMedia("(max-width: 640px)").addEventListener("change", refresh);
addEventListener("resize", () => narrow() === null || refresh());
document.addEventListener("visibilitychange", () => document.hidden || look());
addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const at = place(), view = VIEWS[Number(event.key) - 1];
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("filter")?.focus();
  } else if (view && tabs.childElementCount) location.hash = `#/app/${encodeURIComponent(at.name)}/${view}`;
  else if (event.key === "g") location.hash = "#/";
  else if (event.key === "p") {
    paused = !paused;
    if (paused) said("paused; press p to resume");
    else look();
  }
});
look();
