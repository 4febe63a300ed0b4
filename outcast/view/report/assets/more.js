"use strict";
// A folded section opens for a link into it; all open for printing.
(() => {
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = target && (target.querySelector(":scope > details") || target.closest("details"));
    if (folded) {
      folded.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll(".folded > details")) each.open = true;
  });
  open();
})();
