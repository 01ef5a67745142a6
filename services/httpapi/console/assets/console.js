// Reading needs no script: each page is links and forms. This adds conveniences.
"use strict";

// A button beside each block of JSON that copies it.
function addCopies(within) {
  for (const block of within.querySelectorAll("pre.json")) {
    if (block.previousElementSibling?.className === "copy") continue;
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
}
addCopies(document);

// An address that names a row opens it.
function openNamed() {
  const row = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let e = row; e; e = e.parentElement) if (e instanceof HTMLDetailsElement) e.open = true;
  if (row instanceof HTMLDetailsElement) row.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", openNamed);
openNamed();

// merge gives an element the attributes and the children of a newer one. What is in both stays the same element, so it
// keeps the focus, how far it was scrolled, and what people opened in it. Elements with an id are known by it.
function merge(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of old.getAttributeNames()) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    if (at?.className === "copy" && child.matches?.("pre.json")) at = at.nextSibling;
    const named = child.id && [...old.children].find((e) => e.id === child.id);
    while (named && at && at !== named) at = remove(at);
    if (!at || at.nodeName !== child.nodeName || (at.id ?? "") !== (child.id ?? "")) {
      old.insertBefore(document.adoptNode(child), at);
      if (child.querySelectorAll) addCopies(child);
      continue;
    }
    if (at.nodeType === Node.ELEMENT_NODE) merge(at, child);
    else if (at.data !== child.data) at.data = child.data;
    at = at.nextSibling;
  }
  while (at) at = remove(at);
}

function remove(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// refresh fetches a page, and merges what it has anew into this one.
async function refresh(address) {
  const answer = await fetch(address, { cache: "no-store" });
  if (!answer.ok) {
    location.reload(); // the page says why, or asks to sign in
    return null;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const focused = document.activeElement?.closest("[id]")?.id;
  for (const part of document.querySelectorAll("[data-fresh]")) {
    const fresh = page.getElementById(part.id);
    if (fresh) merge(part, fresh);
  }
  if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
  return answer;
}

// Live rows: a stream tells of news, and then the page is fetched again, at most a few times a second.
function follow(control) {
  const button = control.querySelector("button");
  const status = control.querySelector("[role=status]");
  let paused = false, news = false, busy = false;
  async function show() {
    if (busy || paused || !news) return;
    busy = true;
    news = false;
    try {
      await refresh(location.href);
    } catch {
      // The server does not answer; the stream will tell when it does again.
    }
    setTimeout(() => { busy = false; show(); }, 300);
  }
  const source = new EventSource(control.dataset.live);
  source.addEventListener("open", () => { status.textContent = paused ? "Paused" : "Live"; });
  source.addEventListener("news", () => {
    news = true;
    if (paused) status.textContent = "Paused; there is more";
    show();
  });
  source.addEventListener("ended", () => {
    source.close();
    location.reload();
  });
  source.addEventListener("error", () => { status.textContent = "Waiting for the server"; });
  addEventListener("pagehide", () => source.close());
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    status.textContent = paused ? "Paused" : "Live";
    show();
  });
  control.hidden = false;
}
for (const control of document.querySelectorAll("[data-live]")) follow(control);

// A page that says so is fetched again now and then while it is looked at, until it no longer says so.
for (const part of document.querySelectorAll("[data-every]")) {
  const again = setInterval(() => {
    if (!part.dataset.every) clearInterval(again);
    else if (document.visibilityState === "visible") refresh(location.href).catch(() => {});
  }, Number(part.dataset.every));
}

// A slider shows the page that it points to while it moves, one page after the other; the address follows.
for (const form of document.querySelectorAll("form[data-slide]")) {
  const slider = form.querySelector("input[type=range]");
  const told = form.querySelector("output");
  let busy = false;
  slider.addEventListener("input", async () => {
    told.textContent = slider.value;
    if (busy) return;
    busy = true;
    for (let shown; shown !== slider.value; ) {
      shown = slider.value;
      const query = new URLSearchParams(new FormData(form));
      const answer = await refresh(form.getAttribute("action") + "?" + query).catch(() => null);
      if (answer) history.replaceState(null, "", document.getElementById("here").href);
    }
    busy = false;
  });
}

// lead leads to a page, anew if it is this one.
function lead(page) {
  const here = page.pathname + page.search === location.pathname + location.search;
  location.assign(page);
  if (here) location.reload();
}

// The playground shows an answer while it is made. A form that can't be sent like this is sent as any form is: the same
// message again is answered with the same answer.
async function ask(form) {
  const said = document.getElementById("answer");
  const text = said.querySelector(".text");
  text.textContent = "";
  said.hidden = false;
  said.scrollIntoView({ block: "nearest" });
  const answer = await fetch(form.dataset.chat, { method: "POST", body: new URLSearchParams(new FormData(form)) });
  if (!answer.headers.get("Content-Type").startsWith("text/event-stream")) throw new Error("no stream");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("broken off");
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(part) ?? [];
      if (name === "delta") text.textContent += JSON.parse(data).text;
      if (name === "failed") text.textContent += "\n" + JSON.parse(data).say;
      if (name === "done") return lead(new URL(JSON.parse(data).page, location));
      if (name === "failed") return null;
    }
  }
}
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.chat || event.submitter?.hasAttribute("formaction")) return;
  event.preventDefault();
  const able = (is) => form.querySelectorAll("button").forEach((button) => { button.disabled = !is; });
  able(false);
  ask(form).then((failed) => able(failed === null), () => form.submit());
});
