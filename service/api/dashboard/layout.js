// Owns where the tables of a drawing stand: a force-directed placement (Fruchterman and Reingold 1991), the same each time.

const ROUNDS = 300;
export const BOX = { width: 168, height: 36 };
const ROOM = 1.9; // of a box: what it takes with the space around it, in boxes

/** Place `count` boxes whose `edges` are [from, to], in a frame of width : height = `shape`; give [{ x, y }]. */
export function place(count, edges, shape) {
  const spread = Math.sqrt(count) * 120;
  // A sunflower's seeds: tables come hubs first, so that hubs begin in the middle. Nothing is random.
  const spots = Array.from({ length: count }, (_, i) => {
    const radius = spread * Math.sqrt((i + 0.5) / count), angle = i * 2.399963;
    return { x: radius * Math.cos(angle) * 1.4, y: radius * Math.sin(angle) };
  });
  const length = 190, pairs = edges.filter(([from, to]) => from !== to);
  for (let round = 0; round < ROUNDS; round += 1) {
    const moves = spots.map(({ x, y }) => ({ x: -x * 0.04, y: -y * 0.07 })); // towards the middle, more so in height
    for (let a = 0; a < count; a += 1) {
      for (let b = a + 1; b < count; b += 1) {
        const x = spots[a].x - spots[b].x || 0.01, y = (spots[a].y - spots[b].y || 0.01) * 1.8; // boxes are wide
        const force = (length * length) / Math.max(x * x + y * y, 100);
        push(moves, a, b, x * force * 0.55, y * force * 0.55);
      }
    }
    for (const [a, b] of pairs) {
      const x = spots[b].x - spots[a].x, y = spots[b].y - spots[a].y;
      const force = Math.hypot(x, y) / length;
      push(moves, a, b, x * force * 0.2, y * force * 0.2);
    }
    const most = spread * 0.12 * (1 - round / ROUNDS) + 0.5; // it cools down
    spots.forEach((spot, i) => {
      const far = Math.hypot(moves[i].x, moves[i].y) || 1, step = Math.min(far, most) / far;
      spot.x += moves[i].x * step;
      spot.y += moves[i].y * step;
    });
  }
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
