"""Sites of statements: the names in scope there, and the rules of naming.

`visit` walks a function in program order and passes every statement to a callback with
its `Site`. Names introduced on the way must be valid, new along the path, and are
visible only as nodes.py specifies: a block's body sees its axes, not the loops around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Final, TypeAlias

from tensorlang.errors import IRError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.contents import free_vars
from tensorlang.ir.text.syntax import AXIS_WORDS, name_fault

MAX_NESTING: Final = 60


@frozen
class Site:
    """A place in a function; it owns its dictionaries.

    `variables` may be used here, `hidden` are in scope but must not be used (name to
    reason), `taken` are all names along the path, `steady` the variables that no loop
    changes.
    """

    place: str
    variables: dict[str, ir.Var]
    hidden: dict[str, str]
    taken: set[str]
    buffers: dict[str, ir.Buffer]
    steady: set[str]
    blocks: set[str]
    around: tuple[ir.Stmt, ...] = ()
    block: ir.Block | None = None
    barriers: dict[str, ir.BarrierObject] = field(default_factory=dict)

    def fault(self, message: str) -> IRError:
        """The error `message`, located at this place."""
        return IRError(f"{self.place}: {message}")

    def inside(self, stmt: ir.Stmt, place: str | None = None) -> Site:
        """The site of the body of `stmt`, whose names are local."""
        return replace(
            self,
            place=place or self.place,
            variables=dict(self.variables),
            hidden=dict(self.hidden),
            taken=set(self.taken),
            buffers=dict(self.buffers),
            steady=set(self.steady),
            barriers=dict(self.barriers),
            around=(*self.around, stmt),
        )

    def named(self, what: str, name: str) -> None:
        """Take `name` for the rest of this scope."""
        check_name(self, what, name)
        if name in self.taken:
            raise self.fault(
                f"{what} {name!r} has the name of something around it; rename it"
            )
        self.taken.add(name)

    def bind(self, what: str, var: ir.Var, *, steady: bool) -> None:
        """Introduce a variable for the rest of this scope."""
        self.named(what, var.name)
        self.variables[var.name] = var
        if steady:
            self.steady.add(var.name)

    def declare(self, buffer: ir.Buffer) -> None:
        """Introduce a buffer for the rest of this scope."""
        self.named("buffer", buffer.name)
        self.buffers[buffer.name] = buffer


Check: TypeAlias = Callable[[ir.Stmt, Site], None]


def check_name(site: Site, what: str, name: str) -> None:
    """Refuse a name that is not a valid identifier."""
    problem = name_fault(name)
    if problem:
        raise site.fault(f"{what}: {problem}")


def outermost(func: ir.Function) -> Site:
    """The site of a function's body, with scalars and parameters in scope."""
    place = f"function {func.name!r}"
    site = Site(place, {}, {}, set(), {}, set(), set())
    check_name(site, "function", func.name)
    for var in func.scalars:
        site.bind("scalar", var, steady=True)
    for buffer in func.buffers:
        site.declare(buffer)
    return site


def visit(stmt: ir.Stmt, site: Site, check: Check) -> None:
    """Pass `stmt` and everything below it to `check`, parents first.

    Names introduced by `stmt` stay in scope in `site`.

    Raises:
        IRError: a name is invalid or taken, or statements nest deeper than
            `MAX_NESTING`.
    """
    if len(site.around) > MAX_NESTING:
        raise site.fault(f"statements nest deeper than {MAX_NESTING}; flatten them")
    check(stmt, site)
    _descend(stmt, site, check)


@by_class
def _descend(stmt: ir.Stmt, site: Site, check: Check) -> None:
    """Visit the statements below a statement; most have none."""


@_descend.register
def _seq(stmt: ir.Seq, site: Site, check: Check) -> None:
    for inner in stmt.stmts:
        visit(inner, site, check)


@_descend.register
def _let(stmt: ir.Let, site: Site, _check: Check) -> None:
    used = {var.name for var in free_vars(stmt.value)}
    site.bind("let", stmt.var, steady=used <= site.steady)


