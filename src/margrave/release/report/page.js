"use strict";
/* The pickers of the report: choose a table, show it as numbers, heat map and error bars. Labels are free text and enter
   the page as text only. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const { attributes, tables, words } = data;
  const leftOut = new Set(data.leftOut);
  const NONE = -1;
  /* Charts of more lines than this are no longer read; the table is there for them. */
  const MOST_DRAWN = 130;
  const first = data.first.split(",").map(Number);
  /* Wider tables are printed in parts of so many columns. */
  const MOST_PRINTED = 6;
  const state = { row: first[0], column: first[1] ?? NONE, only: NONE, value: 0, measure: "count", form: "number", bar: 0 };

  const key = (positions) => [...positions].sort((a, b) => a - b).join(",");
  const has = (positions) => Object.hasOwn(tables, key(positions));
  const size = (position) => attributes[position].labels.length;
  const label = (position, code) => attributes[position].labels[code] || "(empty)";
  const labels = (position) => attributes[position].labels.map((_, code) => label(position, code));
  const name = (position) => attributes[position].name;

  /* One cell of the table over the attributes of `codes`, a Map from position to code; nothing where it is not here. */
  function cell(codes) {
    const positions = [...codes.keys()].sort((a, b) => a - b);
    if (!has(positions)) return null;
    const table = tables[key(positions)];
    let place = 0;
    for (const position of positions) place = place * size(position) + codes.get(position);
    const part = (column) => (table[column] ? table[column][place] : null);
    return {
      count: part("count"), countLow: part("countLow"), countHigh: part("countHigh"), flag: Number(part("flag") ?? 0),
      estimate: part("estimate"), low: part("low"), high: part("high"), margin: table.margin ?? null,
    };
  }

  /* The attributes and codes that are picked: a row or column of NONE stands for all of its values. */
  function pick(row, column) {
    const codes = new Map();
    if (row !== NONE) codes.set(state.row, row);
    if (column !== NONE && state.column !== NONE) codes.set(state.column, column);
    if (state.only !== NONE) codes.set(state.only, state.value);
    return cell(codes);
  }

  const wholes = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const shown = (value) => (value === null ? "–" : wholes.format(value).replace("-", "−"));
  const end = (value) => (Number.isInteger(value) ? wholes : fine).format(value);
  const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const measured = (one) => (one ? one[state.measure] ?? null : null);
  /* A count has its own interval where one was learned, and otherwise that of its unbiased estimate. */
  const ends = (one) => (state.measure === "count" && one.countLow !== null ? [one.countLow, one.countHigh] : [one.low, one.high]);
  const between = (one) => (one && ends(one)[0] !== null ? ends(one).map(end).join(" to ") : "");
  /* The cell that a percentage is of: the row, the column or all. */
  const whole = (row, column) => pick(state.form === "row" ? row : NONE, state.form === "column" ? column : NONE);
  const flag = (one) => (one && state.measure === "count" ? one.flag : 0);

  /* What is shown of a cell: its number, or its share of the row, of the column or of all. */
  function value(row, column) {
    const number = measured(pick(row, column));
    if (state.form === "number" || number === null) return number;
    const all = measured(whole(row, column));
    return all > 0 ? (100 * number) / all : null;
  }

  /* The interval of what is shown of a cell. A share lies between the least part of the most and the most of the least. */
  function interval(row, column) {
    const [part, all] = [pick(row, column), state.form === "number" ? null : whole(row, column)];
    if (state.form === "number") return between(part);
    const same = (state.form === "row" ? column : row) === NONE && (state.form !== "all" || column === NONE);
    if (same || !part || !all || ends(part)[0] === null || ends(all)[0] === null || !(ends(all)[1] > 0)) return "";
    const [low, high] = [ends(part)[0] / ends(all)[1], ends(all)[0] > 0 ? ends(part)[1] / ends(all)[0] : 1];
    return [low, high].map((one) => tenths.format(100 * Math.min(1, Math.max(0, one)))).join(" to ");
  }

  const text = (number) => {
    if (state.form === "number" || number === null) return shown(number);
    return `${tenths.format(number).replace("-", "−")} %`;
  };

  function option(value, text, disabled) {
    const element = new Option(text, String(value));
    element.disabled = Boolean(disabled);
    return element;
  }

  function fill(select, options, chosen) {
    select.replaceChildren(...options);
    select.value = String(chosen);
  }

  const every = attributes.map((_, position) => position).filter((position) => size(position) && has([position]));

  /* What can stand in the columns beside a row; pairs that stayed in the folder are named and cannot be picked. */
  function columnOptions() {
    const others = every.filter((other) => other !== state.row);
    const pairs = others.filter((other) => has([state.row, other]) || leftOut.has(key([state.row, other])));
    return [option(NONE, "none"), ...pairs.map((other) => {
      const here = has([state.row, other]);
      return option(other, here ? name(other) : `${name(other)} (in the folder)`, !here);
    })];
  }

  function onlyOptions() {
    const base = [state.row, state.column].filter((position) => position !== NONE);
    const thirds = every.filter((other) => !base.includes(other) && has([...base, other]));
    return [option(NONE, "anything"), ...thirds.map((other) => option(other, name(other)))];
  }

  const labelOptions = (position) => attributes[position].labels.map((_, code) => option(code, label(position, code)));
  const allowed = (options, value) => options.some((one) => one.value === String(value) && !one.disabled);

  /* Keep what was picked where it still exists, and offer what exists now. */
  function offer() {
    fill(at("rows"), every.map((position) => option(position, name(position))), state.row);
    const columns = columnOptions();
    if (!allowed(columns, state.column)) state.column = Number(columns.find((one, i) => i && !one.disabled)?.value ?? NONE);
    fill(at("columns"), columns, state.column);
    const thirds = onlyOptions();
    if (!allowed(thirds, state.only)) [state.only, state.value] = [NONE, 0];
    fill(at("only"), thirds, state.only);
    at("value-picker").hidden = state.only === NONE;
    if (state.only !== NONE) fill(at("value"), labelOptions(state.only), state.value);
    at("turn").disabled = state.column === NONE;
    at("bars-picker").hidden = state.column === NONE;
    if (state.bar >= size(state.row)) state.bar = 0;
    fill(at("bars-row"), [option(NONE, "all rows together"), ...labelOptions(state.row)], state.bar);
  }

  function element(tag, text, options = {}) {
    const made = document.createElement(tag);
    if (text !== undefined) made.append(text);
    return Object.assign(made, options);
  }

  function heading(text, scope, className = "") {
    const isolated = element("bdi", text);
    return element("th", isolated, { scope, className });
  }

  function numberCell(row, column, className = "") {
    const [one, number] = [pick(row, column), value(row, column)];
    const marked = ["", "care", "uncertain"][flag(one)];
    const made = element("td", text(number), { className: [className, marked, number !== null && number < 0 ? "below" : ""].join(" ").trim() });
    if (marked) {
      made.append(element("sup", words.marks[flag(one)]));
      made.title = words.flags[flag(one)];
    }
    const ofCell = interval(row, column);
    if (ofCell) made.append(element("span", ofCell));
    return made;
  }

  const filterText = () => (state.only === NONE ? "" : `, only ${name(state.only)} = ${label(state.only, state.value)}`);

  function title() {
    const columns = state.column === NONE ? "" : ` by ${name(state.column)}`;
    return `${name(state.row)}${columns}${filterText()}`;
  }

  /* The table with some of its columns; the last part has the sums of the rows. */
  function tableOf(columns, last, part = "") {
    const head = element("tr");
    head.append(heading(name(state.row), "col"), ...columns.map((code) => heading(label(state.column, code), "col")));
    if (last) head.append(heading("all", "col", "sum"));
    const body = element("tbody");
    for (let row = 0; row <= size(state.row); row += 1) {
      const sums = row === size(state.row);
      const code = sums ? NONE : row;
      const line = element("tr", undefined, { className: sums ? "sum" : "" });
      line.append(heading(sums ? "all" : label(state.row, row), "row"), ...columns.map((column) => numberCell(code, column)));
      if (last) line.append(numberCell(code, NONE, "sum"));
      body.append(line);
    }
    const caption = element("caption", `${title()}: ${measureText()}${part}`);
    const table = element("table", caption, { className: "cells" });
    table.append(element("thead", head), body);
    return table;
  }

  const allColumns = () => (state.column === NONE ? [] : attributes[state.column].labels.map((_, code) => code));

  function measureText() {
    const known = interval(0, state.column === NONE ? NONE : 0) || (state.form === "number" && interval(NONE, NONE));
    const form = state.form === "number" ? "" : `, % of ${{ row: "the row", column: "the column", all: "all" }[state.form]}`;
    return `${words[state.measure]}${form}${known ? ", with 95 % intervals" : ""}`;
  }

  /* How many of the cells are reliable. */
  function reliableText() {
    if (state.measure !== "count" || pick(0, NONE)?.countLow === null) return "";
    const columns = state.column === NONE ? [NONE] : allColumns();
    const flags = attributes[state.row].labels.flatMap((_, row) => columns.map((column) => flag(pick(row, column))));
    const share = (wanted) => `${Math.round((100 * flags.filter((one) => one === wanted).length) / flags.length)} %`;
    return `Of the ${wholes.format(flags.length)} cells ${share(0)} are reliable, ${share(1)} are to be used with care (*), ${share(2)} are too uncertain to quote (**). `;
  }

  function showTable() {
    at("table").replaceChildren(tableOf(allColumns(), true));
    const own = tables[key([state.row, state.column, state.only].filter((one) => one !== NONE))];
    const missing = state.measure === "count" && own.countLow ? "" : own.note;
    at("note").textContent = reliableText() + (state.form === "number" ? missing || words.totals : words.percent);
    at("announcement").textContent = `Table: ${title()}, ${measureText()}`;
  }

  /* Paper does not scroll: a wide table is printed as several, one below the other. */
  function showParts() {
    const same = data.first === [state.row, state.column].join(",") && state.only === NONE && state.measure === "count" && state.form === "number";
    at("table").classList.toggle("again", same);
    document.querySelector(".reading").open = true;
    const columns = allColumns();
    if (columns.length <= MOST_PRINTED) return;
    const parts = [];
    for (let from = 0; from < columns.length; from += MOST_PRINTED) {
      const some = columns.slice(from, from + MOST_PRINTED);
      const last = from + MOST_PRINTED >= columns.length;
      parts.push(tableOf(some, last, `; columns ${from + 1} to ${from + some.length} of ${columns.length}`));
    }
    at("table").replaceChildren(...parts);
  }

  /* A spreadsheet must not take a label for a formula; see the CSV files of a release, which have the same guard. */
  const NUMBERS = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(–[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)?$/;
  const FORMULA = /^(['\s]*[=+\-@＝＋－＠](?=[^])|'*[\t\r\n])/;
  const guarded = (field) => (FORMULA.test(field) && !NUMBERS.test(field) ? `'${field}` : field);
  const quoted = (field) => `"${guarded(field).replaceAll('"', '""')}"`;

  function csv() {
    const columns = [["count", "count"], ["count_low", "countLow"], ["count_high", "countHigh"], ["reliability", "flag"],
      ["estimate", "estimate"], ["ci_low", "low"], ["ci_high", "high"]];
    const own = tables[key([state.row, state.column, state.only].filter((one) => one !== NONE))];
    const kept = columns.filter(([, field]) => own[field]);
    const positions = [state.row, ...(state.column === NONE ? [] : [state.column]), ...(state.only === NONE ? [] : [state.only])];
    const lines = [[...positions.map((position) => quoted(name(position))), ...kept.map(([column]) => quoted(column))]];
    for (let row = 0; row < size(state.row); row += 1) {
      for (const column of state.column === NONE ? [NONE] : allColumns()) {
        const one = pick(row, column);
        const codes = [row, ...(column === NONE ? [] : [column]), ...(state.only === NONE ? [] : [state.value])];
        const texts = codes.map((code, place) => quoted(attributes[positions[place]].labels[code]));
        lines.push([...texts, ...kept.map(([, field]) => (field === "flag" ? quoted(words.flags[one.flag]) : one[field] ?? ""))]);
      }
    }
    return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
  }

  function download() {
    /* The mark at the beginning tells spreadsheets that it is UTF-8. */
    const address = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv;charset=utf-8" }));
    const plain = title().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80) || "table";
    const link = element("a", undefined, { href: address, download: `${plain}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  }

  const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
  /* `ast` reads expressions without eval, which the page forbids. */
  const settings = { renderer: "svg", actions: false, ast: true, hover: false };
  const charts = { heat: { latest: 0, drawn: Promise.resolve(null) }, bars: { latest: 0, drawn: Promise.resolve(null) } };

  /* Draw one chart after the other in its place, and of those that wait only the last. */
  function embed(id, specification, lists, cells, about) {
    at(id).setAttribute("aria-label", about);
    specification.datasets = { cells };
    for (const parameter of specification.params) parameter.value = lists[parameter.name];
    specification.width = "container";
    specification.autosize = { type: "fit-x", contains: "padding" };
    const chart = charts[id];
    chart.latest += 1;
    const mine = chart.latest;
    chart.drawn = chart.drawn.then((before) => {
      if (mine !== chart.latest) return before;
      before?.finalize();
      return vegaEmbed(at(id), specification, settings);
    });
  }

  /* The height of so many lines: comfortable for few, and not endless for many. */
  const height = (count) => Math.min(1200, count * Math.max(9, Math.min(30, 620 / count)));

  function showHeatMap() {
    const hidden = state.column === NONE || Math.max(size(state.row), size(state.column)) > MOST_DRAWN;
    at("heat-figure").hidden = hidden;
    charts.heat.latest += 1;
    if (hidden) return;
    const cells = [];
    for (let row = 0; row < size(state.row); row += 1) {
      for (let column = 0; column < size(state.column); column += 1) {
        const [one, number] = [pick(row, column), value(row, column)];
        cells.push({
          row, rowLabel: label(state.row, row), column, columnLabel: label(state.column, column),
          value: Math.max(0, number ?? 0), text: `${text(number)}${flag(one) ? ` (${words.flags[flag(one)]})` : ""}`,
          between: interval(row, column) || "none",
        });
      }
    }
    const specification = structuredClone(data.charts.heatMap);
    const even = state.form !== "number";
    specification.encoding.color.scale.type = even ? "linear" : "sqrt";
    at("heat-key").textContent = even
      ? `Colour shows the per cent of ${{ row: "the row", column: "the column", all: "all" }[state.form]}.`
      : `Colour shows the number of ${data.noun}, on a square-root scale: twice as far along the scale is four times as many.`;
    specification.encoding.color.scale.range = [colour("--heat-low"), colour("--heat-middle"), colour("--heat-high")];
    specification.height = height(size(state.row));
    const axis = specification.encoding.x.axis;
    const short = labels(state.column).every((text) => text.length <= 3);
    if (short) axis.labelAngle = 0;
    /* Slanted labels have boxes that overlap while their letters do not. */
    axis.labelOverlap = short || size(state.column) > 25 ? "greedy" : false;
    const lists = { rows: labels(state.row), columns: labels(state.column) };
    embed("heat", specification, lists, cells, `Heat map of ${title()}; the numbers are in the table below`);
  }

  function showBars() {
    const along = state.column === NONE ? state.row : state.column;
    at("bars-figure").hidden = size(along) > MOST_DRAWN;
    charts.bars.latest += 1;
    if (size(along) > MOST_DRAWN) return;
    const cells = attributes[along].labels.map((_, code) => {
      const one = state.column === NONE ? pick(code, NONE) : pick(state.bar, code);
      const raw = one && one.margin !== null ? { from: one.estimate - one.margin, to: one.estimate + one.margin } : {};
      return { ...one, ...raw, row: code, rowLabel: label(along, code), text: shown(one?.count ?? null), between: between(one) || "none" };
    });
    const specification = structuredClone(data.charts.errorBars);
    /* A layer without numbers is left out; so are diamonds where there is one product only. */
    const fields = Object.keys(words.key).filter((field) => cells.some((one) => (one[field] ?? null) !== null));
    const single = fields.length === 1 || !fields.includes("estimate");
    const kept = fields.filter((field) => data.twoProducts || single || !["count", "countLow"].includes(field));
    specification.layer = specification.layer.filter((layer) => kept.includes(layer.encoding.x.field));
    const legend = kept.map((field) => words.key[field]).join(", ");
    at("bars-key").textContent = `${legend.charAt(0).toUpperCase()}${legend.slice(1)}.`;
    specification.height = height(size(along));
    const row = state.column === NONE || state.bar === NONE ? "" : `, ${name(state.row)} = ${label(state.row, state.bar)}`;
    embed("bars", specification, { rows: labels(along) }, cells, `Error bars of ${name(along)}${row}${filterText()}; the numbers are in the table below`);
  }

  function show() {
    offer();
    showTable();
    showHeatMap();
    showBars();
  }

  function follow(id, change) {
    at(id).addEventListener("change", (event) => {
      change(Number(event.target.value));
      show();
    });
  }

  follow("rows", (value) => {
    if (value === state.column) state.column = state.row;
    [state.row, state.bar] = [value, 0];
  });
  follow("columns", (value) => { state.column = value; });
  follow("only", (value) => { [state.only, state.value] = [value, 0]; });
  follow("value", (value) => { state.value = value; });
  follow("bars-row", (value) => { state.bar = value; });
  at("turn").addEventListener("click", () => {
    [state.row, state.column, state.bar] = [state.column, state.row, 0];
    show();
  });
  for (const [group, part] of [["measure", "measure"], ["form", "form"]]) {
    for (const radio of document.querySelectorAll(`input[name=${group}]`)) {
      radio.addEventListener("change", () => {
        state[part] = radio.value;
        show();
      });
    }
  }

  /* An address that ends in #table=0,3 opens the table of these two attributes. */
  function followAddress() {
    const found = /^#table=(\d+)(?:,(\d+))?$/.exec(location.hash);
    const positions = found ? found.slice(1).filter((one) => one !== undefined).map(Number) : [];
    if (!positions.length || !has(positions)) return false;
    [state.row, state.column, state.only, state.value, state.bar] = [positions[0], positions[1] ?? NONE, NONE, 0, 0];
    return true;
  }
  addEventListener("hashchange", () => {
    if (!followAddress()) return;
    show();
    at("look").scrollIntoView();
  });
  addEventListener("beforeprint", showParts);
  addEventListener("afterprint", () => {
    at("table").classList.remove("again");
    showTable();
  });
  at("download").addEventListener("click", download);
  at("pickers").addEventListener("submit", (event) => event.preventDefault());
  at("measures").hidden = !data.twoProducts;
  at("pickers").hidden = false;
  at("charts").hidden = false;
  at("download-line").hidden = false;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { showHeatMap(); showBars(); });
  const linked = followAddress();
  show();
  if (linked) at("look").scrollIntoView();
})();
