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

  // one column of the table: title, value to sort by, text, alignment
  const COLUMNS = [
    ["task", i => at("key", i), String, "l"], ["state", i => at("state", i), String, "l"], ["node", i => at("node", i), String, "l"],
    ["start", i => data.start[i], clock], ["wall time", i => at("wall_s", i), seconds], ["CPU time", i => at("cpu_s", i), seconds],
    ["cores", cores, three], ["memory peak", i => at("memory_peak_bytes", i), bytes], ["asked", i => at("memory_asked_bytes", i), bytes],
    ["read", i => at("read_chars", i), bytes], ["written", i => at("write_chars", i), bytes],
    ["flags", i => at("flags", i), String, "l"],
  ].filter(([, value]) => rows.some(i => value(i) !== null));

  const table = find("tasks");
  if (table) {
    const head = table.tHead.rows[0], body = table.tBodies[0], filter = find("filter"), group = find("group");
    let order = COLUMNS.findIndex(c => c[0] === "wall time"), down = true, chosen = null;
    if (order < 0) order = 0;
    const haystack = rows.map(i => ["key", "node", "worker", "state", "flags", "group"].map(n => at(n, i) ?? "").join(" ").toLowerCase());
    const element = (tag, text, name) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (name) e.className = name; return e };

    for (const name of [...new Set(values.group ?? [])].filter(n => n !== null).sort()) group.append(element("option", name));
    COLUMNS.forEach(([title, , , side], c) => {
      const th = element("th", title, side);
      th.onclick = () => { down = c === order ? !down : side !== "l"; order = c; draw() };
      head.append(th);
    });

    function draw() {
      [...head.cells].forEach((th, c) => c === order ? th.setAttribute("aria-sort", down ? "descending" : "ascending") : th.removeAttribute("aria-sort"));
      const words = filter.value.toLowerCase().split(/\s+/), value = COLUMNS[order][1];
      const kept = rows.filter(i => (!group.value || at("group", i) === group.value) && words.every(w => haystack[i].includes(w)));
      kept.sort((a, b) => { const x = value(a), y = value(b);
        return x === y ? 0 : x === null ? 1 : y === null ? -1 : (x < y ? -1 : 1) * (down ? -1 : 1) });
      find("count").textContent = kept.length.toLocaleString("en") + (kept.length === 1 ? " task" : " tasks") + (kept.length > LIMIT ? `, first ${LIMIT} shown` : "");
      body.replaceChildren(...kept.slice(0, LIMIT).map(i => {
        const tr = element("tr");
        tr.dataset.row = i;
        if (i === chosen) tr.className = "chosen";
        COLUMNS.forEach(([title, value, text, side], c) => {
          const v = value(i), td = element("td", v === null ? "" : text(v), side);
          if (c === 0) { td.title = td.textContent; const dot = element("span", "", "dot"); dot.style.background = data.colours[at("group", i) ?? ""] ?? "#999"; td.prepend(dot) }
          if (title === "state" && failed(i)) td.classList.add("bad");
          tr.append(td);
        });
        return tr;
      }));
    }

    function curve(points, colour) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), last = points.length - 1 || 1;
      svg.setAttribute("viewBox", "0 0 300 46"); svg.setAttribute("preserveAspectRatio", "none");
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
      for (const tr of body.rows) tr.classList.toggle("chosen", +tr.dataset.row === i);
      const detail = find("detail"), colour = data.colours[at("group", i) ?? ""] ?? "#999", curves = data.curves[data.number[i]] ?? {};
      detail.replaceChildren(element("b", at("key", i) ?? ""));
      for (const [name, title, top] of [["cpu", at("thread", i) === null ? "CPU of the process" : "CPU of its thread", v => three(v) + " cores"], ["memory", "memory of the process", bytes]]) {
        if (!(name in curves)) continue;
        const line = element("div", undefined, "curve");
        line.append(element("span", title), element("span", "up to " + top(curves[name].top)));
        detail.append(line, curve(curves[name].points, colour));
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
    }

    const model = name => { for (const d of window.Bokeh?.documents ?? []) { const m = d.get_model_by_name(name); if (m) return m } return null };
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
    filter.oninput = group.onchange = draw;
    draw();
    if (body.rows.length) show(+body.rows[0].dataset.row);

    const reset = find("reset");
    const link = () => {
      const range = model("jumper-time");
      if (!range) return setTimeout(link, 100);
      const {start, end} = range;
      reset.onclick = () => range.setv({start, end});
      const toggle = () => { reset.hidden = range.start === start && range.end === end };
      range.properties.start.change.connect(toggle);
      range.properties.end.change.connect(toggle);
    };
    if (reset && window.Bokeh) link();
  }
})();
