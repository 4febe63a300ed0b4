"use strict";
// The sections below the first ones open for a link to one of them, and for printing.
(() => {
  const more = document.querySelector("main > details");
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && more.contains(target)) {
      more.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => { more.open = true; });
  open();
})();
