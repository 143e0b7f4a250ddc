"use strict";
const recording = JSON.parse(document.getElementById("recording").textContent);
const { steps, switches, bases } = recording;
const $ = (id) => document.getElementById(id), PARENT = -1; // in place of a child
const still = matchMedia("(prefers-reduced-motion: reduce)");
const compact = switches.some((each) => each.parent) || recording.words > 8 || recording.columns > 4;

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// ---- what was recorded
steps.forEach((step, number) => { step.number = number; });
const shown = (step) => step.round - (bases[step.slot] ?? 0); // the round as the page counts it
const below = (at, child) => { // the switch that is this child, or undefined for a rank
  const ranks = switches[at].children[child].join();
  return switches.findIndex((each) => each.parent === switches[at].name && each.children.flat().sort((a, b) => a - b).join() === ranks);
};
const rankOf = (at, child) => (child >= 0 && below(at, child) < 0 ? switches[at].children[child][0] : null);
const parentOf = (at) => switches.findIndex((each) => each.name === switches[at].parent);
const endOf = (at, child) => { // the element at the other end of a link
  if (child === PARENT) return $(`switch-${parentOf(at)}`);
  const rank = rankOf(at, child);
  return rank === null ? $(`switch-${below(at, child)}`) : $(`rank-${rank}`);
};
const childName = (at, child) => {
  const rank = rankOf(at, child);
  return rank === null ? switches[below(at, child)].name : `rank ${rank}`;
};
const wordsOf = (block) => block.words.match(/.{8}/g).map((word) => parseInt(word, 16) | 0);
const decimal = (word, shift) => (shift === null ? word : Number((word / 2 ** shift).toPrecision(6)));
const carried = (step) => Object.values(step.state ? step.state.sums : step.blocks).map((each) => each.block).filter((block) => block !== null);
const sentBy = Array.from({ length: recording.ranks }, () => new Set()); // every block that a rank sends in the recording
for (const step of steps) {
  const rank = step.type === "CONTRIBUTE" && step.child !== null ? rankOf(step.switch, step.child) : null;
  if (rank !== null) for (const block of Object.values(step.blocks)) if (block.block !== null) sentBy[rank].add(block.block);
}
const slots = [...new Set(steps.filter((step) => step.state).map((step) => `${step.switch}/${step.slot}`))].map((each) => each.split("/").map(Number)).sort((a, b) => a[0] - b[0] || a[1] - b[1]);

