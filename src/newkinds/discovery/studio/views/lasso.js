// Selecting images on the map: a line that is drawn around them, and what is selected.

/** A line that is drawn; it closes by itself. */
export class Lasso {
  points = [];

  add(x, y) {
    const [px, py] = this.points.at(-1) ?? [Infinity, Infinity];
    if (Math.hypot(x - px, y - py) > 2) this.points.push([x, y]);
  }

  get isDrawn() {
    return this.points.length > 2;
  }

  /** Whether a point lies inside: a ray from it crosses the line an odd number of times. */
  holds(x, y) {
    let inside = false;
    for (let i = 0, j = this.points.length - 1; i < this.points.length; j = i, i += 1) {
      const [xi, yi] = this.points[i];
      const [xj, yj] = this.points[j];
      if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
    }
    return inside;
  }

  paint(pen, colour) {
    if (!this.points.length) return;
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.strokeStyle = colour;
    pen.setLineDash([6, 4]);
    pen.beginPath();
    for (const [x, y] of this.points) pen.lineTo(x, y);
    pen.closePath();
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 0.08;
    pen.fillStyle = colour;
    pen.fill();
  }
}

/** Selected rows, for `selectionBar`, where there is no grid. */
export class Picked {
  selected = new Set();

  constructor(changed) {
    this.changed = changed;
  }

  targets() {
    return [...this.selected];
  }

  select(rows, { keep = false } = {}) {
    this.selected = new Set(keep ? [...this.selected, ...rows] : rows);
    this.changed();
  }

  /** Select rows as well; if all of them are, none of them. */
  toggle(rows) {
    if (rows.every((row) => this.selected.has(row))) this.select(this.targets().filter((row) => !rows.includes(row)));
    else this.select(rows, { keep: true });
  }
}
