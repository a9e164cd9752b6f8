"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Tables sort by a click on a heading: numbers as numbers, else as text.
  const number = (text) => {
    const found = text.replace(/,/g, "").match(/^\s*x?(-?\d+(\.\d+)?)/);
    return found ? Number(found[1]) : NaN;
  };
  const sort = (table, column, heading) => {
    const down = heading.getAttribute("aria-sort") !== "descending";
    const body = table.tBodies[0];
    const key = (row) => row.cells[column] ? row.cells[column].textContent : "";
    const order = (a, b) => {
      const [x, y] = [number(key(a)), number(key(b))];
      if (Number.isNaN(x) && Number.isNaN(y)) return key(a).localeCompare(key(b));
      if (Number.isNaN(x)) return 1;
      if (Number.isNaN(y)) return -1;
      return x - y;
    };
    const rows = [...body.rows].sort((a, b) => down ? -order(a, b) : order(a, b));
    body.append(...rows);
    all("th", table).forEach((it) => it.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  };
  for (const table of all("table:not(.lanes)")) {
    all("thead th", table).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, column, heading));
    });
  }

  // A command is copied; a page from a file may lack a clipboard, so its text is selected then.
  for (const command of all(".command code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "copy";
    command.after(" ", button);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(command);
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
  }

  // What a link points to is opened.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && (target.closest("details") || target.querySelector(":scope > details"));
    if (folded) {
      folded.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Curves. Colours that the colour-blind tell apart, and dashes where they are used again.
  const colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f"];
  const dashes = [[], [8, 4], [2, 4]];
  const short = (value) => {
    if (value == null) return "-";
    for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
    }
    return value.toPrecision(3);
  };
  for (const element of all(".curves")) {
    const data = JSON.parse(element.querySelector("script").textContent);
    const ink = () => getComputedStyle(document.body).color;
    const rule = () => getComputedStyle(document.documentElement).getPropertyValue("--rule");
    const holder = element.querySelector(".plot");
    const boxes = element.querySelector(".eras");
    const values = [];
    // Which number of CPUs is under the pointer, or was last.
    let at = data.counts.length - 1;
    const axis = (label, format) => ({
      label, stroke: ink, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 },
      values: (plot, ticks) => ticks.map((tick) => tick == null ? "" : format(tick)),
    });
    const width = () => Math.max(280, holder.clientWidth);
    const plot = new uPlot({
      width: width(), height: 420, legend: { show: false },
      cursor: { points: { size: 7 }, y: false },
      scales: { x: { time: false, distr: 3, log: 2 }, y: { distr: 3 } },
      axes: [
        { ...axis("CPUs", String), splits: () => data.counts },
        { ...axis(data.unit, (tick) => Number.isInteger(Math.log10(tick)) ? short(tick) : ""),
          size: 66 },
      ],
      series: [{}, ...data.series.map((series, number) => ({
        label: series.name, stroke: colours[number % colours.length], width: 2,
        dash: dashes[Math.floor(number / colours.length) % dashes.length], points: { size: 5 },
      }))],
      hooks: { setCursor: [(plot) => { at = plot.cursor.idx ?? at; show(); }] },
    }, [data.counts, ...data.series.map((series) => series.rates)], holder);
    const where = element.querySelector(".where");
    const show = () => {
      where.textContent = `at ${data.counts[at]} CPUs`;
      values.forEach((value, number) => {
        value.textContent = short(data.series[number].rates[at]);
      });
    };
    data.series.forEach((series, number) => {
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.borderTopColor = colours[number % colours.length];
      const dash = Math.floor(number / colours.length) % dashes.length;
      swatch.style.borderTopStyle = ["solid", "dashed", "dotted"][dash];
      const value = document.createElement("output");
      values.push(value);
      label.append(box, swatch, ` ${series.name} `, value);
      boxes.append(label);
      box.addEventListener("change", () => plot.setSeries(number + 1, { show: box.checked }));
    });
    // The keyboard moves along the axis, too.
    holder.tabIndex = 0;
    holder.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      at = Math.min(data.counts.length - 1, Math.max(0, at + step));
      plot.setCursor({ left: plot.valToPos(data.counts[at], "x"), top: 10 });
      show();
    });
    show();
    new ResizeObserver(() => plot.setSize({ width: width(), height: 420 })).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
  }
})();