// ---- the elements, made once
const color = (rank) => `var(--rank-${rank % 7})`;
function build() {
  const call = recording.call;
  const what = call.kind ? `one ${call.kind}${call.elements ? ` of ${call.elements} ${["float32", "int32"].includes(call.codec) ? call.codec : "elements"}` : ""}` : "one slot";
  const many = switches.length > 1 ? `${switches.length} switches${switches.some((each) => each.parent) ? " as a tree" : " side by side"}` : "1 switch";
  $("about").textContent = `A recording in slow motion: ${what}, ${recording.ranks} ranks, ${many}, ${steps.length} frames in ${(steps.at(-1).at_us / 1000).toFixed(0)} ms.`;
  const from = Object.entries(bases).map(([slot, base]) => `${base} (slot ${slot})`).join(", ");
  $("recorded").textContent = `Job ${recording.job}, recorded ${recording.recorded} by p4reduce switch trace, which slows the switch down to milliseconds a frame. Rounds are counted from ${from}.` + (recording.cut ? " The collective has more frames than these." : "");
  for (let rank = 0; rank < recording.ranks; rank++) {
    const strip = make("div", { class: "strip", "data-term": "block", role: "img" });
    for (let block = 0; block < recording.blocks && recording.blocks <= 128; block++) strip.append(make("i", { title: `block ${block}` }));
    $("ranks").append(make("article", { id: `rank-${rank}`, class: "rank", style: `--own: ${color(rank)}` },
      make("h2", { "data-term": "rank" }, `rank ${rank}`), strip, make("p", { class: "count" })));
  }
  $("ranks").append(make("p", { class: "legend" }, make("i", { class: "zero" }), " zeros, not sent ", make("i", { class: "own" }), " to send ", make("i", { class: "sent" }), " sent ", make("i", { class: "got" }), " sum received"));
  const depths = switches.map((each, at) => { let depth = 0; for (let up = at; switches[up].parent; up = parentOf(up)) depth++; return depth; });
  const deepest = Math.max(...depths);
  for (let depth = deepest; depth >= 0; depth--) {
    const level = make("div", { class: "level" });
    switches.forEach((each, at) => { if (depths[at] === depth) level.append(buildSwitch(each, at)); });
    $("stage").insertBefore(level, $("frames"));
  }
  $("stage").style.setProperty("--columns", recording.columns);
  $("stage").classList.toggle("compact", compact);
  $("stage").classList.toggle("many", slots.length / switches.length > 4);
  switches.forEach((each, at) => each.children.forEach((_, child) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.id = `link-${at}-${child}`;
    $("links").append(line);
  }));
  for (const term of document.querySelectorAll("#all-terms dt")) $("terms").append(make("button", { "data-term": term.parentElement.id.slice(2), class: "term" }, term.textContent));
  $("at").max = steps.length;
  for (const step of steps) {
    const kind = step.answers.some((each) => each.lost) ? "loss" : step.verdict === "DUPLICATE" ? "again" : step.answers.some((each) => each.type === "RESULT") ? "sum" : "";
    $("ticks").append(make("i", { class: kind }));
  }
  const chapters = [
    ["Keys", steps.findIndex((step) => step.opening)],
    ["First data", steps.findIndex((step) => carried(step).length > 0)],
    ["First sum", steps.findIndex((step) => step.state?.complete && carried(step).length > 0)],
    ["A loss", steps.findIndex((step) => step.answers.some((each) => each.lost))],
    ["Its repetition", steps.findIndex((step) => step.verdict === "DUPLICATE")],
    ["The end", steps.length - 1],
  ];
  for (const [title, number] of chapters) {
    if (number < 0) continue;
    const button = make("button", {}, title);
    button.onclick = () => go(number + (still.matches ? 1 : 0), !still.matches && (playing || "one"));
    $("chapters").append(button);
  }
}

function buildSwitch(each, at) {
  const card = make("article", { id: `switch-${at}`, class: "switch" }, make("h2", {}, each.name));
  for (const [, slot] of slots.filter(([other]) => other === at)) {
    const box = make("div", { class: "slot" }, make("h3", { "data-term": "slot" }, `slot ${slot}`));
    for (const parity of [0, 1]) {
      const version = make("div", { class: "version", id: `version-${at}-${slot}-${parity}`, role: "group", "aria-label": `${each.name}, slot ${slot}, ${parity ? "odd" : "even"} rounds` });
      const seen = make("span", { class: "seen", "data-term": "seen", role: "img" });
      each.children.forEach((_, child) => {
        const rank = rankOf(at, child);
        seen.append(make("i", { style: rank === null ? null : `--own: ${color(rank)}`, title: childName(at, child) }, rank === null ? childName(at, child) : `${rank}`));
      });
      version.append(make("div", { class: "head" }, make("span", { class: "round", "data-term": "round" }), seen, make("span", { class: "status", "data-term": "version" })));
      for (let column = 0; column < recording.columns; column++) {
        const cell = make("button", { class: "cell", "data-term": "sum", title: "Check this sum" }, make("span", { class: "unseen" }, `column ${column}`), make("span", { class: "block" }), make("span", { class: "numbers" }), make("span", { class: "key", "data-term": "key" }));
        cell.onclick = () => { chosen = [at, slot, parity, column]; drawSum(happened()); };
        version.append(cell);
      }
      box.append(version);
    }
    card.append(box);
  }
  return card;
}

// ---- the state after so many frames
function stateAfter(count) {
  const versions = {}, sent = sentBy.map(() => new Set()), got = sentBy.map(() => new Set());
  for (const step of steps.slice(0, count)) {
    if (step.state) versions[`${step.switch}-${step.slot}-${step.round & 1}`] = step;
    const rank = step.type === "CONTRIBUTE" && step.child !== null ? rankOf(step.switch, step.child) : null;
    if (rank !== null) for (const block of Object.values(step.blocks)) if (block.block !== null) sent[rank].add(block.block);
    for (const answer of step.answers) {
      const to = answer.type === "RESULT" && !answer.lost ? rankOf(step.switch, answer.to) : null;
      if (to !== null) for (const block of carried(step)) got[to].add(block);
    }
  }
  return { versions, sent, got };
}

