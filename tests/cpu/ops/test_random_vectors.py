"""Built kernels against every published vector: Random123, JAX, Swift, TFLite."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, KeyReuseError
from tensorlang.ops import nn, random
from tensorlang.ops.random import known_answers as known
from tensorlang.ops.random import original, verification
from tensorlang.ops.random.impls import impl

DATA = json.loads(
    (Path(__file__).parents[2] / "data" / "random_vectors.json").read_text()
)
SEEDS = tuple(known.JAX)
THREEFRY = [
    (name, counter, key, answer)
    for name, answers in known.RANDOM123.items()
    for (counter, key), answer in zip(verification.inputs(name), answers, strict=True)
]


def jax_words(seed, line):
    return [int(word) for word in known.JAX[seed][line].split()]


# ---------------------------------------------------------------------- Random123


@pytest.mark.parametrize("vector", THREEFRY, ids=str)
def test_threefry_known_answers(vector):
    name, *words = vector
    counter, key, answer = (
        np.array([int(word, 16) for word in text.split()], impl(name).dtype)
        for text in words
    )
    assert (random.hash(key, counter[None], impl=name) == answer).all()
    assert (random.hash(key[None], counter[None], impl=name) == answer).all()


def test_a_batch_of_ten_million_hashes():
    """The P vector of Threefry2x32, 10^7 times: each lane, chunk and thread alike."""
    counter = np.broadcast_to(np.array([0x243F6A88, 0x85A308D3], "u4"), (10**7, 2))
    key = np.array([0x13198A2E, 0x03707344], "u4")
    words = random.hash(key, np.ascontiguousarray(counter))
    assert (words[:, 0] == 0xC4923A9C).all()
    assert (words[:, 1] == 0x483DF7A0).all()


# ---------------------------------------------------------------------------- JAX


@pytest.mark.parametrize("seed", SEEDS)
def test_split(seed):
    key = random.key(seed)
    assert random.key_data(key).tolist() == [0, seed]
    children = random.key_data(random.split(key, 4))
    assert np.ravel(children).tolist() == jax_words(seed, "split")


@pytest.mark.parametrize("seed", SEEDS)
def test_fold_in(seed):
    folded = random.fold_in(random.key(seed), 123)
    assert random.key_data(folded).tolist() == jax_words(seed, "fold_in 123")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_bits(seed, width):
    drawn = random.bits(random.key(seed), (6,), f"uint{width}")
    assert drawn.tolist() == jax_words(seed, f"bits u{width}")


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_f32(seed):
    drawn = random.uniform(random.key(seed), (6,))
    found = [f"{word:08x}" for word in drawn.view(np.uint32).tolist()]
    assert found == known.JAX[seed]["uniform f32"].split()


@pytest.mark.parametrize("seed", SEEDS)
def test_randint(seed):
    drawn = random.randint(random.key(seed), (8,), 0, 10)
    assert drawn.tolist() == jax_words(seed, "randint 10")


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, [1.6226422, 2.0252647, -0.43359444, -0.07861735]),
        (42, [-0.028304616, 0.46713185, 0.29570296, 0.15354592]),
        (1701, [-0.6472411, 0.3156411, -0.74910474, -1.1673621]),
    ],
)
def test_normal_f32(seed, expected):
    drawn = random.normal(random.key(seed), (4,))
    assert np.abs(drawn - np.array(expected, np.float32)).max() <= 1e-6


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(0, "0011011001010000"), (42, "1000101000100010"), (1701, "1011101100110010")],
)
def test_bernoulli(seed, expected):
    drawn = random.bernoulli(random.key(seed), 0.5, (16,))
    assert "".join(str(int(bit)) for bit in drawn) == expected


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(0, "01564327"), (42, "74253601"), (1701, "16540273")],
)
def test_permutation(seed, expected):
    drawn = random.permutation(random.key(seed), 8)
    assert "".join(map(str, drawn)) == expected


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, [0.41845711171638644, 0.21629545460551136]),
        (42, [0.4267275666499091, 0.015010069515314584]),
        (1701, [0.17253803285538472, 0.019846130768775838]),
    ],
)
def test_uniform_f64(seed, expected):
    assert random.uniform(random.key(seed), (2,), "float64").tolist() == expected


@pytest.mark.parametrize(
    ("seed", "half", "brain"),
    [
        (
            0,
            [0.310546875, 0.212890625, 0.0546875, 0.65625],
            [0.6484375, 0.5703125, 0.15625, 0.203125],
        ),
        (
            42,
            [0.076171875, 0.1904296875, 0.9755859375, 0.7568359375],
            [0.6328125, 0.84375, 0.96875, 0.8359375],
        ),
        (
            1701,
            [0.65234375, 0.453125, 0.921875, 0.732421875],
            [0.140625, 0.2265625, 0.203125, 0.6953125],
        ),
    ],
)
def test_uniform_of_narrow_floats(seed, half, brain):
    key = random.key(seed)
    assert random.uniform(key.clone(), (4,), "float16").tolist() == half
    assert random.uniform(key, (4,), "bfloat16").tolist() == brain


@pytest.mark.parametrize(
    ("impl", "bits32", "fold_in_5"),
    [
        (
            "threefry4x32",
            [72491679, 3548597643, 4240196204, 3855451913],
            [349763313, 4270168222, 1362707188, 2315215058],
        ),
        ("philox4x32", [2034863994, 2176725434, 2877061679, 2649193319], None),
        ("philox2x32", [1770281948, 2307865104, 2982962561, 1794371044], None),
    ],
)
def test_other_impls(impl, bits32, fold_in_5):
    key = random.key(0, impl=impl)
    assert random.bits(key.clone(), (4,)).tolist() == bits32
    if fold_in_5:
        assert random.key_data(random.fold_in(key, 5)).tolist() == fold_in_5


@pytest.mark.parametrize(
    ("draw", "digest"),
    [
        (
            random.bits,
            "2b6ff1742819c9db97e3c4873b3a1af2a5a2ea64584fd230aa69b25617843726",
        ),
        (
            random.uniform,
            "93554a695ecba5e69add53ffa83f099b2860f0d48abc31b11cc06ea5d62646c0",
        ),
    ],
)
def test_the_hash_of_a_whole_stream(draw, digest):
    drawn = draw(random.key(1701), (1 << 20,))
    assert (
        hashlib.sha256(drawn.astype(drawn.dtype.newbyteorder("<"))).hexdigest()
        == digest
    )


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (0.5, [0, 0, 6, 8, 0, 12, 14, 0, 0, 20, 0, 24, 0, 0, 0, 0]),
        (
            0.25,
            [
                x / 0.75 if x - 1 in {*range(2, 10), 11, 12, 13} else 0
                for x in range(1, 17)
            ],
        ),
    ],
)
def test_dropout(rate, expected):
    x = np.arange(1, 17, dtype=np.float32)
    y = nn.dropout(x, rate, key=random.key(0))
    assert y.tolist() == np.array(expected, np.float32).tolist()


def test_dropout_with_the_children_of_a_key():
    x = np.ones(16, np.float32)
    masks = [
        "".join(str(int(v > 0)) for v in nn.dropout(x, 0.5, key=child))
        for child in random.split(random.key(0))
    ]
    assert masks == ["0111100101101000", "1101111010101110"]


def test_a_stateful_key_gives_jaxs_keys():
    holder = random.StatefulKey(0)
    assert random.key_data(holder.key()).tolist() == [1797259609, 2579123966]
    assert random.key_data(holder.key()).tolist() == [928981903, 3453687069]
    holder = random.StatefulKey(42)
    drawn = [random.uniform(holder).item() for _ in range(2)]
    assert np.abs(np.array(drawn) - [0.5302608, 0.72766423]).max() < 1e-7


# ---------------------------------------------------------------- Swift and TFLite


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (
            123159812,
            [
                *(9411952874433594703, 6992100569504761807, 6249442510280393663),
                *(13096801615464354606, 671569830597624217, 9499516613746162591),
                *(14104268727839198528, 2729105059420396781),
            ],
        ),
        (
            58172950819076,
            [
                *(8181320043134006362, 14375459274817572790, 1051151592956420496),
                *(12482694246229339388, 2543901658316819773, 54584659268457468),
                *(4068621515934625604, 10604176710283101491),
            ],
        ),
    ],
)
def test_swifts_generator_is_64_bits_of_this_one(seed, expected):
    assert random.bits(random.key(seed), (8,), "uint64").tolist() == expected


def test_tflites_threefry():
    """Its words are low first: key and counter words are swapped against ours."""
    counter = np.array([[2 + block, 0] for block in range(3)], np.uint32)
    words = random.hash(np.array([1, 0], np.uint32), counter).reshape(-1)
    assert words.tolist() == [
        *(43444564, 2150618427, 3979645651),
        *(3745730563, 1672743891, 4240503393),
    ]
    counter = np.array([[2 + block, 0] for block in range(6)], np.uint32)
    words = random.hash(np.array([1, 0], np.uint32), counter).view("<u8").reshape(-1)
    assert words.tolist() == [
        *(9236835810183407956, 16087790271692313299, 18212823393184779219),
        *(2658481902456610144, 16424712389986402477, 16122702161355102743),
    ]


def test_tflites_philox():
    counter = np.array([[2 + block, 0, 3, 0] for block in range(2)], np.uint32)
    words = random.hash(np.array([1, 0], np.uint32), counter, impl="philox4x32")
    assert words.reshape(-1)[:6].tolist() == [
        *(4031113034, 1366700262, 495645701),
        *(3051723414, 89414891, 1917262711),
    ]


# ------------------------------------------------------------------- packed stream


def test_the_packed_stream_is_the_keys_children():
    drawn = random.bits(random.key(0), (8,), stream="packed").tolist()
    assert drawn == [
        *(1797259609, 2579123966, 928981903, 3453687069),
        *(4146024105, 2718843009, 2467461003, 3840466878),
    ]
    assert drawn == jax_words(0, "split")


# ----------------------------------------------------------- JAX's original layout


@pytest.mark.parametrize("seed", SEEDS)
def test_the_original_layout(seed):
    table = DATA["orig"][str(seed)]
    key = random.key(seed)
    children = original.split(key.clone(), 4)
    assert random.key_data(children).tolist() == table["split4"]
    assert original.bits(key, (5,)).tolist() == table["bits32_5"]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", [216, 115, 43]),
        ("uint16", [41682, 1300, 55017]),
        ("uint32", [56197195, 4200222568, 961309823]),
        (
            "uint64",
            [3982329540505020460, 16822122385914693683, 7882654074788531506],
        ),
    ],
)
def test_the_original_layout_of_every_width(dtype, expected):
    assert original.bits(random.key(1701), (3,), dtype).tolist() == expected


def test_the_original_layout_uses_keys_up_and_wants_threefry2x32():
    key = random.key(0)
    original.split(key)
    with pytest.raises(KeyReuseError):
        original.bits(key, (3,))
    with pytest.raises(ArgumentError, match="takes one threefry2x32 key"):
        original.bits(random.key(0, impl="philox2x32"))
    assert original.bits(random.key(0), (0,)).shape == (0,)
