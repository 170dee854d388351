"""Operators of neural networks."""

from tensorlang.ops.nn.activation import gelu, relu
from tensorlang.ops.nn.dense import PackedWeight, dense, dense_grad, prepack
from tensorlang.ops.nn.dropout import dropout, dropout_grad, dropout_train

__all__ = [
    "PackedWeight",
    "dense",
    "dense_grad",
    "dropout",
    "dropout_grad",
    "dropout_train",
    "gelu",
    "prepack",
    "relu",
]
