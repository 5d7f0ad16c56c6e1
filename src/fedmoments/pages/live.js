// Parts of the page are replaced as the server tells; what a reader has opened or sorted stays as it is.
(() => {
  const source = new EventSource("events");
  const dot = document.createElement("p");
  dot.className = "note";
  dot.id = "live-state";
  dot.setAttribute("role", "status");
  document.querySelector("header").append(dot);
  const say = (words) => { if (dot.textContent !== words) dot.textContent = words; };
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say("the server does not answer: what stands here is what it said last"));
  source.addEventListener("parts", (event) => {
    say("live");
    for (const [name, body] of Object.entries(JSON.parse(event.data))) {
      if (name === "answer") { document.querySelector("p.answer").innerHTML = body; continue; }
      const section = document.getElementById(name);
      if (!section) { location.reload(); return; }
      const open = Array.from(section.querySelectorAll("details"), (each) => each.open);
      const title = section.querySelector("h2");
      section.innerHTML = body;
      section.prepend(title);
      section.querySelectorAll("details").forEach((each, place) => { each.open = open[place] ?? each.open; });
    }
  });
})();
