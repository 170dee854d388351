"""Compare two versions of the library on calls whose machine code changed.

    python -m benchmarks.versions before.json after.json --base older/.venv/bin/python

Both tables are written by `benchmarks/inventory.py`. A call whose code differs is timed
in two processes, one per version, interleaved; the ratio is the older time over the
newer, with a 95 % interval, worst first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tensorlang.tuner.measurement.rounds import Ratio, paired_ratio

_SCRIPT: Final = Path(__file__).with_name("inventory.py")
_SAMPLE: Final = 0.02  # minimum seconds per sample


class Version:
    """A process of one checkout that times calls by label."""

    def __init__(self, python: str) -> None:
        command = [python, str(_SCRIPT), "serve"]
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, label: str, count: int = 1) -> float:
        """Seconds per call, the mean of `count` consecutive calls."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{label}\t{count}\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"the process ended in {label!r}")
        return float(answer)


def ratio(base: Version, here: Version, label: str, rounds: int) -> Ratio:
    """The older version's time over the newer one's, in interleaved rounds."""
    first = max(base.seconds(label), here.seconds(label), 1e-7)
    count = max(1, int(_SAMPLE / first))
    before, after = [], []
    for number in range(rounds):
        for version, samples in ((base, before), (here, after))[
            :: 1 - 2 * (number % 2)
        ]:
            samples.append(version.seconds(label, count))
    return paired_ratio(before, after)


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Calls in both tables whose code differs."""
    return [
        label
        for label, row in before.items()
        if "code" in row and row["code"] != after.get(label, row).get("code")
    ]


def main() -> None:
    """Print what differs and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--base", help="the older checkout's Python")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="calls with this in their label")
    given = parser.parse_args()
    before, after = (json.loads(p.read_text()) for p in (given.before, given.after))
    refused = [label for label, row in after.items() if "refused" in row]
    newly = [label for label in refused if "code" in before.get(label, {})]
    labels = [label for label in changed(before, after) if given.only in label]
    print(f"{len(before)} calls, {len(labels)} with other code, {len(newly)} refused")
    for label in newly:
        print(f"refused: {label}: {after[label]['refused']}")
    if not given.base:
        print("\n".join(labels))
        return
    base, here = Version(given.base), Version(sys.executable)
    found = []
    for label in labels:
        if "code" in after[label]:
            found.append((ratio(base, here, label, given.rounds), label))
            print(f"{found[-1][0]} {label}", file=sys.stderr)
    for measured, label in sorted(found, key=lambda row: row[0].median):
        print(f"{measured} {label}")


if __name__ == "__main__":
    main()
