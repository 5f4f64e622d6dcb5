// A topology as a drawing: topics and subtopologies in columns, from what is read first to what is written last.
//
// 1. A column is one more than the largest of what leads to it; an edge that closes a circle leads back and counts for nothing.
// 2. Every text is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 230, GAP_X = 90, GAP_Y = 22, LINE = 16, PAD = 10, SHOWN = 28;

function element(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function short(text, most = SHOWN) {
  return text.length <= most ? text : `${text.slice(0, most / 2 - 1)}…${text.slice(-(most / 2))}`;
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
    nodes.set(key, { key, kind: "part", title: `subtopology ${part.id}`, lines: part.stores, nodes: part.nodes });
    for (const name of part.sources) edges.push({ from: topic(name), to: key, topic: name });
    for (const pattern of part.patterns) edges.push({ from: topic(pattern), to: key, topic: pattern });
    for (const name of part.sinks) edges.push({ from: key, to: topic(name) });
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
  return column;
}

export function drawGraph(parts, topics, rate) {
  const graph = graphOf(parts, topics), column = columnsOf(graph);
  const columns = [];
  for (const [key, node] of graph.nodes) (columns[column.get(key)] ??= []).push(node);
  let height = 0;
  columns.forEach((list, x) => {
    let y = 0;
    for (const node of list ?? []) {
      node.x = x * (WIDTH + GAP_X);
      node.y = y;
      node.height = 2 * PAD + LINE * (1 + node.lines.length + (node.facts ? 1 : 0));
      y += node.height + GAP_Y;
    }
    height = Math.max(height, y);
  });
  const width = Math.max(1, columns.length) * (WIDTH + GAP_X);
  const svg = element("svg", { class: "graph", width, height, viewBox: `-2 -2 ${width} ${height}`, role: "img" });
  svg.append(element("title", {}, "The topology: topics, subtopologies, stores"));
  const marker = element("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
  marker.append(element("path", { d: "M0 0 L8 4 L0 8 z" }));
  const defs = element("defs", {});
  defs.append(marker);
  svg.append(defs);
  for (const edge of graph.edges) svg.append(...arrow(graph.nodes.get(edge.from), graph.nodes.get(edge.to), edge, rate));
  for (const node of graph.nodes.values()) svg.append(box(node));
  return svg;
}

function arrow(from, to, edge, rate) {
  const x1 = from.x + WIDTH, y1 = from.y + from.height / 2, x2 = to.x, y2 = to.y + to.height / 2;
  const bend = x2 > x1 ? (x2 - x1) / 2 : 60;
  const made = [element("path", { d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#head)" })];
  const said = edge.topic && from.facts ? rate(from.facts.records_per_second) : "";
  if (said) made.push(element("text", { class: "small", x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, "text-anchor": "middle" }, said));
  return made;
}

function box(node) {
  const group = element("g", { transform: `translate(${node.x} ${node.y})` });
  group.append(element("title", {}, [node.title, ...(node.nodes ?? [])].join("\n")));
  group.append(element("rect", { class: node.kind, width: WIDTH, height: node.height, rx: node.kind === "topic" ? 14 : 4 }));
  let y = PAD + 12;
  group.append(element("text", { x: PAD, y }, short(node.title)));
  for (const line of node.lines) group.append(element("text", { class: "stored", x: PAD, y: (y += LINE) }, `▤ ${short(line, 30)}`));
  if (node.facts) {
    const lag = node.facts.lag === null ? "" : `, lag ${node.facts.lag.toLocaleString("en")}`;
    group.append(element("text", { class: "small", x: PAD, y: (y += LINE) }, `${node.facts.partitions} partitions${lag}`));
  }
  return group;
}
