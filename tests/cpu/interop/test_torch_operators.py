# ruff: noqa: ARG005 - some calls need no weights
"""Every operator as PyTorch's: its values, and what the compiler is told of it."""

from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra interop is not installed")

from tensorlang.errors import TensorlangError  # noqa: E402
from tensorlang.interop import torch as ours  # noqa: E402
from tensorlang.interop.calls import bound  # noqa: E402
from tensorlang.interop.torch_custom import custom as custom_of  # noqa: E402
from tensorlang.ops import random  # noqa: E402

WITHOUT = ("nn_conv2d_winograd", "nn_conv2d_winograd_weight")  # of few shapes
FORWARD = {
    name: op
    for name, op in ours._LIBRARY.items()
    if "_grad" not in name and name not in WITHOUT
}
CHEAP = ("test_schema", "test_autograd_registration", "test_faketensor")
KEY = torch.tensor([1, 2])


def tensors(*, floats=torch.float32, recorded=True):
    """Makes tensors without ties, of positive numbers below 1."""
    generator = torch.Generator().manual_seed(0)

    def given(*shape, dtype="float32"):
        if dtype != "float32":
            made = torch.randint(0, 2, shape, generator=generator)
            return made.to(getattr(torch, dtype)) + (dtype == "int32")
        count = int(np.prod(shape, dtype=int))
        made = torch.randperm(count, generator=generator).to(floats)
        return ((made + 0.6) / (count + 0.7)).reshape(shape).requires_grad_(recorded)

    return given


@pytest.fixture(scope="module")
def arguments(programs):
    """Small arguments of an operator, and the same as its schema has them."""
    calls = import_module(f"{programs.__name__}.calls")

    def made(name, **how):
        given, custom = tensors(**how), custom_of(FORWARD[name])
        if name == "dropout":
            args = given(4, 6), 0.5
            return args, (*args, KEY)
        args = calls.arguments(custom.op.__name__, given, 2)
        return args, tuple(custom.encoded(bound(custom.op, args, {})))

    return made


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return [plain(each) for each in value] if isinstance(value, list) else value


def listed(made):
    return made if isinstance(made, (list, tuple)) else [made]


def alike():
    """The first operator of each schema: the others differ in their names."""
    schemas = {}
    for name in FORWARD:
        schema = str(getattr(torch.ops.tensorlang, name).default._schema)
        schemas.setdefault(schema.partition("(")[2], name)
    return set(schemas.values())


FIRST = alike()


WITHOUT = ("prod", "dense_int8", "quantize")  # no gradient


@pytest.mark.parametrize("name", FORWARD)
def test_values_and_what_pytorch_is_told(name, arguments, request) -> None:
    custom, every = custom_of(FORWARD[name]), request.config.getoption
    args, given = arguments(name, recorded=name not in WITHOUT)
    whole = every("--every-sample") or name in FIRST
    tests = {} if whole else {"test_utils": CHEAP}
    made = torch.library.opcheck(custom.packet, given, **tests)
    assert set(made.values()) == {"SUCCESS"}
    key = {"key": random.wrap_key_data(KEY.numpy().astype("u4"))}
    wanted = custom.op(*map(plain, args), **(key if name == "dropout" else {}))
    found = listed(custom.packet(*given))
    for mine, theirs in zip(found, listed(wanted), strict=True):
        np.testing.assert_array_equal(plain(mine), theirs)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: ours.dense(x, w.T),
        lambda x, w: ours.conv2d(x[None, None], w[None]),
        lambda x, w: ours.conv2d(x[None, None], w[None, None], None, 0),
        lambda x, w: ours.softmax(x, 2),
        lambda x, w: ours.sum(x, [0, 0]),
        ours.add,
        lambda x, w: ours.add(x.to(torch.uint64), x.int()),
        lambda x, w: ours.bitwise_and(x.int(), 0.5),
        lambda x, w: ours.add(x.to(torch.int8), 300),
        lambda x, w: ours.gelu(x, "erf"),
        lambda x, w: ours.reshape(x, [3, 3]),
        lambda x, w: ours.pad(x, [(1, 1)]),
        lambda x, w: ours.dropout(x, 1.5, key=KEY),
        ours.layer_norm,
        lambda x, w: ours.dense(x.int(), w.int()),
    ],
)
def test_a_fake_refuses_what_the_operator_refuses(call) -> None:
    x, w = torch.ones(3, 4), torch.ones(5, 4)
    messages = []
    for device in ("cpu", "meta"):
        with pytest.raises(TensorlangError) as problem:
            call(x.to(device), w.to(device))
        messages.append((type(problem.value), str(problem.value)))
    assert messages[0] == messages[1]
