"""Shape-inferring layers, models and training.

All shapes follow from the shape of the input:

    from tensorlang.layers import Conv2D, Dense, Flatten, MaxPool2D, Model, Sequential

    model = Model(Sequential(Conv2D(6, 5, "relu"), MaxPool2D(2), Flatten(), Dense(10)))
    model.compile(graph.TensorSpec(("batch", 1, 28, 28)))
    print(model.summary())
    model.fit(images, labels, epochs=3, batch=64)
"""

from tensorlang.layers import initializers, optimizers
from tensorlang.layers.attention import Cache, MultiHeadAttention
from tensorlang.layers.basic import (
    Activate,
    BatchNorm,
    Dense,
    Dropout,
    Embedding,
    EmbeddingBag,
    Flatten,
    GroupNorm,
    LayerNorm,
    Reshape,
    RMSNorm,
)
from tensorlang.layers.fitting import Checkpoint, EarlyStop, Epoch, accuracy
from tensorlang.layers.images import (
    AvgPool1D,
    AvgPool2D,
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    GlobalAvgPool,
    MaxPool1D,
    MaxPool2D,
)
from tensorlang.layers.layer import Layer, Sequential
from tensorlang.layers.loading import Loader
from tensorlang.layers.model import Model
from tensorlang.layers.optimizers import (
    SGD,
    AdaGrad,
    Adam,
    AdaMax,
    AdamW,
    Optimizer,
    RMSProp,
)
from tensorlang.layers.recurrent import GRU, LSTM
from tensorlang.layers.trainer import Trainer

__all__ = [
    "GRU",
    "LSTM",
    "SGD",
    "Activate",
    "AdaGrad",
    "AdaMax",
    "Adam",
    "AdamW",
    "AvgPool1D",
    "AvgPool2D",
    "BatchNorm",
    "Cache",
    "Checkpoint",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "Dropout",
    "EarlyStop",
    "Embedding",
    "EmbeddingBag",
    "Epoch",
    "Flatten",
    "GlobalAvgPool",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "Loader",
    "MaxPool1D",
    "MaxPool2D",
    "Model",
    "MultiHeadAttention",
    "Optimizer",
    "RMSNorm",
    "RMSProp",
    "Reshape",
    "Sequential",
    "Trainer",
    "accuracy",
    "initializers",
    "optimizers",
]
