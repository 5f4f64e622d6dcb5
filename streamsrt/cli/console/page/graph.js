// A topology as a drawing: topics and subtopologies in columns, from what is read first to what is written last; on a phone one
// below the other.
//
// 1. A column is one more than the largest of what leads to it; an edge that closes a circle leads back and counts for nothing.
//    What nothing leads to is beside its first reader.
// 2. An edge over several columns has a lane of its own in each of them, so that it goes behind no box. An edge that leads back
//    has one in the columns of its ends, too, and turns round beside them.
// 3. Names are shown whole, on as many lines as they need: internal topics differ in the middle.
// 4. Every text is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200, GAP_X = 76, GAP_Y = 22, LINE = 16, PAD = 10, LANE = 14, SMALLEST = 0.75, TURN = 44;
const ARROW = 16, RAIL = 10, RAILS_MAX = 110, BEND = 5, REACHED_AT = 0.25, LEFT_AT = 0.75;
const SIZES = { title: 12, stored: 11, small: 11 };
const CHOSEN = "(chosen by the record)";
const canvas = document.createElement("canvas").getContext("2d");

function element(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A text in lines that are not wider than a box: broken behind a hyphen, dot or underscore, or wherever it must be.
function wrapped(text, kind, width) {
  canvas.font = `${SIZES[kind]}px ${getComputedStyle(document.body).fontFamily}`;
  const fits = (line) => canvas.measureText(line).width <= width - 2 * PAD;
  const lines = [];
  let rest = text;
  while (rest.length > 1 && !fits(rest)) {
    let end = rest.length - 1;
    while (end > 1 && !fits(rest.slice(0, end))) end -= 1;
    const behind = 1 + Math.max(...["-", ".", "_", " "].map((each) => rest.lastIndexOf(each, end - 1)));
    const cut = behind > end / 3 ? behind : end;
    lines.push(rest.slice(0, cut));
    rest = rest.slice(cut);
  }
  return [...lines, rest];
}

// Nodes and edges out of subtopologies: {nodes: Map(name -> node), edges: [{from, to, label}]}.
export function graphOf(parts, topics) {
  const nodes = new Map(), edges = [];
  const rates = new Map(topics.map((each) => [each.topic, each]));
  const topic = (name) => {
    const key = `topic ${name}`;
    if (!nodes.has(key)) nodes.set(key, { key, kind: "topic", title: name, lines: [], facts: rates.get(name) });
    return key;
  };
  for (const part of parts) {
    const key = `part ${part.id}`;
    nodes.set(key, { key, kind: "part", title: part.is_global ? "every instance" : `subtopology ${part.id}`, lines: part.stores, nodes: part.nodes });
    for (const name of part.sources) edges.push({ from: topic(name), to: key, topic: name });
    for (const pattern of part.patterns) edges.push({ from: topic(pattern), to: key, topic: pattern });
    for (const name of part.sinks) edges.push({ from: key, to: topic(name) });
    if (part.chosen_sinks) edges.push({ from: key, to: topic(CHOSEN) });
  }
  return { nodes, edges };
}

// The column of every node.
export function columnsOf({ nodes, edges }) {
  const next = new Map([...nodes.keys()].map((key) => [key, []]));
  for (const edge of edges) next.get(edge.from).push(edge.to);
  const column = new Map(), open = new Set(), order = [], done = new Set();
  const back = new Set();
  const visit = (key) => {
    open.add(key);
    for (const other of next.get(key)) {
      if (open.has(other)) back.add(`${key}>${other}`);
      else if (!done.has(other)) visit(other);
    }
    open.delete(key);
    done.add(key);
    order.push(key);
  };
  for (const key of nodes.keys()) if (!done.has(key)) visit(key);
  for (const key of order.reverse()) {
    if (!column.has(key)) column.set(key, 0);
    for (const other of next.get(key)) {
      if (!back.has(`${key}>${other}`)) column.set(other, Math.max(column.get(other) ?? 0, column.get(key) + 1));
    }
  }
  const isLedTo = new Set(edges.map((edge) => edge.to));
  for (const [key, others] of next) {
    if (!isLedTo.has(key) && others.length) column.set(key, Math.min(...others.map((other) => column.get(other))) - 1);
  }
  return column;
}

// The columns that an edge passes, in its direction.
function passed(from, to) {
  if (to > from) return Array.from({ length: to - from - 1 }, (_, index) => from + 1 + index);
  return Array.from({ length: from - to + 1 }, (_, index) => from - index);
}

// What stands in each column, from above to below: boxes, and lanes of edges that pass.
export function standing({ nodes, edges }, column) {
  const columns = Array.from({ length: Math.max(0, ...column.values()) + 1 }, () => []);
  const before = new Map([...nodes.keys()].map((key) => [key, []]));
  for (const [key, node] of nodes) columns[column.get(key)].push(node);
  for (const edge of edges) {
    edge.lanes = [];
    edge.isBack = column.get(edge.to) <= column.get(edge.from);
    for (const x of passed(column.get(edge.from), column.get(edge.to))) {
      const lane = { key: `${edge.from}>${edge.to}@${x}`, kind: "lane", height: LANE };
      before.set(lane.key, [edge.lanes.at(-1)?.key ?? edge.from]);
      edge.lanes.push(lane);
      columns[x].push(lane);
    }
    if (!edge.isBack) before.get(edge.to).push(edge.lanes.at(-1)?.key ?? edge.from);
  }
  const place = new Map();
  for (const list of columns) {
    const mean = (each) => {
      const places = before.get(each.key).map((key) => place.get(key)).filter((at) => at !== undefined);
      return places.length ? places.reduce((sum, at) => sum + at, 0) / places.length : list.length;
    };
    const means = new Map(list.map((each) => [each, mean(each)]));
    list.sort((a, b) => means.get(a) - means.get(b));
    list.forEach((each, index) => place.set(each.key, index));
  }
  return columns;
}

// What a box says, in lines, and how high it is with them.
function measure(node, width, said) {
  const lines = (kind, text) => wrapped(text, kind, width).map((line) => ({ kind, text: line }));
  node.width = width;
  node.texts = [...lines("title", node.title), ...node.lines.flatMap((name) => lines("stored", `▤ ${name}`))];
  if (node.facts) node.texts.push(...lines("small", facts(node.facts, said)));
  node.height = 2 * PAD + LINE * node.texts.length;
}

function facts({ partitions, lag }, said) {
  return [`${partitions} partitions`, lag === null ? "" : `lag ${lag.toLocaleString("en")}`, said].filter(Boolean).join(", ");
}

// `narrow`: the width of a phone, in which boxes are below one another; null where columns have room.
export function drawGraph(parts, topics, rate, narrow = null) {
  const graph = graphOf(parts, topics);
  const [width, height, drawn] = narrow === null ? inColumns(graph, rate) : inOneColumn(graph, rate, narrow);
  const svg = element("svg", { class: "graph", width, height, viewBox: `-2 -2 ${width} ${height}`, role: "img" });
  if (narrow === null) svg.style.minWidth = `${SMALLEST * width}px`; // a wide drawing is made smaller before it has to be scrolled
  svg.append(element("title", {}, "The topology: topics, subtopologies, stores"));
  const marker = element("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
  marker.append(element("path", { d: "M0 0 L8 4 L0 8 z" }));
  const defs = element("defs", {});
  defs.append(marker);
  svg.append(defs);
  svg.append(...drawn.filter((each) => each.tagName === "path"), ...drawn.filter((each) => each.tagName !== "path"));
  for (const node of graph.nodes.values()) svg.append(box(node));
  return svg;
}

function inColumns(graph, rate) {
  for (const node of graph.nodes.values()) measure(node, WIDTH, "");
  const columns = standing(graph, columnsOf(graph));
  const margin = graph.edges.some((edge) => edge.isBack) ? TURN : 0;
  let height = 0;
  columns.forEach((list, x) => {
    let y = 0;
    for (const node of list) {
      node.x = margin + x * (WIDTH + GAP_X);
      node.y = y;
      y += node.height + GAP_Y;
    }
    height = Math.max(height, y);
  });
  const width = Math.max(1, columns.length) * (WIDTH + GAP_X) - GAP_X + 4 + 2 * margin;
  return [width, height, graph.edges.flatMap((edge) => arrow(graph.nodes.get(edge.from), graph.nodes.get(edge.to), edge, rate))];
}

// Boxes below one another. What leads out of a box goes down (or back up) a rail on the left, one for all that it leads to.
function inOneColumn(graph, rate, narrow) {
  const nodes = standing(graph, columnsOf(graph)).flat().filter((each) => each.kind !== "lane");
  const row = new Map(nodes.map((each, index) => [each.key, index]));
  const rails = [];
  for (const node of nodes) {
    const to = graph.edges.filter((edge) => edge.from === node.key).map((edge) => graph.nodes.get(edge.to));
    const ends = [row.get(node.key) + LEFT_AT, ...to.map((each) => row.get(each.key) + REACHED_AT)];
    if (to.length) rails.push({ node, to, first: Math.min(...ends), last: Math.max(...ends) });
  }
  const count = placeRails(rails), step = Math.min(RAIL, RAILS_MAX / Math.max(1, count));
  const left = count * step + ARROW;
  let y = 0;
  for (const node of nodes) {
    const reads = graph.edges.some((edge) => edge.from === node.key && edge.topic);
    measure(node, narrow - left - 4, node.facts && reads ? rate(node.facts.records_per_second) : "");
    node.x = left;
    node.y = y;
    y += node.height + GAP_Y;
  }
  return [narrow, y, rails.flatMap((rail) => rail.to.map((to) => onRail(rail.node, to, (count - rail.lane) * step - step / 2)))];
}

// Gives every rail the nearest lane that is free over its length; returns how many there are.
function placeRails(rails) {
  const lanes = [];
  for (const rail of [...rails].sort((a, b) => a.last - a.first - (b.last - b.first))) {
    const isFree = (taken) => taken.every((other) => other.last < rail.first || rail.last < other.first);
    rail.lane = lanes.findIndex(isFree);
    if (rail.lane < 0) rail.lane = lanes.push([]) - 1;
    lanes[rail.lane].push(rail);
  }
  return lanes.length;
}

function onRail(from, to, x) {
  const start = from.y + from.height - PAD, end = to.y + PAD, down = Math.sign(end - start) * BEND;
  const line = `M${from.x} ${start} H${x + BEND} Q${x} ${start} ${x} ${start + down} V${end - down} Q${x} ${end} ${x + BEND} ${end} H${to.x}`;
  return element("path", { d: line, "marker-end": "url(#head)" });
}

function arrow(from, to, edge, rate) {
  const middle = (node) => node.y + node.height / 2;
  let x = from.x + WIDTH, y = middle(from), line = `M${x} ${y}`;
  const curve = (nextX, nextY) => {
    const bend = (nextX - x) / 2;
    line += ` C${x + bend} ${y} ${nextX - bend} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  };
  const turn = (nextY, side) => {
    line += ` C${x + side} ${y} ${x + side} ${nextY} ${x} ${nextY}`;
    y = nextY;
  };
  if (edge.isBack) turn(middle(edge.lanes[0]), TURN);
  const [near, far] = edge.isBack ? [WIDTH, 0] : [0, WIDTH];
  for (const lane of edge.lanes) {
    if (x !== lane.x + near) curve(lane.x + near, middle(lane));
    line += ` H${(x = lane.x + far)}`;
  }
  const [labelX, labelY] = edge.lanes.length ? [edge.lanes.at(-1).x + WIDTH / 2, y] : [(x + to.x) / 2, (y + middle(to)) / 2];
  edge.isBack ? turn(middle(to), -TURN) : curve(to.x, middle(to));
  const made = [element("path", { d: line, "marker-end": "url(#head)" })];
  const said = edge.topic && from.facts ? rate(from.facts.records_per_second) : "";
  if (said) made.push(element("text", { class: "small said", "font-size": SIZES.small, x: labelX, y: labelY + 4, "text-anchor": "middle" }, said));
  return made;
}

function box(node) {
  const group = element("g", { transform: `translate(${node.x} ${node.y})` });
  group.append(element("title", {}, [node.title, ...(node.nodes ?? [])].join("\n")));
  group.append(element("rect", { class: node.kind, width: node.width, height: node.height, rx: node.kind === "topic" ? 14 : 4 }));
  node.texts.forEach(({ kind, text }, index) => group.append(element("text", { class: kind, "font-size": SIZES[kind], x: PAD, y: PAD + 12 + LINE * index }, text)));
  return group;
}
