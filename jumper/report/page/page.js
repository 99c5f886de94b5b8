"use strict";
(() => {
  const find = id => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const values = data.values, rows = data.number.map((_, i) => i), LIMIT = 200;
  const at = (name, i) => name in values ? values[name][i] : null;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const three = v => v === 0 ? "0" : v.toLocaleString("en", Math.abs(v) >= 99.95 ? {maximumFractionDigits: 0} :
    {minimumFractionDigits: Math.abs(v) >= 9.995 ? 1 : 2, maximumFractionDigits: Math.abs(v) >= 9.995 ? 1 : 2});
  const bytes = v => { let u = 0; while (Math.abs(v) >= 999.5 && u < 5) { v /= 1024; u++ } return (u ? three(v) : v.toFixed(0)) + " " + units[u] };
  const seconds = v => v > 0 && v < .9995 ? three(v * 1e3) + " ms" : v < 600 ? three(v) + " s" :
    v < 3600 ? `${Math.floor(v / 60)} min ${String(Math.floor(v % 60)).padStart(2, "0")} s` : `${Math.floor(v / 3600)} h ${String(Math.floor(v % 3600 / 60)).padStart(2, "0")} min`;
  const clock = ms => new Date(ms).toISOString().slice(11, 19);
  const cores = i => { const c = at("cpu_s", i), w = at("wall_s", i); return c === null || !w ? null : c / w };
  const failed = i => ["failed", "lost"].includes(at("state", i));

  // one column of the table: title, value to sort by, text, alignment, meaning
  const CALLS = "through system calls";
  const COLUMNS = [
    ["task", i => at("key", i), String, "l"], ["state", i => at("state", i), String, "l"], ["node", i => at("node", i), String, "l"],
    ["start", i => data.start[i], clock], ["wall time", i => at("wall_s", i), seconds], ["CPU time", i => at("cpu_s", i), seconds],
    ["cores", cores, three], ["memory peak", i => at("memory_peak_bytes", i), bytes], ["asked", i => at("memory_asked_bytes", i), bytes],
    ["read", i => at("read_chars", i), bytes, , CALLS], ["written", i => at("write_chars", i), bytes, , CALLS],
    ["flags", i => at("flags", i), String, "l"],
  ].filter(([, value]) => rows.some(i => value(i) !== null));

  const element = (tag, text, name) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (name) e.className = name; return e };
  const model = name => { for (const d of window.Bokeh?.documents ?? []) { const m = d.get_model_by_name(name); if (m) return m } return null };

  for (const button of document.querySelectorAll(".copy")) button.onclick = async () => {
    const code = button.previousElementSibling;
    try { await navigator.clipboard.writeText(code.textContent); button.textContent = "copied" }
    catch { getSelection().selectAllChildren(code); button.textContent = "selected" }
    setTimeout(() => { button.textContent = "copy" }, 1500);
  };

  const table = find("tasks");
  if (table) {
    const head = table.tHead.rows[0], body = table.tBodies[0], filter = find("filter"), group = find("group"), more = find("more");
    let order = COLUMNS.findIndex(c => c[0] === "wall time"), down = true, chosen = null, limit = LIMIT;
    if (order < 0) order = 0;
    const haystack = rows.map(i => ["key", "node", "worker", "state", "flags", "group"].map(n => at(n, i) ?? "").join(" ").toLowerCase());

    for (const name of [...new Set(values.group ?? [])].filter(n => n !== null).sort()) group.append(element("option", name));
    COLUMNS.forEach(([title, , , side, meaning], c) => {
      const th = element("th", undefined, side), button = element("button", title);
      th.scope = "col"; th.title = meaning ?? ""; button.type = "button";
      th.onclick = () => { down = c === order ? !down : side !== "l"; order = c; draw() };
      th.append(button); head.append(th);
    });

    function line(i) {
      const tr = element("tr");
      tr.dataset.row = i;
      COLUMNS.forEach(([title, value, text, side], c) => {
        const v = value(i), words = v === null ? "" : text(v), td = element("td", c ? words : undefined, side);
        if (side) td.title = words;
        if (c === 0) {
          const dot = element("span", "", "dot"), button = element("button", words);
          dot.style.background = data.colours[at("group", i) ?? ""] ?? "#999";
          button.type = "button"; button.tabIndex = -1;
          td.append(dot, button);
        }
        if (title === "state" && failed(i)) td.classList.add("bad");
        tr.append(td);
      });
      return tr;
    }

    function mark() {
      for (const tr of body.rows) {
        const on = +tr.dataset.row === chosen;
        tr.classList.toggle("chosen", on);
        on ? tr.setAttribute("aria-current", "true") : tr.removeAttribute("aria-current");
        tr.querySelector("button").tabIndex = on ? 0 : -1;
      }
      if (body.rows.length && !body.querySelector("[tabindex='0']")) body.querySelector("button").tabIndex = 0;
    }

    function draw() {
      [...head.cells].forEach((th, c) => th.setAttribute("aria-sort", c !== order ? "none" : down ? "descending" : "ascending"));
      const words = filter.value.toLowerCase().split(/\s+/), value = COLUMNS[order][1];
      const kept = rows.filter(i => (!group.value || at("group", i) === group.value) && words.every(w => haystack[i].includes(w)));
      kept.sort((a, b) => { const x = value(a), y = value(b);
        return x === y ? 0 : x === null ? 1 : y === null ? -1 : (x < y ? -1 : 1) * (down ? -1 : 1) });
      find("count").textContent = kept.length.toLocaleString("en") + (kept.length === 1 ? " task" : " tasks") +
        (kept.length > limit ? `, first ${limit.toLocaleString("en")} shown` : "");
      more.hidden = kept.length <= limit;
      body.replaceChildren(...kept.slice(0, limit).map(line));
      mark();
    }

    function curve(points, colour, words) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), last = points.length - 1 || 1;
      svg.setAttribute("viewBox", "0 0 300 46"); svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("role", "img"); svg.setAttribute("aria-label", words);
      const line = points.map((y, i) => `${(i / last * 300).toFixed(1)},${(44 - y * .41).toFixed(1)}`).join(" ");
      for (const [tag, path, style] of [["polygon", `0,46 ${line} 300,46`, {fill: colour, opacity: .25}],
        ["polyline", line, {fill: "none", stroke: colour, "stroke-width": 1.5, "vector-effect": "non-scaling-stroke"}]]) {
        const shape = document.createElementNS(svg.namespaceURI, tag);
        shape.setAttribute("points", path);
        for (const [k, v] of Object.entries(style)) shape.setAttribute(k, v);
        svg.append(shape);
      }
      return svg;
    }

    function show(i) {
      chosen = i;
      const detail = find("detail"), colour = data.colours[at("group", i) ?? ""] ?? "#999", curves = data.curves[data.number[i]] ?? {};
      detail.replaceChildren(element("b", at("key", i) ?? ""));
      const own = at("thread", i) === null;
      for (const [name, title, top] of [["cpu", own ? "CPU of its processes" : "CPU of its thread", v => three(v) + " cores"],
                                        ["memory", own ? "memory of its processes" : "memory of its process", bytes]]) {
        if (!(name in curves)) continue;
        const line = element("div", undefined, "curve"), most = "up to " + top(curves[name].top);
        line.append(element("span", title), element("span", most));
        detail.append(line, curve(curves[name].points, colour, `${title}, ${most}`));
      }
      const list = element("dl");
      for (const {name, unit, meaning} of data.columns) {
        const v = at(name, i);
        if (v === null || name === "key" || name === "stop_ns") continue;
        const dt = element("dt", name), text = name === "start_ns" ? clock(data.start[i]) : unit === "B" ? `${bytes(v)}` : unit === "s" ? seconds(v) : typeof v === "number" ? String(v) : v;
        dt.title = meaning;
        list.append(dt, element("dd", text));
      }
      detail.append(list);
      mark();
    }

    function pick(i) {
      show(i);
      const source = model("jumper-tasks");
      if (!source) return;
      const bar = Array.from(source.data.number).indexOf(data.number[i]);
      source.selected.indices = bar < 0 ? [] : [bar];
    }
    window.jumperShow = number => {
      const i = data.number.indexOf(number);
      if (i < 0 || i === chosen) return;
      filter.value = ""; group.value = "";
      show(i); draw();
      const tr = body.querySelector(".chosen");
      if (tr) tr.scrollIntoView({block: "nearest"});
    };
    body.onclick = event => { const tr = event.target.closest("tr"); if (tr) pick(+tr.dataset.row) };
    body.onkeydown = event => {
      const tr = event.target.closest("tr"), last = body.rows.length - 1, here = tr ? tr.sectionRowIndex : 0;
      const to = {ArrowDown: Math.min(here + 1, last), ArrowUp: Math.max(here - 1, 0), Home: 0, End: last}[event.key];
      if (to === undefined) return;
      event.preventDefault();
      pick(+body.rows[to].dataset.row);
      body.rows[to].querySelector("button").focus();
    };
    filter.oninput = group.onchange = () => { limit = LIMIT; draw() };
    more.onclick = () => { limit += 1000; draw() };
    draw();
    if (body.rows.length) show(+body.rows[0].dataset.row);
  }

  const reset = find("reset");
  const link = () => {
    const range = model("jumper-time");
    if (!range) return setTimeout(link, 50);
    const {start, end} = range;
    const to = (a, b) => { const width = Math.min(b - a, end - start); a = Math.max(start, Math.min(a, end - width)); range.setv({start: a, end: a + width}) };
    const steer = {
      left: (a, b) => to(a - (b - a) / 4, b - (b - a) / 4), right: (a, b) => to(a + (b - a) / 4, b + (b - a) / 4),
      in: (a, b) => to(a + (b - a) / 4, b - (b - a) / 4), out: (a, b) => to(a - (b - a) / 2, b + (b - a) / 2), all: () => to(start, end),
    };
    const keys = {ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", "0": "all"};
    const go = name => steer[name](range.start, range.end);
    for (const button of document.querySelectorAll("[data-steer]")) button.onclick = () => go(button.dataset.steer);
    find("pictures").onkeydown = event => { const name = keys[event.key]; if (name && !event.ctrlKey && !event.metaKey) { event.preventDefault(); go(name) } };
    reset.onclick = () => go("all");
    const told = () => {
      reset.hidden = range.start === start && range.end === end;
      find("shown").textContent = reset.hidden ? "" : `${clock(range.start)} to ${clock(range.end)}`;
    };
    range.properties.start.change.connect(told);
    range.properties.end.change.connect(told);
  };
  // a title in as many lines as the part of its row that can be seen asks for; the row is higher by the others
  const pen = document.createElement("canvas").getContext("2d");
  function lines(words, room) {
    const found = [];
    for (const word of words.split(" ")) {
      const longer = found.length ? `${found.at(-1)} ${word}` : word;
      if (found.length && pen.measureText(longer).width <= room) found[found.length - 1] = longer; else found.push(word);
    }
    return found;
  }
  function broken(drawing) {
    pen.font = `bold 13px ${getComputedStyle(document.body).fontFamily}`;
    for (const {attributes: row} of drawing.doc.roots[0].attributes.children) {
      const title = row.title.attributes, found = lines(title.text, find("pictures").clientWidth - row.min_border_left);
      title.text = found.join("\n");
      row.height += (found.length - 1) * 15;
    }
    return drawing;
  }
  if (reset && window.Bokeh) {
    Bokeh.embed.embed_item(broken(JSON.parse(find("drawing").textContent)), "pictures");
    link();
  }
})();
