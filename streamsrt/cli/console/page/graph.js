// A topology as a drawing: topics and subtopologies in columns, from what is read first to what is written last.
//
// 1. A column is one more than the largest of what leads to it; an edge that closes a circle leads back and counts for nothing.
//    What nothing leads to is beside its first reader.
// 2. An edge over several columns has a lane of its own in each of them, so that it goes behind no box.
// 3. Every text is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200, GAP_X = 76, GAP_Y = 22, LINE = 16, PAD = 10, SHOWN = 26, LANE = 14, SMALLEST = 0.75;

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
  const isLedTo = new Set(edges.map((edge) => edge.to));
  for (const [key, others] of next) {
    if (!isLedTo.has(key) && others.length) column.set(key, Math.min(...others.map((other) => column.get(other))) - 1);
  }
  return column;
}

// What stands in each column, from above to below: boxes, and lanes of edges that pass.
export function standing({ nodes, edges }, column) {
  const columns = Array.from({ length: Math.max(0, ...column.values()) + 1 }, () => []);
  const before = new Map([...nodes.keys()].map((key) => [key, []]));
  for (const [key, node] of nodes) columns[column.get(key)].push(node);
  for (const edge of edges) {
    edge.lanes = [];
    for (let x = column.get(edge.from) + 1; x < column.get(edge.to); x += 1) {
      const lane = { key: `${edge.from}>${edge.to}@${x}`, kind: "lane", height: LANE };
      before.set(lane.key, [edge.lanes.at(-1)?.key ?? edge.from]);
      edge.lanes.push(lane);
      columns[x].push(lane);
    }
    before.get(edge.to).push(edge.lanes.at(-1)?.key ?? edge.from);
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

export function drawGraph(parts, topics, rate) {
  const graph = graphOf(parts, topics), column = columnsOf(graph);
  let height = 0;
  const columns = standing(graph, column);
  columns.forEach((list, x) => {
    let y = 0;
    for (const node of list) {
      node.x = x * (WIDTH + GAP_X);
      node.y = y;
      node.height ??= 2 * PAD + LINE * (1 + node.lines.length + (node.facts ? 1 : 0));
      y += node.height + GAP_Y;
    }
    height = Math.max(height, y);
  });
  const width = Math.max(1, columns.length) * (WIDTH + GAP_X) - GAP_X + 4;
  const svg = element("svg", { class: "graph", width, height, viewBox: `-2 -2 ${width} ${height}`, role: "img" });
  svg.style.minWidth = `${SMALLEST * width}px`; // a wide drawing is made smaller before it has to be scrolled
  svg.append(element("title", {}, "The topology: topics, subtopologies, stores"));
  const marker = element("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
  marker.append(element("path", { d: "M0 0 L8 4 L0 8 z" }));
  const defs = element("defs", {});
  defs.append(marker);
  svg.append(defs);
  const drawn = graph.edges.flatMap((edge) => arrow(graph.nodes.get(edge.from), graph.nodes.get(edge.to), edge, rate));
  svg.append(...drawn.filter((each) => each.tagName === "path"), ...drawn.filter((each) => each.tagName !== "path"));
  for (const node of graph.nodes.values()) svg.append(box(node));
  return svg;
}

function arrow(from, to, edge, rate) {
  const middle = (node) => node.y + node.height / 2;
  let x = from.x + WIDTH, y = middle(from), line = `M${x} ${y}`;
  const curve = (nextX, nextY) => {
    const bend = nextX > x ? (nextX - x) / 2 : 60;
    line += ` C${x + bend} ${y} ${nextX - bend} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  };
  for (const lane of edge.lanes) {
    curve(lane.x, middle(lane));
    line += ` H${(x += WIDTH)}`;
  }
  const [labelX, labelY] = edge.lanes.length ? [x - WIDTH / 2, y] : [(x + to.x) / 2, (y + middle(to)) / 2];
  curve(to.x, middle(to));
  const made = [element("path", { d: line, "marker-end": "url(#head)" })];
  const said = edge.topic && from.facts ? rate(from.facts.records_per_second) : "";
  if (said) made.push(element("text", { class: "small said", x: labelX, y: labelY + 4, "text-anchor": "middle" }, said));
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