function drawState(count, arrived) { // `arrived`: the frame after `count` is in the slot already
  const { sent, got } = stateAfter(count);
  const { versions } = stateAfter(count + (arrived ? 1 : 0));
  const now = steps[count - 1 + (arrived ? 1 : 0)];
  sentBy.forEach((all, rank) => {
    const card = $(`rank-${rank}`), strip = card.querySelector(".strip"), skipped = recording.blocks - all.size;
    [...strip.children].forEach((cell, block) => { cell.className = `${all.has(block) ? (sent[rank].has(block) ? "sent" : "own") : recording.cut ? "" : "zero"}${got[rank].has(block) ? " got" : ""}`; });
    const words = `${sent[rank].size} ${recording.cut ? "blocks sent" : `of ${all.size} blocks sent, ${skipped} of zeros skipped`}, ${got[rank].size} sums received`;
    strip.setAttribute("aria-label", `rank ${rank}: ${words}`);
    card.querySelector(".count").textContent = words;
  });
  for (const [at, slot] of slots) for (const parity of [0, 1]) drawVersion(at, slot, parity, versions, now);
}

function drawVersion(at, slot, parity, versions, now) {
  const element = $(`version-${at}-${slot}-${parity}`), step = versions[`${at}-${slot}-${parity}`], other = versions[`${at}-${slot}-${1 - parity}`];
  const state = step?.state, children = switches[at].children;
  element.classList.toggle("now", Boolean(step) && step === now);
  if (step && step === now) element.closest(".switch").scrollTop = element.offsetTop - 240; // where there are many slots
  element.classList.toggle("complete", Boolean(state?.complete));
  element.querySelector(".round").textContent = step ? `round ${shown(step)}` : parity ? "odd rounds" : "even rounds";
  const missing = state ? children.map((_, child) => child).filter((child) => !((state.seen >>> child) & 1)) : [];
  const newer = other && state && other.round > step.round && other.state.complete;
  element.querySelector(".status").textContent = !state ? "unused" : !state.complete ? "filling" : newer ? "free again" : "complete: kept";
  const bits = element.querySelector(".seen");
  [...bits.children].forEach((bit, child) => bit.classList.toggle("on", Boolean(state) && Boolean((state.seen >>> child) & 1)));
  bits.setAttribute("aria-label", !state ? "nobody seen" : missing.length ? `not seen: ${missing.map((child) => childName(at, child)).join(", ")}` : "all seen");
  [...element.querySelectorAll(".cell")].forEach((cell, column) => {
    const sum = state?.sums[column], key = state ? state.keys[column] : undefined;
    const [, block, numbers, next] = cell.children, asked = sum ? sum.block : step?.asked[column];
    block.textContent = !state ? "" : sum && sum.block === null ? "the call" : (asked ?? null) !== null ? `${sum ? "Σ " : ""}${compact ? "" : "block "}${asked}` : "–";
    cell.classList.toggle("sum", Boolean(sum) && sum.block !== null);
    cell.classList.toggle("hit", step === now && Boolean(now?.blocks[column]) && now.verdict !== "DUPLICATE");
    numbers.replaceChildren(...(sum && sum.block !== null ? (compact ? [bars(sum)] : wordsOf(sum).map((word) => make("span", {}, `${decimal(word, sum.shift)}`.replace("-", "−")))) : []));
    next.textContent = key === undefined ? "" : `next ${key ?? "–"}`;
    cell.classList.toggle("chosen", chosen?.join() === [at, slot, parity, column].join());
  });
}

