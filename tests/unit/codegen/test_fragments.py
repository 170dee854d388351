"""What warps load stands outside of loops that it does not depend on, as vectors."""

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.fragments import hoist_fragments
from tensorlang.codegen.simt.whole_vectors import combine_vectors
from tensorlang.ir.text.parser import parse

PRODUCTS = """
def products(y: Out[f32[256]]):
    for thread in bound(32, "thread.x"):
        s = alloc(bf16[4096], scope="register")
        c = alloc(f32[64], scope="register")
        for k in unrolled(2):
            for i in unrolled(4):
                for j in unrolled(2):
                    a: bf16x8 = ldmatrix_x4(s[ramp(k * 64 + i * 512, 1, 8)])
                    b: bf16x8 = ldmatrix_x4(s[ramp(k * 64 + j * 1024, 1, 8)])
                    b0: bf16x4 = shuffle((b,), (4, 5, 6, 7))
                    d: f32x4 = mma_m16n8k16_bf16(a, b0, shuffle((c[i * 8 + j * 4], c[i * 8 + j * 4 + 1], c[i * 8 + j * 4 + 2], c[i * 8 + j * 4 + 3]), (0, 1, 2, 3)))
                    c[i * 8 + j * 4] = extract(d, 0)
                    c[i * 8 + j * 4 + 1] = extract(d, 1)
                    c[i * 8 + j * 4 + 2] = extract(d, 2)
                    c[i * 8 + j * 4 + 3] = extract(d, 3)
"""  # noqa: E501 - the text of a program

HELD = """\
        for k in unrolled(2):
            b_held = alloc(bf16[16], scope="register")
            for j in unrolled(2):
                b_held[ramp(j * 8, 1, 8)] = ldmatrix_x4(s[ramp(k * 64 + j * 1024, 1, 8)])
            for i in unrolled(4):
                a: bf16x8 = ldmatrix_x4(s[ramp(k * 64 + i * 512, 1, 8)])
                for j in unrolled(2):
                    b0: bf16x4 = b_held[ramp(j * 8 + 4, 1, 4)]
                    c[ramp(i * 8 + j * 4, 1, 4)] = mma_m16n8k16_bf16(a, b0, c[ramp(i * 8 + j * 4, 1, 4)])
"""  # noqa: E501 - the same


def test_fragments_are_loaded_where_they_change():
    func = parse(PRODUCTS)
    made = combine_vectors(hoist_fragments(func, Names(func)))
    assert HELD in str(made)


def test_what_is_written_in_between_is_loaded_again():
    func = parse(PRODUCTS + "                    s[k] = cast(bf16, c[j])\n")
    made = str(hoist_fragments(func, Names(func)))
    assert "b_held" not in made
    assert made.count("ldmatrix_x4") == 2
    assert "for j in unrolled(2):\n                    a: bf16x8" in made
