"""Count the instructions of products for Hopper, a step of k, as ptxas makes them.

    python -m benchmarks.hopper_counts [size ..]

Sizes are those of square matrices, by default 4096 and 8192; the first is counted.
Prints tables in Markdown, by the knobs that lead from products of warps, as on Ampere,
to those of warpgroups in blocks that stay, for the gradient, and for a batch of
products: what the innermost loops issue for 64 steps along k, and what the static cost
model predicts; and that for dense of few rows, and for gradients of few columns, by the
largest tiles and by those chosen. The last two are of attention: what the loops of its
launches issue for a tile of columns, and what is predicted. Nothing runs, and no GPU is
needed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from tensorlang import build, targets
from tensorlang.codegen.simt.host import launches
from tensorlang.machine.gpus import DEVICES
from tensorlang.ops import Operator, find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime import Kernel
from tensorlang.tuner.static.cost import static_cost
from tensorlang.workload import Workload

HOPPER = targets.to_compile("cuda:sm_90a")


@dataclass(frozen=True, slots=True)
class Rung:
    """A kernel: its operator, knobs, and products of square matrices, by launch.

    `batch` is the number of them in each launch, of arrays of as many matrices.
    """

    operator: str = "nn.dense"
    knobs: dict[str, object] = field(default_factory=dict)
    launches: tuple[str, ...] = ("",)
    batch: int = 0

    def names(self, name: str) -> list[str]:
        """A name for each of the products."""
        return [", ".join(filter(None, (name, each))) for each in self.launches]


MANY = {"few_rows": 0}  # one launch, for many rows
RUNGS = {
    "products of warps, `cp.async`": Rung(knobs={"instruction": "mma"}),
    "warpgroups, roles, bulk copies": Rung(
        knobs=MANY | {"persistent": False, "bulk_store": False}
    ),
    "the same, blocks that stay": Rung(knobs=MANY | {"bulk_store": False}),
    "the same, results stored in bulk": Rung(knobs=MANY),
    "the same, products in flight": Rung(knobs=MANY | {"in_flight": 1}),
    "its gradient": Rung("nn.dense_grad", launches=("`dy w`", "`dy^T x`")),
    "8 products, `math.matmul`": Rung("math.matmul", MANY, batch=8),
}
UNDIVIDED = {"step_parts_dw_sum": 1}
# operator -> rows, outputs, inputs, and knobs that do without
SHORT = {
    "nn.dense": (((64, 4096, 4096), (256, 4096, 4096), (1024, 1024, 4096)), MANY),
    "nn.dense_grad": (((8192, 512, 512), (8192, 1024, 1024)), UNDIVIDED),
}
# operator -> arrays of queries' shape, and products of queries, keys and head sizes
ATTENTIONS = {"nn.attention": (3, 2), "nn.attention_grad": (4, 5)}
LENGTH, NUMBERS = 4096, 8192  # of keys; of a position of all heads
STEP = 64  # along k
SIZES = 4096, 8192
# columns of all launches of a kernel
OF_KERNEL = "registers (most of its kernel)", "spilled bytes (of its kernel)"
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
    """A rung's kernel, for square matrices of bf16."""
    of = RUNGS[rung]
    shape = (of.batch,) * bool(of.batch) + (size, size)
    shapes = (shape,) * (3 if of.operator == "nn.dense_grad" else 2)
    return made(of.operator, shapes, of.knobs)


def made(
    name: str, shapes: Sequence[tuple[int, ...]], knobs: Mapping[str, object]
) -> tuple[Kernel, Operator, Workload]:
    """The kernel of an operator for arrays of bf16, with some knobs pinned."""
    op = find(name)
    workload = op.workload(*shapes, dtypes="bf16")
    scheduled = default(op, workload, HOPPER, knobs)[0]
    return build(scheduled, HOPPER, store=False), op, workload


def counted(size: int, rung: str) -> Iterator[list[str]]:
    """Rows of the table: counts of the loops over k, stores, then `OF_KERNEL`."""
    kernel, _, _ = built(size, rung)
    names = [launch.name for launch in launches(kernel.lowered)]
    texts = [
        kernel.asm.partition(f".text.{name}:")[2].partition(".section")[0]
        for name in names
    ]
    multiply = [text for text in texts if re.search(COLUMNS["products"], text)]
    for called, sass in zip(RUNGS[rung].names(rung), multiply, strict=True):
        stores = len(re.findall(r"\bSTG\.|\bUTMASTG\.", sass))
        told = stores, kernel.resources["registers"], kernel.resources["spill_bytes"]
        yield [called, *(f"{number:g}" for number in (*_issued(sass), *told))]


