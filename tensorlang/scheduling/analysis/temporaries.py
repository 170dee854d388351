"""Who reads and who writes a temporary, and how it is removed."""

from __future__ import annotations

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import reads, writes
from tensorlang.ir.nodes import Block, Buffer, Expr, For, Function, If, Node, While, seq
from tensorlang.ir.visit import rewriter
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.legality import legality


def users_of(func: Function, buffer: Buffer) -> list[tree.Path]:
    """The blocks that read a buffer in their bodies.

    Raises:
        ScheduleError: it is also read elsewhere.
    """
    return [
        p for p in tree.actions(func) if buffer in reads(p[-1]) and _is_use(p, buffer)
    ]


def _is_use(path: tree.Path, buffer: Buffer) -> bool:
    """Whether the block at a path reads the buffer in its body."""
    node = path[-1]
    heads: list[Expr] = [
        head
        for name in ("extent", "cond")
        if (head := getattr(node, name, None)) is not None
    ]
    if isinstance(node, Block):
        heads += [axis.value for axis in node.axes]
        heads += [] if node.where is None else [node.where]
    single = not isinstance(node, (Block, For, While, If))
    if single or any(buffer in reads(head) for head in heads):
        raise ScheduleError(
            f"{buffer.name!r} is read outside of a block's body; it cannot be moved"
        )
    return isinstance(node, Block)


@legality("an inlined block is the only writer of its buffer")
def only_written_by(paths: list[tree.Path], buffer: Buffer) -> str | None:
    """All values of the buffer come from these blocks."""
    for other in tree.actions(tree.function_of(paths[0])):
        mine = any(other[-1] is path[-1] for path in paths)
        if not mine and buffer in writes(without_body(other[-1])):
            return (
                f"{buffer.name!r} is written in another place too, not only by block "
                f"{tree.block_of(paths[0]).name!r}; both would have to be inlined"
            )
    return None


@rewriter
def without_body(node: Node) -> Node:
    """A loop or branch without its body, which is visited on its own."""
    match node:
        case For() | While() | If():
            return seq()
    return node


def dropped(func: Function, block: str, buffer: Buffer) -> Function:
    """The function without a block, the loops around only it, and its buffer."""
    func = tree.without_nest(func, block)
    return tree.replace(tree.find_alloc(func, buffer.name), None)
