// A page that hears that something changed fetches itself again and puts the new content in the place of the old.
"use strict";
(() => {
  if (document.body.dataset.live !== "changed" || !window.EventSource) return;
  let isBusy = false;
  let isLate = false;
  // What a person is about to write or to press is not taken away from under them.
  const isInUse = (main) => {
    const at = document.activeElement;
    if (at && main.contains(at) && at.matches("input, textarea, select")) return true;
    return Array.from(main.querySelectorAll("input")).some((field) => field.type !== "hidden" && field.value !== field.defaultValue);
  };
  const nameOf = (element) => element && (element.id || element.getAttribute("aria-label") || element.textContent.trim());
  const refresh = async () => {
    const main = document.querySelector("main");
    if (isBusy || document.hidden || isInUse(main)) {
      isLate = true;
      return;
    }
    isBusy = true;
    isLate = false;
    try {
      const answer = await fetch(location.href, { redirect: "manual", headers: { Accept: "text/html", "X-Interlock-Again": "1" } });
      if (answer.type === "opaqueredirect" || answer.status === 401) {
        location.reload();
        return;
      }
      if (!answer.ok) {
        isLate = true;
        return;
      }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (!fresh || isInUse(main)) {
        isLate = true;
        return;
      }
      const held = main.contains(document.activeElement) ? nameOf(document.activeElement) : null;
      main.replaceWith(fresh);
      if (held) {
        const again = Array.from(fresh.querySelectorAll("a, button, [tabindex]")).find((element) => nameOf(element) === held);
        if (again) again.focus({ preventScroll: true });
      }
    } catch {
      isLate = true;
    } finally {
      isBusy = false;
    }
  };
  // While nobody tells what changes, what is shown may be old. A stream that ends in its time is back before that is said.
  let lost = null;
  const open = () => {
    const events = new EventSource("/events");
    events.addEventListener("open", () => {
      if (lost === null) return;
      clearTimeout(lost);
      lost = null;
      document.body.dataset.live = "changed";
      refresh();
    });
    events.addEventListener("changed", refresh);
    events.addEventListener("error", () => {
      if (lost === null) lost = setTimeout(() => { document.body.dataset.live = "lost"; }, 10000);
      // A browser comes back by itself, but not after an answer that is no stream: the session ended, or there is no room.
      if (events.readyState === EventSource.CLOSED) {
        refresh();
        setTimeout(open, 30000);
      }
    });
  };
  open();
  document.addEventListener("visibilitychange", () => { if (isLate) refresh(); });
  document.addEventListener("focusout", () => setTimeout(() => { if (isLate) refresh(); }, 0));
})();
