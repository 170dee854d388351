// Links the lines of all stages. A line is known by what it comes from, finest first:
// source lines, statements of the lowered IR, tags (blocks, loops, allocations). Two
// lines are linked by the finest of these that both of their stages have.
"use strict";

const links = JSON.parse(document.getElementById("links").textContent);
const stages = Object.keys(links.stages);
for (const stage of Object.values(links.stages)) { // lines share their sets of tags
  for (const kind of ["own", "around"]) stage[kind] = stage[kind]?.map((set) => links.sets[set]);
}
for (const stage of Object.values(links.stages)) { // machine code has what its source lines have
  for (const kind of ["own", "around", "statements"]) {
    stage[kind] ??= stage.sources.map((line) => (line ? links.stages.source[kind][line - 1] : []));
  }
}
const status = document.getElementById("status");
const root = document.documentElement;
let pinned = null;
let shown = [];

function place(line) {
  const [stage, number] = line.id.split(":");
  return { stage, index: Number(number) - 1 };
}

function lineAt(stage, index) {
  return document.getElementById(`${stage}:${index + 1}`);
}

// What links a line to another stage: [kind, the values of that kind].
function keysOf(stage, index, other) {
  const from = links.stages[stage], to = links.stages[other];
  if (from.sources.length && to.sources.length) {
    const line = from.sources[index];
    return ["sources", line ? [line] : []];
  }
  if (from.statements.length && to.statements.length) {
    return ["statements", from.statements[index]];
  }
  return ["own", from.own[index]];
}

function valuesOf(stage, index, kind) {
  const found = links.stages[stage][kind][index];
  return kind === "sources" ? (found ? [found] : []) : found;
}

function meet(some, others) {
  return some.some((value) => others.includes(value));
}

// The lines of a stage that come from the same as a line, and those around or inside;
// a line that serves more blocks than those asked for is around them.
function linkedIn(stage, index, other) {
  const [kind, keys] = keysOf(stage, index, other);
  const own = links.stages[stage].own[index];
  const strong = [], weak = [];
  links.stages[other].own.forEach((_, at) => {
    const values = valuesOf(other, at, kind);
    const serves = kind === "own" && other !== "definition" && values.length > keys.length;
    if (meet(keys, values)) (serves ? weak : strong).push(at);
    else if (meet(own, links.stages[other].around[at])) weak.push(at);
  });
  return { strong, weak };
}

function clear() {
  for (const line of shown) line.classList.remove("strong", "weak", "current");
  shown = [];
}

function mark(stage, index, name) {
  const line = lineAt(stage, index);
  if (!line) return; // of a long stage that was not shown yet
  line.classList.add(name);
  shown.push(line);
}

// Makes the lines of a long stage, which are text until it is shown.
function fill(name) {
  const text = document.getElementById(`lines:${name}`);
  if (!text) return;
  const size = Number(text.dataset.part), lines = text.textContent.split("\n");
  const parts = [];
  for (let at = 0; at < lines.length; at += size) {
    const part = lines.slice(at, at + size).map((line, n) => `<div class=line id=${name}:${at + n + 1}><code>${line}</code></div>`);
    parts.push(`<div class=part style="--at:${at};--lines:${part.length}">${part.join("")}</div>`);
  }
  document.querySelector(`#${name} > pre`).innerHTML = parts.join("");
  text.remove();
  if (pinned) reveal(pinned, false);
}

function scrollTo(line) {
  const panel = line?.closest("pre");
  if (!panel || !panel.offsetParent) return;
  const top = line.getBoundingClientRect().top - panel.getBoundingClientRect().top + panel.scrollTop;
  if (top < panel.scrollTop || top > panel.scrollTop + panel.clientHeight - 20) {
    panel.scrollTop = top - panel.clientHeight / 3;
  }
}

function say(stage, index) {
  const names = links.stages[stage].own[index].map((tag) => links.tags[tag]);
  const several = names.filter((name) => name.startsWith("block ")).length > 1;
  const text = names.length ? `${several ? "may be of any of: " : ""}${names.join(", ")}` : "linked to nothing";
  status.textContent = `${stage}:${index + 1} – ${text}`;
}

