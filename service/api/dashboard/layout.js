// Owns where the tables of a drawing stand: a force-directed placement by d3-force, the same each time.

import "./d3-dispatch.min.js";
import "./d3-quadtree.min.js";
import "./d3-timer.min.js";
import "./d3-force.min.js"; // needs the others

const { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } = globalThis.d3;
const ROUNDS = 300;
export const BOX = { width: 168, height: 36 };
const ROOM = 1.9; // of a box: what it takes with the space around it, in boxes

/** Place `count` boxes whose `edges` are [from, to], in a frame of width : height = `shape`; give [{ x, y }]. */
export function place(count, edges, shape) {
  // Tables come hubs first, and d3 begins with a sunflower's seeds: so hubs begin in the middle. Its chance is always the same.
  const spots = Array.from({ length: count }, () => ({}));
  const links = edges.filter(([from, to]) => from !== to).map(([source, target]) => ({ source, target }));
  forceSimulation(spots)
    .force("apart", forceManyBody().strength(-900))
    .force("collide", forceCollide(BOX.width / 2))
    .force("link", forceLink(links).distance(190))
    .force("x", forceX().strength(0.06))
    .force("y", forceY().strength(0.12)) // windows are wide
    .stop()
    .tick(ROUNDS);
  const area = count * (BOX.width + 30) * (BOX.height + 34) * ROOM;
  fit(spots, "x", Math.sqrt(area * shape));
  fit(spots, "y", Math.sqrt(area / shape));
  return apart(spots);
}

/** Stretch an axis to a size, halfway to equal steps: so that neither a crowd nor a hermit makes all the others small. */
function fit(spots, axis, size) {
  const values = spots.map((spot) => spot[axis]), sorted = [...values].sort((a, b) => a - b);
  const [first, last] = [sorted[0], sorted.at(-1)];
  spots.forEach((spot, i) => {
    const share = (values[i] - first) / (last - first || 1), rank = sorted.indexOf(values[i]) / (sorted.length - 1 || 1);
    spot[axis] = size * ((share + rank) / 2 - 0.5);
  });
}

function push(moves, a, b, x, y) {
  moves[a].x += x;
  moves[a].y += y;
  moves[b].x -= x;
  moves[b].y -= y;
}

/** Push boxes apart until none lies on another. */
function apart(spots) {
  const width = BOX.width + 30, height = BOX.height + 34;
  for (let round = 0, moved = true; moved && round < 200; round += 1) {
    moved = false;
    for (let a = 0; a < spots.length; a += 1) {
      for (let b = a + 1; b < spots.length; b += 1) {
        const x = spots[b].x - spots[a].x, y = spots[b].y - spots[a].y;
        const overX = width - Math.abs(x), overY = height - Math.abs(y);
        if (overX <= 0.1 || overY <= 0.1) continue;
        moved = true;
        if (overX / width < overY / height) push(spots, b, a, (Math.sign(x) || 1) * overX / 2, 0);
        else push(spots, b, a, 0, (Math.sign(y) || 1) * overY / 2);
      }
    }
  }
  return spots;
}
