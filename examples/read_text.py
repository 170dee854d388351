"""A recogniser of text from a package, run on our kernels: it reads what is drawn.

    pip install --no-deps rapidocr-onnxruntime
    python examples/read_text.py

The package ships PaddleOCR's networks as ONNX files. One finds the lines of a page, the
other reads each: it gives the probabilities of characters for columns of the image, and
between two equal characters, or none, a blank (CTC, Graves et al., 2006).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from io import BytesIO
from itertools import groupby
from pathlib import Path

import matplotlib.figure
import numpy as np
import onnx
from PIL import Image

from tensorlang.layers import Model

PACKAGE = "rapidocr_onnxruntime"
LINES = ("Other people's models", "run on our kernels")
HEIGHT = 48  # of a line, in pixels, as the reader was trained


def networks() -> tuple[Path, Path]:
    """The files of the finder and of the reader."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            f"{PACKAGE} is not installed: pip install --no-deps rapidocr-onnxruntime"
        )
    models = Path(spec.submodule_search_locations[0]) / "models"
    kinds = "det", "rec"
    finder, reader = (models / f"ch_PP-OCRv4_{kind}_infer.onnx" for kind in kinds)
    return finder, reader


def page(lines: tuple[str, ...]) -> Image.Image:
    """The lines, drawn."""
    figure = matplotlib.figure.Figure((6.4, 3.2), dpi=100)
    for at, line in enumerate(lines):
        figure.text(0.1, 0.75 - 0.25 * at, line, size=24)
    drawn = BytesIO()
    figure.savefig(drawn)
    return Image.open(drawn).convert("RGB")


def pixels(image: Image.Image) -> np.ndarray:
    """An image as the networks take it: `[1, 3, height, width]`, from -1 to 1."""
    scaled = np.asarray(image, np.float32) / 127.5 - 1
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None])


def found(likely: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """The boxes of lines, where pixels are likely text: left, top, right, bottom."""
    text = likely > 0.3
    rows = np.flatnonzero(np.diff(text.any(1), prepend=False, append=False))
    for top, bottom in rows.reshape(-1, 2):
        columns = np.flatnonzero(text[top:bottom].any(0))
        more = int(0.6 * (bottom - top))  # the network marks the middle of a line
        yield columns[0] - more, top - more, columns[-1] + more, bottom + more


def read(reader: Model, characters: list[str], line: Image.Image) -> str:
    """The text of a line."""
    width = round(line.width * HEIGHT / line.height)
    likely = reader(pixels(line.resize((width, HEIGHT))))[0]
    best = [at for at, _ in groupby(likely.argmax(-1))]
    return "".join(characters[at] for at in best)


def main() -> tuple[str, ...]:
    """Read a page; give its lines."""
    finder, reader = networks()
    told = {each.key: each.value for each in onnx.load(reader).metadata_props}
    characters = ["", *told["character"].split("\n"), " "]
    image = page(LINES)
    likely = Model.load(finder, train=False)(pixels(image))[0, 0]
    model = Model.load(reader, train=False)
    texts = tuple(read(model, characters, image.crop(box)) for box in found(likely))
    print("\n".join(texts))
    return texts


if __name__ == "__main__":
    main()
