// The model: files beside this page, run by onnxruntime in this browser. Nothing is fetched from elsewhere or sent.

import * as ort from "./ort.js";
import { decode, prepare } from "./pixels.js";
import { WordPiece } from "./tokens.js";

ort.env.wasm.numThreads = 1; // more would need headers that a plain file server does not send
ort.env.wasm.wasmPaths = { wasm: new URL("./ort-wasm-simd-threaded.wasm", import.meta.url).href };

async function fetched(name, how) {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name} is missing beside this page (${answer.status})`);
  return answer[how]();
}

export class Model {
  static async load() {
    const notes = await fetched("./model.json", "json");
    const session = await ort.InferenceSession.create(await fetched("./model.onnx", "arrayBuffer"), {
      executionProviders: ["wasm"],
    });
    const tokenizer = notes.takes === "text" ? await fetched("./tokenizer.json", "json") : null;
    return new Model(notes, session, tokenizer && new WordPiece(tokenizer, notes.preprocessing.max_tokens));
  }

  constructor(notes, session, tokens) {
    [this.notes, this.session, this.tokens] = [notes, session, tokens];
  }

  // Of an image file, a sentence or a list of numbers: classes with their probabilities, likeliest first; whether it is
  // unknown; the classes that hold the true one with the coverage that was asked for, none of what is unknown, or null.
  async classify(sample) {
    const inputs = { image: pixels, text: tokens, features };
    const outputs = await this.session.run(await inputs[this.notes.takes](this, sample));
    const ranked = Array.from(outputs.probabilities.data, (share, label) => [this.notes.classNames[label], share]);
    ranked.sort(([, one], [, other]) => other - one);
    const { abstainBelow } = this.notes;
    const unknown = abstainBelow !== null && outputs.familiarity.data[0] < abstainBelow;
    const held = unknown ? [] : this.notes.sets && likely(ranked, outputs.scores.data, this.notes);
    return { ranked, unknown, likely: held };
  }
}

function likely(ranked, scores, { classNames, sets }) {
  const most = Math.max(...scores);
  const powers = Array.from(scores, (score) => Math.exp((score - most) / sets.temperature));
  const total = powers.reduce((sum, power) => sum + power, 0);
  const held = new Set(classNames.filter((_, label) => powers[label] > 0 && powers[label] / total >= sets.leastProbability));
  return ranked.map(([name]) => name).filter((name, place) => place === 0 || held.has(name));
}

async function pixels(model, file) {
  const { preprocessing } = model.notes, { size } = preprocessing;
  let decoded;
  try {
    decoded = await decode(file);
  } catch {
    throw new Error("this browser cannot read it as an image");
  }
  return { pixels: new ort.Tensor("uint8", prepare(decoded, preprocessing), [1, 3, size, size]) };
}

function tokens(model, sentence) {
  if (!sentence.trim()) throw new Error("the sentence is empty");
  const ids = model.tokens.encode(sentence);
  const row = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  return { input_ids: row(ids), attention_mask: row(ids.map(() => 1)), token_type_ids: row(ids.map(() => 0)) };
}

function features(model, numbers) {
  const { dim } = model.notes;
  if (numbers.length !== dim || !numbers.every(Number.isFinite)) {
    throw new Error(`a sample is ${dim} numbers; ${numbers.length} arrived`);
  }
  return { features: new ort.Tensor("float32", Float32Array.from(numbers), [1, dim]) };
}
