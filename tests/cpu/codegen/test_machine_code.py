"""What the machine executes: registers, rotations, stores around the caches."""

import re

import numpy as np
import pytest

# bits of key(42), the JAX stream: reference values of Threefry2x32-20
JAX_42 = [2098992034, 2919706841, 2646866425, 2409546199]
PACKED_0 = [1797259609, 2579123966, 928981903, 3453687069]
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def blocks(assembly):
    return re.split(r"\n(?=\.LBB)", assembly)


def wide_enough(target):
    if target.vector_registers < 32:
        pytest.skip("the tile needs the 32 vector registers of AVX-512")


def test_a_register_tile_stays_in_registers(build, target):
    wide_enough(target)
    kernel = build("""
def dense(x: f32[4, 64, 14], w: f32[3, 64, 32], y: Out[f32[56, 96]]):
    for i in parallel(4):
        for j in range(3):
            acc = alloc(f32[14, 32], scope="register")
            for k in range(64):
                for a in unrolled(14):
                    for b in unrolled(2):
                        for v in vectorized(16):
                            with block("dot", va=spatial(14, a),
                                       vb=spatial(32, b * 16 + v),
                                       vk=reduction(64, k)):
                                reduce(sum, acc[va, vb], x[i, vk, va] * w[j, vk, vb])
            for a2 in unrolled(14):
                for b2 in unrolled(2):
                    for v2 in vectorized(16):
                        y[i * 14 + a2, j * 32 + b2 * 16 + v2] = acc[a2, b2 * 16 + v2]
""")
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (4, 64, 14)).astype(np.float32)
    w = rng.integers(-4, 5, (3, 64, 32)).astype(np.float32)
    y = np.zeros((56, 96), np.float32)
    kernel(x, w, y, team=2)
    rows = x.transpose(0, 2, 1).reshape(56, 64)
    columns = w.transpose(1, 0, 2).reshape(64, 96)
    np.testing.assert_array_equal(y, rows @ columns)
    inner = [text for text in blocks(kernel.assembly) if text.count("vfmadd") >= 24]
    assert len(inner) == 1
    assert "rsp" not in inner[0]
    assert "rbp" not in inner[0]


def threefry(high, low):
    """Lets of Threefry2x32-20 on a counter, for keys named k0, k1, k2."""
    lines = [f"x_0: u32 = {high} + k0", f"y_0: u32 = {low} + k1"]
    keys, n = ("k0", "k1", "k2"), 0
    for step in range(20):
        turn = ROTATIONS[step // 4 % 2][step % 4]
        lines += [
            f"x_{n + 1}: u32 = x_{n} + y_{n}",
            f"y_{n + 1}: u32 = rotl(y_{n}, u32({turn})) ^ x_{n + 1}",
        ]
        n += 1
        if step % 4 == 3:
            s = (step + 1) // 4
            lines += [
                f"x_{n + 1}: u32 = x_{n} + {keys[s % 3]}",
                f"y_{n + 1}: u32 = y_{n} + {keys[(s + 1) % 3]} + u32({s})",
            ]
            n += 1
    return lines, f"x_{n}", f"y_{n}"


def stream(stores, words):
    lines, x, y = threefry("cast(u32, p >> 32)", "cast(u32, p)")
    lines += [text.format(x=x, y=y) for text in stores]
    body = "".join(f"                {line}\n" for line in lines)
    return f"""
def bits(key: u32[2], out: Out[u32[n * {words}]], *, n: i64):
    k0: u32 = key[0]
    k1: u32 = key[1]
    k2: u32 = k0 ^ k1 ^ u32(466688986)
    for i in parallel(n // 32):
        for u in unrolled(2):
            for v in vectorized(16):
                p: i64 = i * 32 + u * 16 + v
{body}"""


def test_threefry_rotates_in_one_instruction(build, target):
    kernel = build(stream(["out[p] = {x} ^ {y}"], 1))
    out = np.zeros(64, np.uint32)
    kernel(np.array([0, 42], np.uint32), out, n=64, team=2)
    assert list(out[:4]) == JAX_42
    if "avx512f" in target.features:
        assert kernel.assembly.count("vprold") == 40


def test_both_words_of_threefry_go_out_interleaved(build):
    kernel = build(stream(["out[p * 2] = {x}", "out[p * 2 + 1] = {y}"], 2))
    out = np.zeros(128, np.uint32)
    kernel(np.zeros(2, np.uint32), out, n=64)
    assert list(out[:4]) == PACKED_0
    assert "scatter" not in kernel.source


NONTEMPORAL = """
def fill(y: Out[f32[n]], *, n: i64):
    for i in parallel(n // 16):
        for v in vectorized(16):
            store(y[i * 16 + v], 2.0, hints=("nontemporal",))
"""


@pytest.mark.parametrize("shift", [0, 1])
def test_stores_around_the_caches_where_the_address_allows(build, shift):
    kernel = build(NONTEMPORAL)
    memory = np.zeros(64 + 32, np.float32)
    start = -memory.ctypes.data % 64 // 4 + shift
    y = memory[start : start + 64]
    kernel(y, n=64)
    np.testing.assert_array_equal(y, 2.0)
    assert memory.sum() == 128
    assert "sfence" in kernel.assembly
    assert re.search(r"movnt", kernel.assembly)


def test_the_same_function_gives_the_same_bytes(build):
    assert build(NONTEMPORAL).source == build(NONTEMPORAL).source


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_whole_numbers_of_narrow_floats_stay_in_lanes(build, target, name, dtype):
    wide_enough(target)
    kernel = build(f"""
def f(x: {dtype}[64], y: Out[{dtype}[64]]):
    for i in range(4):
        for j in vectorized(16):
            y[i * 16 + j] = cast({dtype}, {name}(cast(f32, x[i * 16 + j])))
""")
    assert "vrndscaleps" in kernel.assembly
    assert not re.search(r"vround(ss|scaless)", kernel.assembly)