@_descend.register
def _alloc(stmt: ir.Alloc, site: Site, _check: Check) -> None:
    site.declare(stmt.buffer)


@_descend.register
def _for(stmt: ir.For, site: Site, check: Check) -> None:
    inner = site.inside(stmt, f"loop {stmt.var.name!r}")
    inner.bind("loop", stmt.var, steady=False)
    visit(stmt.body, inner, check)


@_descend.register
def _while(stmt: ir.While, site: Site, check: Check) -> None:
    visit(stmt.body, site.inside(stmt), check)


@_descend.register
def _if(stmt: ir.If, site: Site, check: Check) -> None:
    for branch in (stmt.then, stmt.orelse):
        if branch is not None:
            visit(branch, site.inside(stmt), check)


@_descend.register
def _barrier_object(stmt: ir.BarrierObject, site: Site, _check: Check) -> None:
    site.named("barrier object", stmt.name)
    site.barriers[stmt.name] = stmt


@_descend.register
def _role(stmt: ir.Role, site: Site, check: Check) -> None:
    visit(stmt.body, site.inside(stmt, "a role"), check)


@_descend.register
def _arrive(stmt: ir.Arrive, site: Site, check: Check) -> None:
    if stmt.copies is not None:
        visit(stmt.copies, site.inside(stmt, f"the copies of {stmt.name!r}"), check)


@_descend.register
def _block(stmt: ir.Block, site: Site, check: Check) -> None:
    if stmt.name in site.blocks:
        raise site.fault(f"two blocks are called {stmt.name!r}; rename one of them")
    site.blocks.add(stmt.name)
    check_name(site, "block", stmt.name)
    if stmt.init is not None:
        visit(stmt.init, block_site(stmt, site, in_init=True), check)
    visit(stmt.body, block_site(stmt, site), check)


def block_site(block: ir.Block, site: Site, *, in_init: bool = False) -> Site:
    """The site of a block's body: its axes and what no loop changes.

    Its `init` does not see the reduction axes.
    """
    inner = replace(site.inside(block, f"block {block.name!r}"), block=block)
    for axis in block.axes:
        _axis(axis, inner)
    own = {axis.var.name for axis in block.axes}
    for name in inner.variables.keys() - inner.steady - own:
        inner.hidden[name] = (
            "is not an axis of this block; give the block an axis of it"
        )
        del inner.variables[name]
    for axis in block.axes:
        if in_init and axis.kind == "reduction":
            inner.hidden[axis.var.name] = "is a reduction axis, which init cannot see"
            del inner.variables[axis.var.name]
    return inner


def _axis(axis: ir.Axis, site: Site) -> None:
    if axis.var.name in AXIS_WORDS:
        raise site.fault(f"an axis cannot be called {axis.var.name!r}; rename it")
    site.bind("axis", axis.var, steady=False)


def check_in_scope(var: ir.Var, site: Site) -> None:
    """Refuse a variable that is not in scope here, or has another type here."""
    there = site.variables.get(var.name)
    if there is None:
        reason = site.hidden.get(var.name, "is bound by nothing around; bind it first")
        raise site.fault(f"{var.name!r} {reason}")
    if there != var:
        raise site.fault(
            f"{var.name!r} is {there.dtype} where it is bound but used as {var.dtype}"
        )


def check_declared(buffer: ir.Buffer, site: Site) -> None:
    """Refuse a buffer that is not in scope here, or differs from its declaration."""
    there = site.buffers.get(buffer.name)
    if there is None:
        raise site.fault(
            f"buffer {buffer.name!r} is neither a parameter nor allocated around here"
        )
    if there is not buffer and there != buffer:
        raise site.fault(
            f"buffer {buffer.name!r} is used as another buffer than was declared: "
            f"{buffer} and {there}"
        )


def uses(exprs: tuple[ir.Expr, ...]) -> set[str]:
    """The names of the variables in some expressions."""
    return {var.name for expr in exprs for var in free_vars(expr)}
