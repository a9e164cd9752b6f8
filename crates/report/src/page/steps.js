"use strict";
// A race's run: buttons and arrow keys move a highlight along its rows, whose text is announced.
(() => {
  for (const race of document.querySelectorAll(".race")) {
    const holder = race.querySelector(".steps");
    const heading = holder.querySelector("thead");
    const lanes = [...heading.rows[0].cells].slice(1).map((it) => it.firstChild.textContent);
    const rows = [...holder.querySelectorAll("tbody tr")];
    const folded = race.querySelector(".folded");
    const now = race.querySelector(".now");
    let at = 0;
    const shown = (row) => !row.classList.contains(folded.checked ? "aside" : "fold");

    const text = (row) => {
      const lane = [...row.cells].slice(1).findIndex((it) => it.textContent);
      const parts = [...row.cells[lane + 1].childNodes];
      const has = (name) => parts.find((it) => it.className === name)?.textContent;
      const said = parts[0].textContent.trim();
      if (row.classList.contains("fold")) return `${said}.`;
      const times = folded.checked && has("times") ? ` ${has("times")}` : "";
      const mark = has("mark") ? ` (${has("mark")})` : "";
      return `Step ${row.cells[0].textContent}, ${lanes[lane]}: ${said}${times}${mark}.`;
    };
    const go = (to) => {
      rows[at].removeAttribute("aria-current");
      at = to;
      const row = rows[at];
      row.setAttribute("aria-current", "step");
      now.textContent = text(row);
      // Only the run scrolls, never the page.
      const high = heading.offsetHeight;
      const top = row.offsetTop - high;
      const bottom = row.offsetTop + row.offsetHeight;
      if (top < holder.scrollTop) holder.scrollTop = top;
      else if (bottom > holder.scrollTop + holder.clientHeight) {
        holder.scrollTop = bottom - holder.clientHeight;
      }
    };
    // The nearest row from `from` on that is shown, one way; none beyond the ends.
    const find = (from, step, is = shown) => {
      for (let row = from; rows[row]; row += step) if (is(rows[row])) return row;
      return -1;
    };
    const marked = (row) => row.classList.contains("marked");
    const ways = {
      previous: () => find(at - 1, -1),
      next: () => find(at + 1, 1),
      first: () => find(0, 1),
      last: () => find(rows.length - 1, -1),
      mark: () => {
        const next = find(at + 1, 1, marked);
        return next < 0 ? find(0, 1, marked) : next;
      },
    };
    const move = (way) => {
      const to = ways[way]();
      if (to >= 0) go(to);
    };

    for (const button of race.querySelectorAll(".to")) {
      button.hidden = false;
      button.addEventListener("click", () => move(button.dataset.to));
    }
    const keys = { ArrowUp: "previous", ArrowLeft: "previous", ArrowDown: "next",
      ArrowRight: "next", Home: "first", End: "last" };
    race.addEventListener("keydown", (event) => {
      const way = keys[event.key];
      const ours = event.target === holder || event.target.classList.contains("to");
      if (!way || !ours || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      move(way);
    });
    rows.forEach((row, number) => row.addEventListener("click", () => go(number)));
    folded.addEventListener("change", () => {
      const to = find(at, -1);
      go(to < 0 ? find(at, 1) : to);
    });
    go(find(0, 1));
  }
})();