function reveal(line, scroll = true) {
  clear();
  const { stage, index } = place(line);
  for (const other of stages) {
    if (other === stage) continue;
    const { strong, weak } = linkedIn(stage, index, other);
    for (const at of weak) mark(other, at, "weak");
    for (const at of strong) mark(other, at, "strong");
    const first = strong.length ? strong[0] : weak[0];
    if (scroll && first !== undefined) scrollTo(lineAt(other, first));
  }
  mark(stage, index, "current");
  say(stage, index);
}

function pin(line) {
  pinned = line;
  reveal(line);
  history.replaceState(null, "", `#${line.id}`);
}

function unpin() {
  pinned = null;
  clear();
  history.replaceState(null, "", location.pathname + location.search);
}

function toggle(name, on) {
  const section = document.getElementById(name);
  const button = document.querySelector(`button[data-stage="${name}"]`);
  section.hidden = on === undefined ? !section.hidden : !on;
  if (!section.hidden) fill(name);
  button.setAttribute("aria-pressed", String(!section.hidden));
}

function narrow() {
  return window.matchMedia("(max-width: 700px)").matches;
}

// On a narrow screen one panel is shown at a time.
function choose(name) {
  if (!narrow()) return toggle(name);
  for (const section of document.querySelectorAll("main > section")) {
    toggle(section.id, section.id === name);
  }
}

function setTheme(theme) {
  root.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function otherTheme() {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
}

function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (stages.includes(name.split(":")[0])) fill(name.split(":")[0]);
  const target = document.getElementById(name);
  if (!target) return;
  const section = target.closest("section");
  if (section && section.hidden) choose(section.id);
  if (target.classList.contains("line")) {
    pin(target);
    scrollTo(target);
    target.closest("pre").focus({ preventScroll: true });
  } else if (target.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView();
  } else if (target === section) {
    section.scrollIntoView();
  }
}

function current() {
  return document.querySelector(".line.current");
}

function move(by) {
  const panel = document.activeElement.closest?.("section");
  const now = current();
  let line = now && (!panel || panel.contains(now)) ? now : null;
  if (!line) line = (panel || document.querySelector("section")).querySelector(".line");
  else {
    const { stage, index } = place(line);
    line = lineAt(stage, index + by) || line;
  }
  if (!line) return;
  pinned = line;
  reveal(line);
  scrollTo(line);
}

function across(by) {
  const panels = [...document.querySelectorAll("section:not([hidden]) > pre")];
  const now = panels.indexOf(document.activeElement);
  const next = panels[(now + by + panels.length) % panels.length];
  if (!next) return;
  const line = next.querySelector(".strong, .weak") || next.querySelector(".line");
  next.focus({ preventScroll: true });
  pinned = line;
  reveal(line);
  scrollTo(line);
}

const keys = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  ArrowRight: () => across(1),
  ArrowLeft: () => across(-1),
  Enter: () => current() && pin(current()),
  Escape: unpin,
  d: otherTheme,
  t: () => choose("trace"),
  f: () => choose("facts"),
};
if (document.getElementById("search")) keys.s = () => choose("search");
if (document.getElementById("compare")) keys.c = () => choose("compare");
stages.forEach((name, index) => { keys[String(index + 1)] = () => choose(name); });

document.addEventListener("keydown", (event) => {
  const onControl = event.target.closest("button, summary, a");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (!(event.key in keys) || (onControl && event.key === "Enter")) return;
  event.preventDefault();
  keys[event.key]();
});
document.addEventListener("mouseover", (event) => {
  const line = event.target.closest(".line");
  if (line && !pinned) reveal(line);
});
document.addEventListener("click", (event) => {
  const line = event.target.closest(".line");
  if (!line) return;
  event.preventDefault();
  if (line === pinned) unpin();
  else pin(line);
});
for (const button of document.querySelectorAll("button[data-stage]")) {
  button.addEventListener("click", () => choose(button.dataset.stage));
}
document.getElementById("theme").addEventListener("click", otherTheme);
window.addEventListener("hashchange", follow);
setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
if (narrow()) choose(stages[0]);
follow();
