"""Photograph the explorer's pages: `python docs/screenshots.py FOLDER [OP TARGET ...]`.

After OP and TARGET may come a panel, `search` or `compare`, which is then photographed
alone, and options of `tlang explore`. Prints the size of each page and the time that
Chromium takes to open it. Needs `pip install tensorlang[browser] pillow` and Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

OPERATORS: Final = ("dense", "conv2d", "softmax", "random.bits", "adam", "attention")
TARGETS: Final = ("llvm", "opencl", "cuda:sm_90a")
WHOLE, NARROW = (1200, 640), (680, 800)
_COLOURS: Final = 32


def photograph(browser: Browser, page: Path, panel: str) -> float:
    """Put a picture beside a page; the seconds that it took to open."""
    width, height = NARROW if panel else WHOLE
    tab = browser.new_page(viewport={"width": width, "height": height})
    start = time.perf_counter()
    tab.goto(f"{page.absolute().as_uri()}#{panel}")
    seconds = time.perf_counter() - start
    picture = page.with_suffix(".png")
    tab.screenshot(path=picture)
    tab.close()
    Image.open(picture).quantize(_COLOURS).save(picture, optimize=True)
    return seconds


def main() -> None:
    """Make the pages, or one, and photograph them."""
    if len(sys.argv) < 2 or len(sys.argv) == 3:
        sys.exit(__doc__)
    folder, *chosen = sys.argv[1:]
    wanted = [chosen[:2]] if chosen else product(OPERATORS, TARGETS)
    panel, *options = chosen[2:] or [""]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],  # as root, in a container
        )
        for name, target in wanted:
            kind = "_".join(
                [name, target.partition(":")[0], *([panel] if panel else [])]
            )
            page = Path(folder, f"{kind}.html")
            command = ["tlang", "explore", name, "--target", target, "-o", str(page)]
            subprocess.run([*command, *options], check=True)
            seconds = photograph(browser, page, panel)
            print(f"{page.name}: {page.stat().st_size / 1e6:.2f} MB, {seconds:.2f} s")
        browser.close()


if __name__ == "__main__":
    main()
