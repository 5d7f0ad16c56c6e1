// A sentence to token ids, as a WordPiece tokenizer.json of the BERT family says.

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}]/u;
const IDEOGRAPHS = /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

export class WordPiece {
  constructor(tokenizer, longest) {
    const { model, normalizer, added_tokens: added } = tokenizer;
    this.vocabulary = new Map(Object.entries(model.vocab));
    this.unknown = this.vocabulary.get(model.unk_token);
    this.prefix = model.continuing_subword_prefix;
    this.longestWord = model.max_input_chars_per_word;
    this.rules = normalizer;
    this.special = new Map(added.map(({ content, id }) => [content, id]));
    this.longest = longest;
  }

  // Returns the ids of a sentence between [CLS] and [SEP], at most `longest`.
  encode(sentence) {
    const marks = [...this.special.keys()].map((mark) => mark.replace(/[[\]]/g, "\\$&")).join("|");
    const parts = sentence.trim().split(new RegExp(`(${marks})`));
    const ids = parts.flatMap((part) => this.special.get(part) ?? this.words(part).flatMap((word) => this.pieces(word)));
    return [this.special.get("[CLS]"), ...ids.slice(0, this.longest - 2), this.special.get("[SEP]")];
  }

  words(text) {
    let clean = text;
    if (this.rules.clean_text) {
      clean = clean.replace(/[\t\n\r\p{White_Space}]/gu, " ").replace(/[\p{C}\ufffd]/gu, "");
    }
    if (this.rules.handle_chinese_chars) clean = clean.replace(IDEOGRAPHS, " $& ");
    if (this.rules.strip_accents ?? this.rules.lowercase) clean = clean.normalize("NFD").replace(/\p{Mn}/gu, "");
    // One character at a time: a capital sigma at a word's end becomes what it becomes elsewhere.
    if (this.rules.lowercase) clean = Array.from(clean, (character) => character.toLowerCase()).join("");
    const words = [];
    for (const run of clean.split(/\s+/u).filter(Boolean)) {
      let word = "";
      for (const character of run) {
        if (!PUNCTUATION.test(character)) word += character;
        else {
          if (word) words.push(word);
          words.push(character);
          word = "";
        }
      }
      if (word) words.push(word);
    }
    return words;
  }

  // The longest pieces of the vocabulary, from the left.
  pieces(word) {
    const letters = Array.from(word), ids = [];
    if (letters.length > this.longestWord) return [this.unknown];
    for (let start = 0; start < letters.length; ) {
      let stop = letters.length, id;
      for (; stop > start; stop--) {
        id = this.vocabulary.get((start ? this.prefix : "") + letters.slice(start, stop).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return [this.unknown];
      ids.push(id);
      start = stop;
    }
    return ids;
  }
}
