"""Photograph the explorer's pages: `python docs/screenshots.py FOLDER [OP TARGET]`.

Prints the size of each page and the time that Chromium takes to open it. Needs
`pip install tensorlang[browser] pillow` and Chromium.
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
WIDTH, HEIGHT = 1200, 640
_COLOURS: Final = 32


def photograph(browser: Browser, page: Path) -> float:
    """Put a picture beside a page; the seconds that it took to open."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    start = time.perf_counter()
    tab.goto(page.absolute().as_uri())
    seconds = time.perf_counter() - start
    picture = page.with_suffix(".png")
    tab.screenshot(path=picture)
    tab.close()
    Image.open(picture).quantize(_COLOURS).save(picture, optimize=True)
    return seconds


def main() -> None:
    """Make the pages, or one, and photograph them."""
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    folder, *chosen = sys.argv[1:]
    wanted = [chosen] if chosen else product(OPERATORS, TARGETS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],  # as root, in a container
        )
        for name, target in wanted:
            page = Path(folder, f"{name}_{target.partition(':')[0]}.html")
            command = ["tlang", "explore", name, "--target", target, "-o", str(page)]
            subprocess.run(command, check=True)
            seconds = photograph(browser, page)
            print(f"{page.name}: {page.stat().st_size / 1e6:.2f} MB, {seconds:.2f} s")
        browser.close()


if __name__ == "__main__":
    main()
