"""Operators of neural networks."""

from tensorlang.ops.nn.activation import (
    gelu,
    leaky_relu,
    relu,
    sigmoid,
    silu,
    softplus,
    tanh,
)
from tensorlang.ops.nn.activation_gradients import (
    gelu_grad,
    leaky_relu_grad,
    relu_grad,
    sigmoid_grad,
    silu_grad,
    softplus_grad,
    tanh_grad,
)
from tensorlang.ops.nn.dense import PackedWeight, dense, dense_grad, prepack
from tensorlang.ops.nn.dropout import dropout, dropout_grad, dropout_train
from tensorlang.ops.nn.mse import mse, mse_grad

__all__ = [
    "PackedWeight",
    "dense",
    "dense_grad",
    "dropout",
    "dropout_grad",
    "dropout_train",
    "gelu",
    "gelu_grad",
    "leaky_relu",
    "leaky_relu_grad",
    "mse",
    "mse_grad",
    "prepack",
    "relu",
    "relu_grad",
    "sigmoid",
    "sigmoid_grad",
    "silu",
    "silu_grad",
    "softplus",
    "softplus_grad",
    "tanh",
    "tanh_grad",
]
