"""Count the instructions of dense for Hopper, a step of k, in what ptxas makes of it.

    python -m benchmarks.hopper_counts [size ..]

Prints two tables in Markdown, by the knobs that lead from products of warps, as on
Ampere, to those of warpgroups in blocks that stay: what the innermost loops issue for
64 steps along k, and what the static cost model predicts. Nothing runs, and no GPU is
needed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache

from tensorlang import build, targets
from tensorlang.ops import Operator, find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime import Kernel
from tensorlang.tuner.limits.gpu_specs import DEVICES
from tensorlang.tuner.static.cost import static_cost
from tensorlang.workload import Workload

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


@cache
def built(size: int, rung: str) -> tuple[Kernel, Operator, Workload]:
    """Dense of square matrices of bf16, by the knobs of a rung."""
    dense = find("nn.dense")
    workload = dense.workload((size, size), (size, size), dtypes="bf16")
    scheduled = default(dense, workload, HOPPER, RUNGS[rung])[0]
    return build(scheduled, HOPPER, store=False), dense, workload


def counted(size: int, rung: str) -> list[str]:
    """A row of the table: counts of the loops over k, stores, registers, spills."""
    kernel, _, _ = built(size, rung)
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


def predicted(size: int, rung: str) -> list[str]:
    """A row of the table: the rate and its part of the peak by device, the bound."""
    row, bound = [], ""
    for gpu in DEVICES.values():
        told = static_cost(*built(size, rung), gpu)
        reached = 2 * size**3 / told.seconds
        row.append(f"{reached / 1e12:.0f} ({reached / gpu.peak:.2f})")
        bound = told.bound
    return [*row, bound]


def table(titles: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under their titles, in Markdown."""
    lines = [tuple(titles), *rows]
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join((head, "|" + "---|" * len(lines[0]), *rest))


def main() -> None:
    """Print the tables."""
    sizes = [int(size) for size in sys.argv[1:]] or [4096, 8192]
    told = *COLUMNS, "stores of results", "registers", "spilled bytes"
    rows = [(rung, *counted(sizes[0], rung)) for rung in RUNGS]
    print(table(("", *told), rows), end="\n\n")
    titles = [f"TFLOP/s of {device} (of its peak)" for device in DEVICES]
    pairs = [(size, rung) for size in sizes for rung in RUNGS]
    guesses = ((f"{size}, {rung}", *predicted(size, rung)) for size, rung in pairs)
    print(table(("predicted", *titles, "bound by"), guesses))


if __name__ == "__main__":
    main()
