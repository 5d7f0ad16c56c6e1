// What the page shows: a place for samples, and under it the likeliest classes of each as bars.

import { Model } from "./model.js";

const SHOWN = 5;
const [status, samples, answers] = ["status", "samples", "answers"].map((id) => document.getElementById(id));

function element(name, className, ...children) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...children);
  return made;
}

function percent(share) {
  return share >= 0.9995 ? "> 99.9 %" : `${(100 * share).toFixed(1)} %`;
}

function bars(ranked) {
  const rows = ranked.slice(0, SHOWN).map(([name, share]) => {
    const bar = element("span", "bar");
    bar.style.setProperty("width", `${100 * share}%`);
    return element("li", "", element("span", "name", name), element("span", "share", percent(share)), element("span", "track", bar));
  });
  return element("ol", "bars", ...rows);
}

function shown(sample) {
  if (!(sample instanceof Blob)) return element("p", "sample", String(sample));
  const image = element("img", "sample");
  image.alt = sample.name ?? "image";
  image.src = URL.createObjectURL(sample);
  image.onload = image.onerror = () => URL.revokeObjectURL(image.src);
  return image;
}

async function answer(model, label, sample, input = sample) {
  const body = element("div", "body", element("p", "quiet", "computing …"));
  const card = element("li", "answer", shown(sample), body);
  answers.prepend(card);
  await new Promise(requestAnimationFrame); // let it be drawn before the model takes the thread
  const start = performance.now();
  try {
    const { ranked, unknown, likely } = await model.classify(input);
    const seconds = Math.round(performance.now() - start);
    const title = unknown ? element("h2", "bad", "unknown") : element("h2", "", ranked[0][0]);
    const notes = [`${label}, ${seconds} ms`];
    if (unknown) notes.unshift("Unlike what this model was fitted from. If it is one of its classes after all:");
    if (likely?.length) notes.unshift(`With a probability of ${100 * model.notes.sets.coverage} %, one of: ${likely.join(", ")}`);
    const said = notes.map((text) => element("p", "quiet", text));
    body.replaceChildren(title, ...said.slice(0, -1), bars(ranked), said.at(-1));
    card.dataset.set = JSON.stringify(likely);
    card.dataset.probabilities = JSON.stringify(Object.fromEntries(ranked));
  } catch (error) {
    body.replaceChildren(element("h2", "bad", "Not classified"), element("p", "", `${label}: ${error.message}`));
  }
}

function takeImages(model) {
  let queue = Promise.resolve();
  const take = (files) => {
    for (const file of files) queue = queue.then(() => answer(model, file.name ?? "image", file));
  };
  for (const input of samples.querySelectorAll("input[type=file]")) {
    input.onchange = () => {
      take(Array.from(input.files));
      input.value = "";
    };
  }
  document.ondragover = (event) => event.preventDefault();
  document.ondrop = (event) => {
    event.preventDefault();
    take(event.dataTransfer.files);
  };
  document.onpaste = (event) => take(event.clipboardData.files);
}

function takeText(model) {
  const form = samples.querySelector("form"), field = form.querySelector("textarea");
  const asNumbers = (line) => line.split(/[\s,;]+/).filter(Boolean).map(Number);
  form.onsubmit = async (event) => {
    event.preventDefault();
    for (const [number, line] of field.value.split("\n").filter((text) => text.trim()).entries()) {
      const features = model.notes.takes === "features";
      await answer(model, `line ${number + 1}`, features ? `${line.slice(0, 60)} …` : line, features ? asNumbers(line) : line);
    }
  };
}

try {
  const model = await Model.load();
  (model.notes.takes === "image" ? takeImages : takeText)(model);
  for (const control of samples.querySelectorAll("[disabled]")) control.disabled = false;
  status.textContent = "Ready. Everything is computed on this device; nothing is sent.";
  document.body.dataset.state = "ready";
} catch (error) {
  status.textContent = location.protocol === "file:"
    ? "Browsers load no model from a file: serve this folder, for instance with 'python -m http.server', and open its address."
    : `The model cannot be loaded: ${error.message}`;
  document.body.dataset.state = "failed";
}
