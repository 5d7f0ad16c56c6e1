// How an image becomes the pixels that the encoder takes, step by step as Pillow does it: crop to the centre, shrink by
// whole blocks, then the proper filter in fixed point. The same bytes come out as of Pillow 13; earlier releases always
// began with the columns, which changes how tall images are rounded.

const GAP = 2; // an image is shrunk by whole blocks to this many times the size that is asked for
const BITS = 22; // of the fixed-point weights

const FILTERS = {
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  bicubic: [2, (given) => {
    const x = Math.abs(given);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
  }],
};

// Decodes an image file to upright RGBA bytes, transparent pixels on white; no colour profile is applied.
export async function decode(file) {
  const image = await createImageBitmap(file, { premultiplyAlpha: "none", colorSpaceConversion: "none" });
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const drawing = canvas.getContext("2d", { willReadFrequently: true });
  drawing.fillStyle = "#fff";
  drawing.fillRect(0, 0, image.width, image.height);
  drawing.drawImage(image, 0, 0);
  image.close();
  return drawing.getImageData(0, 0, canvas.width, canvas.height);
}

// Returns RGB bytes (3, size, size), as one Uint8Array, of decoded pixels.
export function prepare(decoded, { size, crop, interpolation }) {
  const [support] = FILTERS[interpolation];
  const short = Math.min(decoded.width, decoded.height);
  const side = short >= size ? short * crop : short;
  let image = { width: decoded.width, height: decoded.height, data: decoded.data };
  let left = (image.width - side) / 2, top = (image.height - side) / 2;
  let [right, bottom] = [left + side, top + side];
  const factors = [right - left, bottom - top].map((length) => Math.floor(length / size / GAP) || 1);
  if (Math.max(...factors) > 1) {
    const margin = (length) => (support - 0.5) * (length / size);
    const [across, down] = [margin(right - left), margin(bottom - top)];
    const box = [
      Math.max(0, Math.trunc(left - across)), Math.max(0, Math.trunc(top - down)),
      Math.min(image.width, Math.ceil(right + across)), Math.min(image.height, Math.ceil(bottom + down)),
    ];
    image = reduced(image, factors, box);
    [left, right] = [(left - box[0]) / factors[0], (right - box[0]) / factors[0]];
    [top, bottom] = [(top - box[1]) / factors[1], (bottom - box[1]) / factors[1]];
  }
  const columns = weights(image.width, left, right, size, interpolation);
  const rows = weights(image.height, top, bottom, size, interpolation);
  const rowsFirst = image.height > size && image.height - size > 2 * (image.width - size);
  const resized = rowsFirst
    ? resampled(transposed(resampled(transposed(image), rows)), columns)
    : transposed(resampled(transposed(resampled(image, columns)), rows));
  const planes = new Uint8Array(3 * size * size);
  for (let place = 0; place < size * size; place++) {
    for (let c = 0; c < 3; c++) planes[c * size * size + place] = resized.data[4 * place + c];
  }
  return planes;
}

// Averages blocks of pixels inside a box; the last ones may be smaller.
function reduced({ width, data }, [across, down], [x0, y0, x1, y1]) {
  const columns = Math.ceil((x1 - x0) / across), rows = Math.ceil((y1 - y0) / down);
  const out = new Uint8ClampedArray(4 * columns * rows);
  for (let row = 0; row < rows; row++) {
    const [top, bottom] = [y0 + row * down, Math.min(y0 + (row + 1) * down, y1)];
    for (let column = 0; column < columns; column++) {
      const [left, right] = [x0 + column * across, Math.min(x0 + (column + 1) * across, x1)];
      const count = (right - left) * (bottom - top);
      const scale = Math.trunc(Math.fround(2 ** 32 / (256 * count))); // Pillow divides by multiplying
      for (let c = 0; c < 3; c++) {
        let sum = count >> 1;
        for (let y = top; y < bottom; y++) {
          for (let x = left; x < right; x++) sum += data[4 * (y * width + x) + c];
        }
        out[4 * (row * columns + column) + c] = Math.imul(sum, scale) >>> 24;
      }
    }
  }
  return { width: columns, height: rows, data: out };
}

// Returns of each of `size` outputs which inputs it takes, and their weights in fixed point.
function weights(length, start, stop, size, interpolation) {
  const [support, filter] = FILTERS[interpolation];
  const begin = Math.fround(start), scale = Math.fround(Math.fround(stop) - begin) / size, wide = Math.max(scale, 1), reach = support * wide;
  return Array.from({ length: size }, (_, place) => {
    const centre = begin + (place + 0.5) * scale, sharpness = 1 / wide;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const last = Math.min(length, Math.trunc(centre + reach + 0.5));
    const values = [];
    for (let x = first; x < last; x++) values.push(filter((x - centre + 0.5) * sharpness));
    const sum = values.reduce((total, value) => total + value, 0);
    const fixed = values.map((value) => (sum ? value / sum : value) * 2 ** BITS);
    return { first, taps: Int32Array.from(fixed, (value) => Math.trunc(value + (value < 0 ? -0.5 : 0.5))) };
  });
}

function resampled({ width, height, data }, outputs) {
  const out = new Uint8ClampedArray(4 * outputs.length * height);
  for (let y = 0; y < height; y++) {
    outputs.forEach(({ first, taps }, x) => {
      for (let c = 0; c < 3; c++) {
        let sum = 1 << (BITS - 1);
        for (let k = 0; k < taps.length; k++) sum += data[4 * (y * width + first + k) + c] * taps[k];
        out[4 * (y * outputs.length + x) + c] = sum >> BITS; // clamped to 0 … 255 by the array
      }
    });
  }
  return { width: outputs.length, height, data: out };
}

function transposed({ width, height, data }) {
  const from = new Uint32Array(data.buffer, data.byteOffset, width * height);
  const to = new Uint32Array(width * height);
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) to[x * height + y] = from[y * width + x];
  return { width: height, height: width, data: new Uint8ClampedArray(to.buffer) };
}
