"""Count the instructions of dense for Hopper, a step of k, in what ptxas makes of it.

    python -m benchmarks.hopper_counts [size]

Prints a table in Markdown: what the innermost loops issue for 64 steps along k, by the
knobs that lead from products of warps, as on Ampere, to those of warpgroups in blocks
that stay. Nothing runs, and no GPU is needed.
"""

from __future__ import annotations

import re
import sys

from tensorlang import build, targets
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default

HOPPER = targets.to_compile("cuda:sm_90a")
RUNGS: dict[str, dict[str, object]] = {
    "products of warps, `cp.async`": {"instruction": "mma"},
    "warpgroups, roles, bulk copies": {"persistent": False, "bulk_store": False},
    "the same, blocks that stay": {"bulk_store": False},
    "the same, results stored in bulk": {},
}
STEP = 64  # along k
# column -> its instructions
COLUMNS = {
    "products": r"\bH(G)?MMA\.",
    "copies": r"\b(LDGSTS|UTMALDG)\.",
    "fragment loads": r"\bLDSM\.",
    "waits": r"\bDEPBAR|\bWARPGROUP\.DEPBAR|TRYWAIT",
    "block barriers": r"\bBAR\.",
    "all instructions": r"",
}


def loops(sass: str) -> list[list[str]]:
    """The instructions of the innermost loops, each from a label to a branch back."""
    found: list[list[str]] = []
    begun: dict[str, int] = {}
    lines = [line.strip() for line in sass.splitlines()]
    last = 0
    for n, line in enumerate(lines):
        if label := re.fullmatch(r"(\.L_x_\d+):", line):
            begun[label[1]] = n
        back = re.search(r"\bBRA\S*\s.*\(?(\.L_x_\d+)\)?", line)
        if back and begun.get(back[1], -1) >= last:
            body = lines[begun[back[1]] : n + 1]
            found.append(
                [part for part in body if re.match(r"/\*[0-9a-f]{4,}\*/", part)]
            )
            last = n
    return found


def counted(size: int, knobs: dict[str, object]) -> list[str]:
    """A row of the table: counts of the loops over k, stores, registers, spills."""
    dense = find("nn.dense")
    workload = dense.workload((size, size), (size, size), dtypes="bf16")
    kernel = build(default(dense, workload, HOPPER, knobs)[0], HOPPER, store=False)
    totals = dict.fromkeys(COLUMNS, 0.0)
    for body in loops(kernel.asm):
        products = sum(bool(re.search(COLUMNS["products"], line)) for line in body)
        copies = sum("UTMALDG" in line for line in body)
        if products or copies:
            wide = re.search(r"HGMMA", "\n".join(body))
            depth = 16 * (products if wide else products / 32) if products else STEP
            for column, word in COLUMNS.items():
                count = sum(bool(re.search(word, line)) for line in body)
                totals[column] += count * STEP / depth
    stores = len(re.findall(r"\bSTG\.|\bUTMASTG\.", kernel.asm))
    told = stores, kernel.resources["registers"], kernel.resources["spill_bytes"]
    return [f"{number:g}" for number in (*totals.values(), *told)]


def main() -> None:
    """Print the table."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    titles = ("", *COLUMNS, "stores of results", "registers", "spilled bytes")
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name, knobs in RUNGS.items():
        print(f"| {name} | {' | '.join(counted(size, knobs))} |")


if __name__ == "__main__":
    main()
