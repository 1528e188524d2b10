// Owns what the graph of the tracked tables is drawn of: its foreign keys, or its INDs without those that follow from others.

import { keyOf } from "./format.js";

const tableOf = (parts) => parts.slice(0, 2).join(".");

/** Put edges between tables together: `links` are [dependent's table, referenced one's, what]; give { tables, edges } as an excerpt has them. */
function assemble(links) {
  const tables = [], places = new Map(), pairs = new Map();
  const placeOf = (name) => {
    if (!places.has(name)) {
      places.set(name, tables.length);
      tables.push({ name, inds: 0, neighbours: 0, references: 0, referenced_by: 0, near: new Set() });
    }
    return places.get(name);
  };
  for (const [from, to, what] of links) {
    const [dependent, referenced] = [placeOf(from), placeOf(to)];
    const opposite = pairs.get(`${referenced} ${dependent}`);
    const key = `${dependent} ${referenced}`;
    if (opposite && dependent !== referenced) opposite.isBoth = true; // one line for both ways
    const edge = opposite ?? pairs.get(key) ?? { dependent, referenced, inds: 0, isBoth: false, of: [] };
    edge.inds += 1;
    edge.of.push(what);
    if (!opposite) pairs.set(key, edge);
  }
  const edges = [...pairs.values()];
  for (const { dependent: a, referenced: b, inds, isBoth } of edges) {
    tables[a].inds += inds;
    if (a === b) continue;
    tables[b].inds += inds;
    for (const [from, to] of isBoth ? [[a, b], [b, a]] : [[a, b]]) {
      tables[from].references += 1;
      tables[to].referenced_by += 1;
    }
    tables[a].near.add(b); // each pair of tables has one edge
    tables[b].near.add(a);
    tables[a].neighbours += 1;
    tables[b].neighbours += 1;
  }
  return { tables, edges };
}

/** Keep a table with its neighbours, or all; of these the `most` with most neighbours, a picked table first. */
function cut({ tables, edges }, around, most) {
  const centre = tables.findIndex((one) => one.name === around);
  const isNear = (i) => around === undefined || i === centre || tables[centre]?.near.has(i);
  const near = tables.map((_, i) => i).filter(isNear).sort((a, b) => (b === centre) - (a === centre) || tables[b].neighbours - tables[a].neighbours);
  const kept = near.slice(0, most), place = new Map(kept.map((old, i) => [old, i]));
  return {
    tables: kept.map((i) => tables[i]), tables_beyond: near.length - kept.length,
    edges: edges.filter((one) => place.has(one.dependent) && place.has(one.referenced))
      .map((one) => ({ ...one, dependent: place.get(one.dependent), referenced: place.get(one.referenced) })),
  };
}

/** List foreign keys: those that a source declares, that were accepted, and that are suggested and were not rejected. */
export function known(candidates, decisions, declared) {
  const found = new Map((candidates?.items ?? []).map((one) => [keyOf(one), one]));
  const decided = new Map();
  for (const one of decisions?.items ?? []) if (!decided.has(keyOf(one))) decided.set(keyOf(one), one); // newest first
  for (const [name, one] of decided) {
    if (one.is_stale) found.delete(name); // its columns are followed no more
    else found.set(name, { ...(found.get(name) ?? { dependent: one.dependent, referenced: one.referenced }), verdict: one.verdict });
  }
  const chosen = [...found].filter(([, one]) => one.verdict !== "reject" && (one.suggested || one.verdict === "accept"));
  const keys = new Map([...chosen, ...declared.map((one) => [keyOf(one), { ...(found.get(keyOf(one)) ?? {}), ...one, isDeclared: true }])]);
  return [...keys.values()];
}

/** Give what tells whether a source declares a foreign key from one table to the other. */
export function declaredBetween(keys) {
  const pairs = new Set(keys.filter((one) => one.isDeclared).map((one) => JSON.stringify([tableOf(one.dependent[0]), tableOf(one.referenced[0])])));
  return (from, to) => pairs.has(JSON.stringify([from, to]));
}

const assembled = new WeakMap();

/** Give what is drawn of a list of foreign keys, which are put together once for as long as the list is the same. */
export function ofKeys(keys, around, most) {
  if (!assembled.has(keys)) assembled.set(keys, assemble(keys.map((one) => [tableOf(one.dependent[0]), tableOf(one.referenced[0]), one])));
  return cut(assembled.get(keys), around, most);
}

/** Leave out INDs that follow from others: of columns with the same values one stands for all, and a way around leaves the direct one out. */
export function reduce(inds) {
  const names = new Map(), into = new Map();
  for (const { dependent, referenced } of inds) {
    for (const one of [dependent, referenced]) names.set(one.attribute_id, one);
    if (!into.has(dependent.attribute_id)) into.set(dependent.attribute_id, new Set());
    into.get(dependent.attribute_id).add(referenced.attribute_id);
  }
  const has = (a, b) => into.get(a)?.has(b) ?? false;
  const first = (id) => Math.min(id, ...[...(into.get(id) ?? [])].filter((other) => has(other, id)));
  const heads = new Map([...names.keys()].map((id) => [id, first(id)]));
  return inds.filter(({ dependent: { attribute_id: a }, referenced: { attribute_id: b } }) => {
    if (heads.get(a) === heads.get(b)) return a === heads.get(a) || b === heads.get(b);
    if (a !== heads.get(a) || b !== heads.get(b)) return false;
    return ![...into.get(a)].some((c) => heads.get(c) === c && c !== a && c !== b && has(c, b));
  });
}

/** Keep the INDs of the component that a table is in, however large it is. */
export function ofComponent(inds, name) {
  const near = new Map();
  for (const one of inds) {
    const ends = [tableOf(one.dependent.parts), tableOf(one.referenced.parts)];
    for (const [from, to] of [ends, [...ends].reverse()]) near.set(from, (near.get(from) ?? new Set()).add(to));
  }
  const inside = new Set([name]);
  for (const one of inside) for (const other of near.get(one) ?? []) inside.add(other); // also goes through what is added
  return inds.filter((one) => inside.has(tableOf(one.dependent.parts)));
}

/** Keep the INDs inside some tables. */
export function ofTables(inds, tables) {
  const names = new Set(tables.map((one) => one.name));
  return inds.filter((one) => names.has(tableOf(one.dependent.parts)) && names.has(tableOf(one.referenced.parts)));
}

export const ofInds = (inds, around, most) => cut(assemble(inds.map((one) => [tableOf(one.dependent.parts), tableOf(one.referenced.parts), one])), around, most);