def _issued(sass: str) -> Iterable[float]:
    """What the loops over k issue for 64 steps, by column."""
    totals = dict.fromkeys(COLUMNS, 0.0)
    for body in loops(sass):
        products = sum(bool(re.search(COLUMNS["products"], line)) for line in body)
        copies = sum("UTMALDG" in line for line in body)
        if products or copies:
            wide = re.search(r"HGMMA", "\n".join(body))
            depth = 16 * (products if wide else products / 32) if products else STEP
            for column, word in COLUMNS.items():
                count = sum(bool(re.search(word, line)) for line in body)
                totals[column] += count * STEP / depth
    return totals.values()


def predicted(size: int, rung: str) -> list[str]:
    """A row of the table: the rate and its part of the peak by device, the bound."""
    row, bound = [], ""
    for gpu in DEVICES.values():
        told = static_cost(*built(size, rung), gpu)
        products = len(RUNGS[rung].launches) * (RUNGS[rung].batch or 1)
        reached = 2 * size**3 * products / told.seconds
        row.append(f"{reached / 1e12:.0f} ({reached / gpu.peak:.2f})")
        bound = told.bound
    return [*row, bound]


def shorter(name: str) -> Iterator[list[str]]:
    """Rows of the table of few results: times by the largest tiles, as chosen."""
    sizes, without = SHORT[name]
    for m, n, k in sizes:
        shapes = (
            [(m, n), (m, k), (n, k)] if name == "nn.dense_grad" else [(m, k), (n, k)]
        )
        row = [f"`{name}` of {m} x {n} x {k}"]
        for knobs in (without, {}):
            told = static_cost(*made(name, shapes, knobs), DEVICES["H100"])
            row.append(f"{1e6 * told.seconds:.1f} ({told.bound})")
        yield row


def attention(name: str, depth: int, *, causal: bool) -> tuple[Kernel, list[str]]:
    """A kernel of attention, and a row of the table: the rate and its part, the bound.

    Half the products are counted if causal, and none that is computed again.
    """
    arrays, products = ATTENTIONS[name]
    shape = 4, NUMBERS // 4 // depth, LENGTH, depth
    op = find(name)
    workload = op.workload(*(shape,) * arrays, dtypes="bf16", causal=causal)
    kernel = build(default(op, workload, HOPPER, {})[0], HOPPER, store=False)
    row = [f"`{name}`, heads of {depth}{', causal' if causal else ''}"]
    told = [static_cost(kernel, op, workload, gpu) for gpu in DEVICES.values()]
    work = 2 * products * NUMBERS * LENGTH**2 / (2 if causal else 1)
    for cost, gpu in zip(told, DEVICES.values(), strict=True):
        reached = work / cost.seconds
        row.append(f"{reached / 1e12:.0f} ({reached / gpu.peak:.2f})")
    return kernel, [*row, told[0].bound]


def looped(kernel: Kernel) -> Iterator[list[str]]:
    """What the loops over tiles of columns issue, launch by launch, by column."""
    for launch in launches(kernel.lowered):
        _, _, text = kernel.asm.partition(f".text.{launch.name}:")
        for body in loops(text.partition(".section")[0]):
            found = [
                sum(bool(re.search(word, line)) for line in body)
                for word in COLUMNS.values()
            ]
            if found[0]:
                yield [f"`{launch.name}`", *map(str, found)]


def table(titles: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under their titles, in Markdown."""
    lines = [tuple(titles), *rows]
    head, *rest = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join((head, "|" + "---|" * len(lines[0]), *rest))


def _size(text: str) -> int:
    """A size of which ptxas leaves loops to count: it unrolls short ones altogether."""
    if not text.isdecimal() or int(text) < SIZES[0] or int(text) % STEP:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no multiple of {STEP} from {SIZES[0]} on"
        )
    return int(text)


def main(given: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hopper_counts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("size", nargs="*", type=_size, default=SIZES)
    sizes = parser.parse_args(given).size
    told = *COLUMNS, "stores of results", *OF_KERNEL
    rows = [row for rung in RUNGS for row in counted(sizes[0], rung)]
    print(table(("", *told), rows), end="\n\n")
    titles = [f"TFLOP/s of {device} (of its peak)" for device in DEVICES]
    pairs = [(size, rung) for size in sizes for rung in RUNGS]
    guesses = ((f"{size}, {rung}", *predicted(size, rung)) for size, rung in pairs)
    print(table(("predicted", *titles, "bound by"), guesses), end="\n\n")
    few = (row for name in SHORT for row in shorter(name))
    largest = "microseconds on H100 (bound) by the largest tiles"
    print(table(("predicted of rows x outputs x inputs", largest, "as chosen"), few))
    kinds = [(n, d, c) for n in ATTENTIONS for d in (64, 128) for c in (False, True)]
    made = [(d, c, *attention(n, d, causal=c)) for n, d, c in kinds]
    issued = [
        [f"{d}", *row] for d, c, kernel, _ in made if not c for row in looped(kernel)
    ]
    print()
    print(table(("heads of", "launch", *COLUMNS), issued), end="\n\n")
    print(table(("predicted", *titles, "bound by"), (row for *_, row in made)))


if __name__ == "__main__":
    main()
