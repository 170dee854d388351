"""Lower warp roles and barrier objects to branches, shared memory and instructions.

full = barrier_object(1, 2)             full = alloc(u64[2], scope="shared")
for t in bound(384, "thread.x"):        for t in bound(384, "thread.x"):
    with role(t >= 256, registers=40):      if t == 0: barrier_init(full[..], 1)
        wait(full[s], p)         ->         barrier("block")
                                            if t >= 256:
                                                set_registers(40)
                                                wait_phase(full[s], p)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Final

from tensorlang.codegen.hopper.copies import copies_of
from tensorlang.codegen.hopper.effects import effect
from tensorlang.codegen.hopper.products import product_of
from tensorlang.codegen.hopper.registers import at_start, check_registers, threads_of
from tensorlang.codegen.hopper.stores import is_store, store_of
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARP, WARPGROUP
from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.dtypes import i64, u64
from tensorlang.ir.simplification.simplify import simplify, simplify_function
from tensorlang.ir.visit import (
    children,
    rebuild,
    rebuild_statements,
    rewriter,
    substitute,
    walk_statements,
)
from tensorlang.targets import Target

_NEEDS: Final = {
    ir.Role: "tma",
    ir.BarrierObject: "tma",
    ir.Arrive: "tma",
    ir.Wait: "tma",
}


def lower_roles(function: ir.Function, target: Target) -> ir.Function:
    """The function without roles, barrier objects and warpgroup blocks.

    Raises:
        CodegenError: the target lacks the instructions, or a construct does not match
            one of them.
    """
    if not any(map(_is_ours, walk_statements(function.body))):
        return function
    refuse_roles(function, target)
    plain = simplify_function(replace(function, body=_without_axes(function.body)))
    return replace(plain, body=_Roles().visit(plain.body))


def refuse_roles(function: ir.Function, target: Target) -> None:
    """Check that a target supports the roles and barrier objects in a function.

    Raises:
        CodegenError: it does not.
    """
    for node in walk_statements(function.body):
        feature = "wgmma" if _is_collective(node) else _NEEDS.get(type(node), "")
        if feature and feature not in target.features:
            raise CodegenError(
                f"a {type(node).__name__} of this kind needs {feature!r}, which "
                f"{target} lacks; schedule the operator without roles"
            )


def _is_ours(node: ir.Node) -> bool:
    return type(node) in _NEEDS or _is_collective(node)


def _is_wait(node: ir.Node) -> bool:
    """Whether a statement waits for products of warpgroups."""
    expr = node.expr if isinstance(node, ir.Evaluate) else None
    return isinstance(expr, ir.Call) and expr.name == "wait_products"


def _is_copying(node: ir.If) -> bool:
    return any(isinstance(n, ir.Arrive) and n.copies for n in walk_statements(node))


def _is_collective(node: ir.Node) -> bool:
    return isinstance(node, ir.Block) and node.scope == "warpgroup"


def _waits(loop: ir.For) -> bool:
    """Whether the steps of a loop wait for products, which go on until then."""
    return any(map(_is_wait, children(loop.body)))


def _started(node: ir.Stmt) -> int:
    """The products in a statement, but for loops that wait for their own."""
    if _is_product(node):
        return 1
    if isinstance(node, ir.For) and _waits(node):
        return 0
    return sum(_started(part) for part in children(node) if isinstance(part, ir.Stmt))


def _is_product(node: ir.Node) -> bool:
    return isinstance(node, ir.Block) and _is_collective(node) and not is_store(node)


@rewriter
def _without_axes(stmt: ir.Node, inside: bool = False) -> ir.Node:
    """Remove the axes of collective blocks, and all blocks inside these and copies."""
    if not isinstance(stmt, ir.Stmt):
        return stmt
    below = inside or isinstance(stmt, ir.Arrive) or _is_collective(stmt)
    made = rebuild(stmt, lambda child: _without_axes(child, below))
    if not isinstance(made, ir.Block) or not below:
        return made
    values = {axis.var: axis.value for axis in made.axes}
    body = substitute(made.body, values)
    if made.where is not None:
        body = ir.If(made.where, body)
    if made.init is not None and made.init != ir.seq():
        body = ir.seq(ir.If(_is_first(made), substitute(made.init, values)), body)
    return body if inside else replace(made, axes=(), body=body, init=None)


def _is_first(block: ir.Block) -> ir.Expr:
    """Whether a reduction is at its start."""
    folded = [axis.value for axis in block.axes if axis.kind == "reduction"]
    return reduce(
        and_, (simplify(value).equal(0) for value in folded), ir.as_expr(True)
    )


def _without_names(node: ir.Seq, thread: ir.Var | None) -> Iterator[ir.Stmt]:
    """The statements with integer lets that depend on the thread substituted.

    Register indices are compared by their value for each thread.
    """
    values: dict[ir.Var, ir.Expr] = {}
    for stmt in node.stmts:
        placed = substitute(stmt, values)
        match placed:
            case ir.Let(var=var, value=value) if thread in free_vars(value):
                if var.dtype == i64 and not reads(value):
                    values[var] = value
                    continue
        yield placed


def _roles_joined(stmts: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
    """The statements with two roles, of which each thread has one, as two branches."""
    done: list[ir.Stmt] = []
    for stmt in stmts:
        last = done[-1] if done else None
        if isinstance(last, ir.Role) and _is_rest(stmt, last):
            done[-1] = ir.If(last.cond, last, stmt)
        else:
            done.append(stmt)
    yield from done


def _is_rest(stmt: ir.Stmt, role: ir.Role) -> bool:
    """Whether a statement is the role of all threads that do not have another one."""
    return isinstance(stmt, ir.Role) and simplify(~role.cond) == simplify(stmt.cond)


@dataclass
class _Roles:
    """`objects` maps names to barrier objects in scope; `threads` is their loop.

    `waits` says whether products are waited for at once; `flying` are the last ones
    that are not.
    """

    objects: dict[str, ir.Buffer] = field(default_factory=dict)
    fresh: list[ir.Stmt] = field(default_factory=list)
    threads: ir.For | None = None
    flying: list[ir.Call] = field(default_factory=list)
    waits: bool = True

    def visit(self, node: ir.Stmt) -> ir.Stmt:
        """Rewrite a statement to instructions."""
        match node:
            case ir.Seq():
                stmts = _roles_joined(_without_names(node, self.thread))
                return ir.seq(*map(self.visit, stmts))
            case ir.BarrierObject():
                return self.declare(node)
            case ir.For(thread="thread.x"):
                return self.loop(node)
            case ir.For() if _waits(node):
                return self.flight(node)
            case ir.Evaluate(expr=ir.Call() as call) if _is_wait(node):
                return self.wait(call)
            case ir.Role():
                return ir.If(node.cond, self.role(node))
            case ir.If(then=ir.Role() as role, orelse=ir.Role() as other):
                return ir.If(node.cond, self.role(role), self.role(other))
            case ir.If() if _is_copying(node):
                return self.elected(node)
            case ir.Arrive():
                return self.arrive(node)
            case ir.Wait():
                return effect("wait_phase", self.place(node), node.phase & 1)
            case ir.Barrier(scope="warpgroup") if self.threads is not None:
                number = self.threads.var // WARPGROUP + 1  # 0 is that of the block
                return effect("group_barrier", number, WARPGROUP)
            case ir.Block() if _is_collective(node):
                assert self.threads is not None
                if is_store(node):
                    return store_of(node, self.threads.var)
                product = product_of(node, self.threads, waits=self.waits)
                if not self.waits and isinstance(product.expr, ir.Call):
                    self.flying.append(product.expr)
                return product
            case _:
                return rebuild_statements(node, self.visit)

    @property
    def thread(self) -> ir.Var | None:
        """The variable of the threads."""
        return None if self.threads is None else self.threads.var

    def flight(self, node: ir.For) -> ir.Stmt:
        """A loop whose products go on past a step.

        Raises:
            CodegenError: some are not in every step, but waits count products.
        """
        stmts = node.body.stmts if isinstance(node.body, ir.Seq) else (node.body,)
        own = [x for x in stmts if isinstance(x, ir.Block) and _is_product(x)]
        if len(own) < sum(map(_started, stmts)):
            raise CodegenError(
                f"loop {node.var.name} leaves products of warpgroups in flight, and "
                "some are in loops or branches inside; leave none: in_flight=0"
            )
        before, self.waits = self.waits, False
        assert self.threads is not None
        made = (product_of(stmt, self.threads, waits=False).expr for stmt in own)
        self.flying = [call for call in made if isinstance(call, ir.Call)]
        after = rebuild_statements(node, self.visit)
        self.waits = before
        return after

    def wait(self, call: ir.Call) -> ir.Stmt:
        """Wait for all but the last products in flight.

        Sums to which none of these adds are there then: a wait names them, so that
        nothing reads them before.
        """
        if not self.flying:
            raise CodegenError(f"{call!r} follows no product of warpgroups")
        (left,) = call.args
        count = int(left.value) if isinstance(left, ir.Const) else 0
        places = [product.args[2] for product in self.flying]
        kept = places[len(places) - count :]
        there = dict.fromkeys(
            (product.args[0], at)
            for product, at in zip(self.flying, places, strict=True)
            if at not in kept
        )
        columns = there or {(ir.as_expr(0), places[-1]): None}
        return ir.seq(*(effect("products_wait", left, *each) for each in columns))

    def declare(self, node: ir.BarrierObject) -> ir.Stmt:
        """Shared memory for the objects; a thread initialises them later."""
        buffer = ir.Buffer(node.name, u64, (ir.as_expr(node.size),), "shared")
        self.objects[node.name] = buffer
        for at in range(node.size):
            self.fresh.append(effect("barrier_init", buffer[at], node.count))
        return ir.Alloc(buffer)

    def loop(self, node: ir.For) -> ir.For:
        """The thread loop; its first thread initialises the objects."""
        first: list[ir.Stmt] = []
        if self.fresh:
            alone = ir.If(
                node.var.equal(0), ir.seq(*self.fresh, effect("barrier_fence"))
            )
            first = [alone, ir.Barrier("block")]
        self.fresh, self.threads = [], node
        check_registers(node)
        return replace(node, body=ir.seq(*first, self.visit(node.body)))

    def role(self, node: ir.Role) -> ir.Stmt:
        """What the threads of a role do."""
        inside = (n for n in walk_statements(node) if isinstance(n, ir.Block))
        stores = any(_is_collective(n) and is_store(n) for n in inside)
        last = [effect("bulk_wait")] if stores else []
        return ir.seq(*self.registers(node), self.visit(node.body), *last)

    def registers(self, node: ir.Role) -> Iterator[ir.Stmt]:
        """Increase or decrease the registers of the role's threads."""
        if node.registers and self.threads is not None:
            more = node.registers > at_start(threads_of(self.threads))
            yield effect("set_registers", node.registers, more)

    def elected(self, node: ir.If) -> ir.Stmt:
        """What one thread does, by the one that its warp elects.

        Copies are then known to be issued once, without a loop over active threads.
        """
        match node.cond:
            case ir.Compare(op="eq", a=a, b=ir.Const(value=first)) if a == self.thread:
                warp = (a // WARP).equal(int(first) // WARP)
                body = self.visit(node.then)
                if not int(first) % WARP and node.orelse is None:
                    return ir.If(warp, ir.If(effect("elect_one").expr, body))
        return rebuild_statements(node, self.visit)

    def arrive(self, node: ir.Arrive) -> ir.Stmt:
        """An arrival; it expects the bytes of its copies."""
        at = self.place(node)
        if node.copies is None:
            return effect("arrive", at)
        copies = copies_of(node.copies)
        expected = effect("arrive_expecting", at, sum(copy.bytes for copy in copies))
        return ir.seq(expected, *[copy.statement(at) for copy in copies])

    def place(self, node: ir.Arrive | ir.Wait) -> ir.Load:
        """The barrier object it refers to."""
        index: ir.Expr = node.index
        return ir.Load(self.objects[node.name], (index,))
