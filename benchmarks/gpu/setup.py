"""`python -m benchmarks.gpu.setup SITE [WHEELS] [--gpu]`: install what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.gpu import environment


def main() -> None:
    """Install; exit with 1 and a message if a package is unavailable."""
    site, *wheels = (Path(word) for word in sys.argv[1:] if word != "--gpu")
    openers = environment.OPENERS if "--gpu" in sys.argv else {}
    needed = {**environment.NEEDED, **openers}
    try:
        said = environment.install(site, next(iter(wheels), None), needed)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as problem:
        sys.exit(str(problem))
    print("\n".join(said))


if __name__ == "__main__":
    main()