function bars(sum) {
  const words = wordsOf(sum), most = Math.max(1, ...words.map(Math.abs)), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = words.map((word, at) => `M${at + 0.5} 10V${(10 - (9 * word) / most).toFixed(1)}`).join("");
  svg.setAttribute("viewBox", `0 0 ${words.length} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.innerHTML = `<path d="${path}"/>`;
  return svg;
}

// ---- frames on links
const centre = (box) => [box.left + box.width / 2, box.top + box.height / 2];
const rectOf = (element) => {
  const box = element.getBoundingClientRect(), stage = $("stage").getBoundingClientRect();
  return { left: box.left - stage.left, top: box.top - stage.top, width: box.width, height: box.height, right: box.right - stage.left, bottom: box.bottom - stage.top };
};

function ends(at, child) { // from the child's edge to the switch's, which is left of it or above it
  const [from, to] = child === PARENT ? [rectOf($(`switch-${at}`)), rectOf(endOf(at, PARENT))] : [rectOf(endOf(at, child)), rectOf($(`switch-${at}`))];
  const number = child === PARENT ? switches[parentOf(at)].children.findIndex((_, each) => below(parentOf(at), each) === at) : child;
  const of = child === PARENT ? switches[parentOf(at)].children.length : switches[at].children.length;
  const share = (number + 0.5) / of;
  const beside = from.right < to.left;
  const points = beside ? [[from.right, centre(from)[1]], [to.left, to.top + to.height * (0.25 + share / 2)]] : [[centre(from)[0], from.bottom], [to.left + to.width * (0.1 + 0.8 * share), to.top]];
  return child === PARENT ? points.reverse() : points;
}

function drawLinks() {
  switches.forEach((each, at) => each.children.forEach((_, child) => {
    const [from, to] = ends(at, child);
    $(`link-${at}-${child}`).setAttribute("d", `M${from}L${to}`);
  }));
}

function along(points, share) { // the point at this share of a way
  const parts = points.slice(1).map((to, at) => Math.hypot(to[0] - points[at][0], to[1] - points[at][1]));
  let left = share * parts.reduce((sum, part) => sum + part, 0), at = 0;
  while (at < parts.length - 1 && left > parts[at]) left -= parts[at++];
  const ratio = parts[at] ? left / parts[at] : 0;
  return [0, 1].map((axis) => points[at][axis] + (points[at + 1][axis] - points[at][axis]) * ratio);
}

function wayOf(step, child) { // from the other end of the link to the slot
  const way = ends(step.switch, child), version = step.state && $(`version-${step.switch}-${step.slot}-${step.round & 1}`);
  if (!version) return way;
  const box = rectOf(version.querySelector(".seen"));
  return [...way, [box.left + 12, centre(box)[1]]];
}
const label = (type, blocks) => {
  const numbers = blocks.map((each) => each.block).filter((block) => block !== null);
  return type === "PENDING" ? "PENDING" : `${type === "RESULT" && numbers.length ? "Σ " : ""}${numbers.length ? numbers.join(" · ") : "keys"}`;
};

function framesOf(step) { // every frame of a step: its link, direction, and when it travels
  const found = [], part = step.answers.length ? 0.42 : 0.7, sums = Object.values(step.state ? step.state.sums : step.blocks);
  if (step.child !== null) found.push({ step, child: step.child, up: true, begin: 0, end: part, text: step.type ? label(step.type, Object.values(step.blocks)) : "damaged", type: step.type });
  for (const answer of step.answers) {
    const toSwitch = answer.to === PARENT || rankOf(step.switch, answer.to) === null; // shown when it arrives there
    if (!toSwitch || answer.lost) found.push({ step, child: answer.to, up: false, begin: part + 0.1, end: 0.97, text: label(answer.type, sums), type: answer.type, lost: answer.lost });
  }
  return found;
}

let tokens = [], tokensOf = null;
function drawFrames(count, phase) {
  const step = steps[phase > 0 ? count : count - 1];
  if (tokensOf !== step) {
    tokensOf = step;
    for (const link of $("links").children) link.classList.remove("on", "lost");
    tokens = step ? framesOf(step) : [];
    $("frames").replaceChildren(...tokens.map((each) => {
      const rank = each.up && each.child !== PARENT ? rankOf(step.switch, each.child) : null;
      each.element = make("span", { class: `frame ${each.type}${each.text === "keys" ? " keys" : ""}${rank !== null && rank % 7 === 0 ? " deep" : ""}`, style: rank === null ? null : `--own: ${color(rank)}`, "data-term": each.type === "CONTRIBUTE" ? "contribution" : each.type || "frame" }, each.text);
      const [at, child] = each.child === PARENT ? [parentOf(step.switch), switches[parentOf(step.switch)].children.findIndex((_, other) => below(parentOf(step.switch), other) === step.switch)] : [step.switch, each.child];
      $(`link-${at}-${child}`)?.classList.add(each.lost ? "lost" : "on");
      return each.element;
    }));
  }
  for (const each of tokens) {
    let share = phase > 0 ? (phase - each.begin) / (each.end - each.begin) : each.up ? 0.2 : 0.5;
    each.element.hidden = share < 0 || (share > 1 && !each.lost);
    const lost = each.lost && (phase === 0 || share > 0.6);
    each.element.classList.toggle("gone", Boolean(lost));
    if (each.lost) share = Math.min(share, 0.6);
    const eased = Math.max(0, share * share * (3 - 2 * share));
    const [x, y] = along(wayOf(step, each.child), each.up ? eased : 1 - eased);
    each.element.style.transform = `translate(${x}px, ${y}px) translate(-50%, -50%)`;
  }
}

// ---- check a sum by hand
let chosen = null, followed = null;
function drawSum(count) {
  const step = steps[count - 1];
  const adds = (each, column) => each.switch === step.switch && each.slot === step.slot && each.round === step.round && each.blocks[column];
  if (!chosen && step?.state && carried(step).length) {
    const columns = Object.keys(step.state.sums).map((column) => [steps.slice(0, count).filter((each) => adds(each, column)).length, column]);
    followed = [step.switch, step.slot, step.round & 1, Number(columns.sort((a, b) => b[0] - a[0])[0][1])];
  }
  const [at, slot, parity, column] = chosen ?? followed ?? [];
  const last = at === undefined ? null : stateAfter(count).versions[`${at}-${slot}-${parity}`], sum = last?.state.sums[column];
  for (const cell of document.querySelectorAll(".cell.chosen")) cell.classList.remove("chosen");
  if (chosen) document.querySelectorAll(`#version-${at}-${slot}-${parity} .cell`)[column].classList.add("chosen");
  $("sum").replaceChildren();
  if (!sum) { $("sum-of").textContent = chosen ? "This column holds no sum now." : "Choose a column of a slot, or play: the last sum is shown here."; return; }
  const what = sum.block === null ? "words that describe the call" : `block ${sum.block}`;
  $("sum-of").textContent = `Slot ${slot}, round ${shown(last)}, column ${column}: ${what}${sum.shift === null ? "" : `; a number is its integer / 2^${sum.shift}`}.`;
  const row = (name, block, kind) => make("tr", { class: kind }, make("th", { scope: "row" }, name), ...(typeof block === "string" ? [make("td", { colspan: recording.words, class: "zeros" }, block)] : wordsOf(block).map((word) => make("td", {}, make("b", {}, `${block.shift === null ? (word >>> 0).toString(16) : decimal(word, block.shift)}`.replace("-", "−")), block.shift ? make("small", {}, `${word}`.replace("-", "−")) : ""))));
  const table = make("table", {}, make("tr", {}, make("th", { scope: "col" }, "from"), ...Array.from({ length: recording.words }, (_, word) => make("th", { scope: "col" }, `${word}`))));
  for (const each of steps.slice(0, count)) {
    if (each.switch !== at || each.slot !== slot || each.round !== last.round || !["FIRST", "ADD"].includes(each.verdict)) continue;
    table.append(row(childName(at, each.child), each.blocks[column] ?? "zeros: not sent", ""));
  }
  table.append(row(last.state.complete ? "sum" : "sum so far", sum, "total"));
  $("sum").append(table);
}

// ---- playback
let at = 0, playing = false, speed = 1, until = Infinity, before = 0; // at: frames that have happened, with a fraction
const happened = () => Math.floor(at);
function draw() {
  const count = happened(), phase = at - count, step = steps[count], arrived = phase > 0 && phase >= (step?.answers.length ? 0.42 : 0.7);
  const told = steps[phase > 0 ? count : count - 1];
  const key = `${count}/${arrived}/${phase > 0}`;
  if (draw.key !== key) {
    draw.key = key;
    drawState(count, arrived);
    drawSum(count + (arrived ? 1 : 0));
    $("says").textContent = told ? told.says : "Press play: each frame that arrives at a switch is one step.";
    const when = !told ? "" : told.verdict === "DUPLICATE" || told.answers.some((each) => each.lost) ? "loss" : told.answers.some((each) => each.type === "RESULT") && carried(told).length ? "sum" : told.opening ? "keys" : "add";
    for (const item of $("story").children) item.classList.toggle("on", item.dataset.when === when);
    $("at").value = phase > 0 ? count + 1 : count;
    $("at").setAttribute("aria-valuetext", told ? `${told.number + 1} of ${steps.length}: ${told.says}` : "the beginning");
    $("clock").textContent = told ? `frame ${told.number + 1} of ${steps.length}, +${(told.at_us / 1000).toFixed(1)} ms` : `${steps.length} frames`;
    [...$("ticks").children].forEach((tick, number) => tick.classList.toggle("past", number < count + (arrived ? 1 : 0)));
    drawLinks();
  }
  drawFrames(count, phase);
}

function play(on) {
  playing = on;
  $("play").textContent = on ? "‖ Pause" : "▶ Play";
  $("says").setAttribute("aria-live", on === true ? "off" : "polite");
  before = performance.now();
  if (on) requestAnimationFrame(tick);
}

function tick(now) {
  if (!playing) return;
  const step = steps[happened()], ms = step?.answers.length ? 1700 : 1000, elapsed = ((now - before) / ms) * speed;
  if (still.matches) {
    if (elapsed >= 1) { at = Math.min(steps.length, happened() + 1); before = now; }
  } else {
    at = Math.min(at + elapsed, happened() + 1, steps.length);
    before = now;
  }
  if (at >= Math.min(until, steps.length)) { at = Math.min(until, steps.length); until = Infinity; play(false); } else requestAnimationFrame(tick);
  draw();
}

function go(to, on = false) { // to a number of frames; `on` "one": show the next frame's way, then stop
  at = Math.max(0, Math.min(steps.length, to));
  until = on === "one" ? happened() + 1 : Infinity;
  draw();
  play(Boolean(on));
}
const forth = () => (still.matches || at >= steps.length ? go(happened() + 1) : go(playing && at > happened() ? happened() + 1 : happened(), "one"));
const back = () => go(Math.ceil(at) - 1);
const toggle = () => (playing ? play(false) : at >= steps.length ? go(0, true) : ((until = Infinity), play(true)));

$("play").onclick = toggle;
$("first").onclick = () => go(0);
$("back").onclick = back;
$("forth").onclick = forth;
$("at").oninput = () => go(Number($("at").value));
$("speed").onchange = () => { speed = Number($("speed").value); };
document.addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, select"), button = event.target.closest?.("button, summary, a");
  const keys = { ArrowRight: forth, ArrowLeft: back, Home: () => go(0), End: () => go(steps.length), " ": toggle, "+": () => faster(1), "-": () => faster(-1) };
  if (!keys[event.key] || field || (button && event.key === " ") || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  keys[event.key]();
});
function faster(by) {
  const select = $("speed");
  select.selectedIndex = Math.max(0, Math.min(select.length - 1, select.selectedIndex + by));
  select.onchange();
}

// ---- explanations
function explain(event) {
  const term = event.target.closest?.("[data-term]")?.dataset.term, entry = term && $(`g-${term}`);
  if (!entry) return;
  document.body.dataset.on = term;
  const [name, meaning] = entry.children, link = make("a", { href: `#g-${term}` }, "in the glossary");
  link.onclick = () => { $("all-terms").open = true; };
  $("explained").replaceChildren(make("dfn", {}, name.textContent), `: ${meaning.textContent} (`, link, ")");
}
for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, explain);
document.addEventListener("mouseout", (event) => { if (event.target.closest?.("[data-term]")) delete document.body.dataset.on; });

build();
explain({ target: document.querySelector("#terms [data-term=slot]") });
delete document.body.dataset.on;
addEventListener("resize", () => { drawLinks(); draw(); });
const linked = /^#(\d+)$/.exec(location.hash);
go(linked ? Number(linked[1]) : 0, !linked && !still.matches);
