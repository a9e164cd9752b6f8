// Opens the page that `minflt reproduce` wrote, as a reader would: `node page.mjs PAGE [PICTURES]`.
// Fails on a message in the console, a request, a control that does nothing, or a serious finding
// of axe. With a folder, pictures are written into it.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [page_file, pictures] = process.argv.slice(2);
assert(page_file && existsSync(page_file), "usage: node page.mjs PAGE [PICTURES]");
const url = pathToFileURL(resolve(page_file)).href;
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// A page of its own for each view, which must stay silent.
const open = async (options, look, hash = "") => {
  const context = await browser.newContext({ bypassCSP: false, ...options });
  const page = await context.newPage();
  const said = [];
  page.on("console", (message) => said.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => said.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const asked = request.url();
    if (!asked.startsWith(url) && !asked.startsWith("data:")) said.push(`request: ${asked}`);
  });
  await page.goto(url + hash);
  await look(page);
  assert.deepEqual(said, []);
  await context.close();
};

const shot = async (page, name, whole = false) => {
  if (pictures) await page.screenshot({ path: `${pictures}/${name}.png`, fullPage: whole });
};

// What axe finds that is serious, with everything unfolded. It is injected past the page's policy,
// by the debugger, so that the policy itself stays as readers have it.
const accessible = async (page) => {
  await page.evaluate(() => document.querySelectorAll("details").forEach((it) => { it.open = true; }));
  const { readFile } = await import("node:fs/promises");
  await page.evaluate(await readFile(axe, "utf8"));
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return violations.filter((it) => ["serious", "critical"].includes(it.impact))
      .map((it) => `${it.id}: ${it.help}: ${it.nodes.length} x ${it.nodes[0].html.slice(0, 120)}`);
  });
  assert.deepEqual(found, []);
};

const fits = async (page) => {
  const [wide, has] = await page.evaluate(() =>
    [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert(wide <= has, `the page is ${wide} wide in a window of ${has}`);
};

// Steps through the first race by button and by key: the highlight and what is announced move.
const races = async (page, name) => {
  assert.equal(await page.locator(".race").count(), 5);
  const race = page.locator(".race").first();
  await race.locator("summary").click();
  const now = race.locator(".now");
  const current = race.locator("tr[aria-current=step]");
  const place = () => current.evaluate((it) => [...it.parentNode.rows].indexOf(it));
  const look = async () => {
    assert.equal(await current.count(), 1, "one row is highlighted");
    assert(await current.isVisible(), "the highlighted row is shown");
    const [row, said] = [await current.textContent(), await now.textContent()];
    const step = row.match(/^\d+/);
    assert(!step || said.startsWith(`Step ${step[0]}`), `${row} is announced as ${said}`);
    return [await place(), said];
  };
  const moves = async (act, way, what) => {
    const [before, said] = await look();
    await act();
    const [after, says] = await look();
    assert(way * (after - before) > 0, `${what} went from row ${before} to ${after}`);
    assert.notEqual(says, said, `${what} announced nothing`);
  };
  const click = (what) => () => race.getByRole("button", { name: what, exact: true }).click();
  const press = (key) => () => page.keyboard.press(key);
  await moves(click("Next"), 1, "Next");
  await moves(click("Next"), 1, "Next again");
  await moves(click("Previous"), -1, "Previous");
  await moves(click("Next mark"), 1, "Next mark");
  assert.match(await now.textContent(), /freed here/);
  await moves(click("Next mark"), 1, "Next mark again");
  assert.match(await now.textContent(), /used here/);
  assert.match(await current.locator(".mark").textContent(), /used here/);
  await race.locator(".controls").evaluate((it) => it.scrollIntoView());
  await shot(page, name);
  await race.locator(".steps").focus();
  await moves(press("ArrowUp"), -1, "ArrowUp");
  await moves(press("ArrowDown"), 1, "ArrowDown");
  await moves(press("Home"), -1, "Home");
  await moves(press("End"), 1, "End");
  await moves(press("ArrowLeft"), -1, "ArrowLeft");

  const rows = () => race.locator("tbody tr:visible").count();
  const few = await rows();
  const fold = race.getByRole("checkbox");
  await fold.focus();
  await page.keyboard.press("Space");
  const all = await rows();
  assert(all > few, `${all} rows, ${few} folded`);
  await look();
  await fold.press("Space");
  assert.equal(await rows(), few);
  await look();
  await race.locator("summary").press("Enter");
};

// In the light: what is seen first, and every control.
await open({ viewport: { width: 1200, height: 900 } }, async (page) => {
  await shot(page, "first");
  assert.match(await page.locator("h2").first().textContent(), /What came out/);
  assert((await page.locator("svg.factors").count()) >= 1, "no picture of factors");

  const table = page.locator("table").first();
  const heading = table.locator("thead th").nth(2);
  const column = () => table.locator("tbody tr td:nth-child(3)").allTextContents();
  const factors = async () => (await column()).map((it) => Number(it.match(/x([\d.]+)/)[1]));
  await heading.locator("button").click();
  let sorted = await factors();
  assert.deepEqual(sorted, [...sorted].sort((a, b) => b - a), "not sorted");
  assert.equal(await heading.getAttribute("aria-sort"), "descending");
  await heading.locator("button").click();
  sorted = await factors();
  assert.deepEqual(sorted, [...sorted].sort((a, b) => a - b), "not sorted the other way");

  const curves = page.locator(".curves").first();
  await curves.scrollIntoViewIfNeeded();
  const drawn = () => curves.locator("canvas").evaluate((it) => it.toDataURL());
  const all = await drawn();
  await curves.locator("input").first().uncheck();
  await page.waitForFunction(([before, at]) =>
    document.querySelectorAll(".curves canvas")[at].toDataURL() !== before, [all, 0]);
  await curves.locator("input").first().check();
  const where = curves.locator(".where");
  assert.match(await where.textContent(), /at 1024 CPUs/);
  const box = await curves.locator(".u-over").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForFunction(() => document.querySelector(".where").textContent === "at 32 CPUs");
  assert.match(await curves.locator("output").first().textContent(), /\d/);
  await shot(page, "curves");
  await curves.locator(".plot").focus();
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => document.querySelector(".where").textContent === "at 16 CPUs");

  const verdicts = await page.locator("table").first().locator("tbody").textContent();
  assert.match(verdicts, /icx-vm48: \d+ of \d+ figures are guesses, \d+ fitted/);

  await races(page, "race");

  const folded = page.locator("figure:not(.race) > details:has(.command)").first();
  await folded.locator("summary").click();
  const copy = folded.locator("button.copy");
  await copy.click();
  await page.waitForFunction(() =>
    [...document.querySelectorAll("button.copy")].some((it) => it.textContent !== "copy"));
  await shot(page, "table");
  await accessible(page);
});

// A link to a table opens it.
await open({}, async (page) => {
  const inside = page.locator("figure:has(> details)").last();
  const id = await inside.getAttribute("id");
  await page.evaluate((id) => { location.hash = id; }, id);
  await page.waitForFunction((id) => document.querySelector(`#${id} details`).open, id);
});

// In the dark, and on a telephone.
await open({ colorScheme: "dark", viewport: { width: 1200, height: 900 } }, async (page) => {
  await shot(page, "dark");
  await races(page, "race-dark");
  await accessible(page);
});
await open({ viewport: { width: 400, height: 800 } }, async (page) => {
  await shot(page, "narrow");
  await races(page, "race-narrow");
  await fits(page);
  await accessible(page);
  await fits(page);
});

await browser.close();
console.log("the page is silent, its controls work, and axe finds nothing serious");
