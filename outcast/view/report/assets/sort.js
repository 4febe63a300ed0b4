"use strict";
// Tables in `.sortable` are sorted by a click on a column's heading, a second one turns the order.
// A cell's value is that of its <data>, else its text; numbers before texts, nothing at the end.
(() => {
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = (cell.querySelector("data")?.value ?? cell.textContent).trim();
    const number = Number(text);
    if (text === "" || text === "-") return { rank: 2, by: 0 };
    return Number.isNaN(number) ? { rank: 1, by: text } : { rank: 0, by: number };
  };
  const compare = (one, other) =>
    typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;

  const sort = (table, heading) => {
    const falling = heading.getAttribute("aria-sort") === "ascending";
    for (const each of heading.parentElement.cells) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, ...valueOf(row, heading.cellIndex) }));
    rows.sort((a, b) => a.rank - b.rank || compare(a.by, b.by) * (falling && a.rank < 2 ? -1 : 1));
    body.append(...rows.map(({ row }) => row));
  };

  for (const table of document.querySelectorAll(".sortable table")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sort(table, heading));
    }
  }
})();
