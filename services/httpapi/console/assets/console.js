// Reading needs no script: each page is links and forms. This adds conveniences.
"use strict";

// A button beside each block of JSON that copies it.
for (const block of document.querySelectorAll("pre.json")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
  });
  block.before(button);
}

// An address that names a row opens it.
function openNamed() {
  const row = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (row instanceof HTMLDetailsElement) {
    row.open = true;
    row.scrollIntoView({ block: "center" });
  }
}
addEventListener("hashchange", openNamed);
openNamed();
