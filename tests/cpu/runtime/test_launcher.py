"""The compiled launcher starts what the host program says, with what it says."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.runtime import host_program
from tensorlang.runtime.cpu import launcher, launcher_text, llvm
from tensorlang.runtime.signature import BufferSpec, ScalarSpec, Signature

START = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_uint64,
    *(ctypes.c_uint32,) * 7,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
FAULTS, STREAM, FIRST_KERNEL, FIRST_TEMPORARY = 777, 55, 100, 9000
SIGNATURE = Signature(
    "f",
    (BufferSpec("x", "f32", "in", ("n",)), BufferSpec("y", "f32", "out", ("n",))),
    (
        ScalarSpec("n", "i64", bound=True),
        ScalarSpec("k", "i32", bound=False),
        ScalarSpec("u", "u8", bound=False),
        ScalarSpec("flag", "bool", bound=False),
        ScalarSpec("a", "f32", bound=False),
    ),
)
SCALARS = [scalar.name for scalar in SIGNATURE.scalars]
TYPES = {"n": "i64", "k": "i32", "u": "u8", "flag": "bool", "a": "f32"}
CTYPES = {
    "i64": ctypes.c_int64,
    "i32": ctypes.c_int32,
    "u8": ctypes.c_uint8,
    "bool": ctypes.c_uint8,
    "f32": ctypes.c_float,
}


def steps(program, names):
    """The launches that a host program comes to, with the names at each."""
    found = []
    host_program.run(program, names, lambda k, now: found.append((k, dict(now))))
    return found


def value_of(arg, names, temporaries):
    kind, *rest = arg
    if kind == "param":
        return 1000 + rest[0]
    if kind == "faults":
        return FAULTS
    if kind == "temporary":
        return FIRST_TEMPORARY + temporaries.index(rest[0])
    return names[rest[0]]


def expected(host, scalars):
    temporaries = launcher_text.temporaries(host)
    sizes = [0] * len(temporaries)
    calls = []
    for k, names in steps(host["program"], dict(scalars)):
        launch = host["launches"][k]
        grid = [host_program.number(extent, names) for extent in launch["grid"]]
        if min(grid) <= 0:
            continue
        for arg in launch["args"]:
            if arg[0] == "temporary":
                at = temporaries.index(arg[1])
                sizes[at] = max(sizes[at], host_program.number(arg[2], names))
        values = [value_of(arg, names, temporaries) for arg in launch["args"]]
        calls.append(
            (k, *grid, *launch["block"], launch.get("dynamic_shared", 0), values)
        )
    return calls, sizes


def started(host, scalars, answers=None):
    """What the compiled launcher starts, and the sizes and the code that it gives."""
    code = llvm.compile_quickly(launcher_text.launcher_text("f", SIGNATURE, host))
    run = launcher.Launcher("f", host, code)
    block = (ctypes.c_uint64 * (SIGNATURE.slots + 1))(1000, 1001)
    for slot, name in enumerate(SCALARS, 2):
        raw = bytes(CTYPES[TYPES[name]](scalars[name]))
        block[slot] = int.from_bytes(raw, "little")
    calls = []

    @START
    def start(*given):
        kernel, gx, gy, gz, bx, by, bz, shared, stream, params, extra = given
        assert (stream, extra) == (STREAM, None)
        launch = host["launches"][kernel - FIRST_KERNEL]
        values = []
        for at, arg in enumerate(launch["args"]):
            name = arg[2] if arg[0] == "scalar" else "i64"
            values.append(CTYPES[name].from_address(params[at]).value)
        calls.append((kernel - FIRST_KERNEL, gx, gy, gz, bx, by, bz, shared, values))
        return answers.pop(0) if answers else 0

    place = ctypes.addressof(block)
    sizes = list(run.sizes(place))
    held = [FIRST_TEMPORARY + at for at in range(len(sizes))]
    count = len(host["launches"])
    kernels = (ctypes.c_uint64 * count)(*range(FIRST_KERNEL, FIRST_KERNEL + count))
    address = ctypes.cast(start, ctypes.c_void_p).value
    code = run(place, held, FAULTS, ctypes.addressof(kernels), address, STREAM)
    return calls, sizes, code


NUMBERS = {"n": 37, "k": -5, "u": 200, "flag": 1, "a": 0.5}
leaves = st.integers(-40, 40) | st.sampled_from(["n", "k", "u", "flag"])
plain = ["add", "and", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne", "or"]
plain += ["sub", "xor"]
numbers = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.sampled_from(plain), inner, inner).map(list)
        | st.tuples(
            st.sampled_from(["floordiv", "floormod"]),
            inner,
            st.sampled_from([-7, -1, 2, 32, 1000]),
        ).map(list)
        | st.tuples(st.sampled_from(["shl", "shr"]), inner, st.integers(0, 5)).map(list)
        | st.tuples(st.just("select"), inner, inner, inner).map(list)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(numbers, min_size=3, max_size=3), numbers)
def test_numbers_are_pythons(values, cond):
    clipped = [["max", ["min", value, 60000], 0] for value in values]
    args = [["param", 1], ["scalar", "m", "i64"], ["temporary", "t", clipped[0]]]
    launch = {"name": "f", "grid": clipped, "block": [32, 2, 1], "args": args}
    program = [
        ["let", "m", values[0]],
        ["if", cond, [["launch", 0]], [["let", "m", 3]]],
    ]
    host = {"launches": [launch], "program": program, "scalars": SCALARS}
    calls, sizes, code = started(host, NUMBERS)
    assert (calls, sizes) == expected(host, NUMBERS)
    assert code == 0


def several():
    """Loops in loops, a branch, temporaries that grow, all kinds of arguments."""
    grow = ["mul", ["add", "i", 1], 256]
    first = {
        "name": "f_1",
        "grid": ["n", ["sub", "i", 1], 1],
        "block": [64, 1, 1],
        "args": [
            ["temporary", "t", grow],
            ["param", 0],
            ["scalar", "k", "i32"],
            ["scalar", "i", "i64"],
            ["scalar", "flag", "bool"],
        ],
    }
    second = {
        "name": "f_2",
        "grid": [["floordiv", ["add", "n", 31], 32], 1, 1],
        "block": [8, 4, 2],
        "dynamic_shared": 65536,
        "args": [
            ["param", 1],
            ["temporary", "s", "n"],
            ["temporary", "t", 64],
            ["scalar", "a", "f32"],
            ["scalar", "u", "u8"],
            ["faults"],
        ],
    }
    inner = [["for", "j", "i", [["launch", 1]]]]
    program = [
        ["for", "i", 4, [["launch", 0], ["if", ["eq", "i", 2], inner, []]]],
    ]
    return {"launches": [first, second], "program": program, "scalars": SCALARS}


def test_loops_and_arguments():
    calls, sizes, code = started(several(), NUMBERS)
    assert (calls, sizes) == expected(several(), NUMBERS)
    assert [call[0] for call in calls] == [0, 1, 1, 0]  # two of the first have no block
    assert sizes == [1024, 37]
    assert code == 0


ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    *(ctypes.c_uint32,) * 4,
)


def test_tensor_maps_are_encoded_before_their_launch():
    told = {"dtype": "bf16", "shape": ["n", ["mul", "n", 8]]}
    told |= {"box": [64, 32], "swizzle": 64}
    launch = {
        "name": "f",
        "grid": [1, 1, 1],
        "block": [32, 1, 1],
        "args": [["tensor_map", 1, told], ["param", 1], ["scalar", "n", "i64"]],
    }
    host = {"launches": [launch], "program": [["launch", 0]], "scalars": SCALARS}
    encoded, given = [], []

    @ENCODE
    def encode(place, *rest):
        dtype, rank, address, dims, pitches, box, strides, *modes = rest
        encoded.append((dtype, rank, address, dims[:2], pitches[0], box[:2]))
        assert (strides[:2], modes, place % 64) == ([1, 1], [0, 2, 2, 0], 0)
        ctypes.memset(place, 0x5A, 128)
        return 1 if fails else 0

    @START
    def start(*rest):
        given.append(ctypes.string_at(rest[9][0], 128))
        return 0

    code = llvm.compile_quickly(launcher_text.launcher_text("f", SIGNATURE, host))
    run = launcher.Launcher("f", host, code)
    assert run.has_maps
    block = (ctypes.c_uint64 * 9)(1000, 1008, 37)
    kernels = (ctypes.c_uint64 * 1)(FIRST_KERNEL)
    places = [ctypes.cast(f, ctypes.c_void_p).value for f in (start, encode)]
    for fails in (False, True):
        code = run(
            ctypes.addressof(block),
            [],
            0,
            ctypes.addressof(kernels),
            places[0],
            0,
            places[1],
        )
        assert code == fails
    assert encoded == [(9, 2, 1008, [37 * 8, 37], 37 * 16, [32, 64])] * 2
    assert given == [b"\x5a" * 128]


def test_a_temporary_has_a_tensor_map():
    told = {"dtype": "bf16", "shape": [64, 64], "box": [64, 64], "swizzle": 128}
    args = [["temporary", "t", 64]], [["tensor_map", "t", told]]
    launches = [
        {"name": "f", "grid": [1, 1, 1], "block": [32, 1, 1], "args": each}
        for each in args
    ]
    program = [["launch", 0], ["launch", 1]]
    host = {"launches": launches, "program": program, "scalars": SCALARS}
    addresses = []

    @ENCODE
    def encode(*rest):
        addresses.append(rest[3])
        return 0

    @START
    def start(*_):
        return 0

    code = llvm.compile_quickly(launcher_text.launcher_text("f", SIGNATURE, host))
    run = launcher.Launcher("f", host, code)
    block = (ctypes.c_uint64 * 9)()
    kernels = (ctypes.c_uint64 * 2)()
    places = [ctypes.cast(f, ctypes.c_void_p).value for f in (start, encode)]
    at = ctypes.addressof(block), [4096], 0, ctypes.addressof(kernels)
    assert run(*at, places[0], 0, places[1]) == 0
    assert addresses == [4096]


def test_the_first_failure_ends_it():
    calls, _, code = started(several(), NUMBERS, [0, 719])
    assert (len(calls), code) == (2, 719)


@pytest.mark.parametrize("grid", [[1 << 31, 1, 1], [1, 65536, 1], [1, 1, 65536]])
def test_a_grid_is_never_cut(grid):
    host = several()
    host["launches"][1]["grid"] = grid
    calls, _, code = started(host, NUMBERS)
    assert code == launcher_text.TOO_LARGE
    assert len(calls) == 1


def test_what_is_packed_comes_back():
    host, code = launcher.unpacked(launcher.packed("f", SIGNATURE, several()))
    assert host == several()
    assert launcher.Launcher("f", host, code).temporaries == ["t", "s"]
    assert np.frombuffer(code[:4], np.uint8).size == 4
