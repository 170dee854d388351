"""Networks of torchvision and transformers, exported on the spot with random weights.

Each work is a function of a folder, into which it exports `NAME.onnx` and, for PyTorch,
`NAME.pt2` if they are not there yet; it gives the path of the first and the inputs by
name. Packages that are not installed have no works.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

Inputs: TypeAlias = dict[str, np.ndarray[Any, Any]]
Make: TypeAlias = Callable[[Path], tuple[Path, Inputs]]

# of images, with the side that they take
_VISION: Final[Mapping[str, int]] = {
    **dict.fromkeys(("resnet18", "resnet50", "mobilenet_v2"), 224),
    **dict.fromkeys(("mobilenet_v3_large", "efficientnet_b0", "squeezenet1_1"), 224),
    **dict.fromkeys(("shufflenet_v2_x1_0", "regnet_y_400mf", "densenet121"), 224),
    **dict.fromkeys(("googlenet", "convnext_tiny", "swin_t"), 224),
    "vit_b_16": 224,
    "lraspp_mobilenet_v3_large": 160,
}
_SEGMENTING: Final = ("lraspp_mobilenet_v3_large",)
_LAYERS: Final = {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "hidden_size": 256,
    "intermediate_size": 1024,
}
_WORDS: Final = 8192
_GROUPED: Final = _LAYERS | {"num_key_value_heads": 2, "vocab_size": _WORDS}
# model, configuration's options
_LANGUAGE: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "bert": ("BertModel", "BertConfig", _LAYERS),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_layer": 4, "n_head": 4, "n_embd": 256, "vocab_size": _WORDS},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _GROUPED),
    "t5": (
        "T5Model",
        "T5Config",
        {"num_layers": 4, "num_heads": 4, "d_model": 256, "d_ff": 1024, "d_kv": 64},
    ),
}
_LENGTH: Final = 128  # tokens of a text
_BATCHED: Final = ("resnet18", "mobilenet_v2", "bert")  # also run with a batch
_BATCH: Final = 8


def works() -> dict[str, Make]:
    """The works by name, such as `resnet18` and `resnet18 x8`."""
    found: dict[str, Make] = {}
    for package, names in (("torchvision", _VISION), ("transformers", _LANGUAGE)):
        if importlib.util.find_spec(package) is not None:
            found |= {name: partial(_exported, name, 1) for name in names}
    found["lstm"] = partial(_exported, "lstm", 1)
    batched = [name for name in _BATCHED if name in found]
    return found | {f"{n} x{_BATCH}": partial(_exported, n, _BATCH) for n in batched}


def _exported(name: str, batch: int, folder: Path) -> tuple[Path, Inputs]:
    import torch

    path = folder / f"{name}-{batch}.onnx"
    inputs = _inputs(name, batch)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(
                _module(name, [*inputs]), tuple(inputs.values())
            )
            torch.export.save(program, path.with_suffix(".pt2"))
            names = list(inputs)
            made = torch.onnx.export(
                program, dynamo=True, input_names=names, verbose=False
            )
            made.save(path)
    return path, {key: value.numpy() for key, value in inputs.items()}


def _inputs(name: str, batch: int) -> dict[str, Any]:
    import torch

    draw = torch.Generator().manual_seed(batch)
    if name == "lstm":
        return {"x": torch.randn(batch, _LENGTH, 64, generator=draw)}
    if name in _VISION:
        side = _VISION[name]
        return {"x": torch.randn(batch, 3, side, side, generator=draw)}
    texts = ("input_ids", "decoder_input_ids")[: 2 if name == "t5" else 1]
    shape = (batch, _LENGTH)
    return {each: torch.randint(1, 999, shape, generator=draw) for each in texts}


def _module(name: str, inputs: list[str]) -> Any:
    """A network with random weights, and positional inputs."""
    import torch

    torch.manual_seed(0)
    if name == "lstm":
        return _first(torch.nn.LSTM(64, 256, 2, batch_first=True), ["input"])
    if name in _LANGUAGE:
        package = importlib.import_module("transformers")
        model, config, options = _LANGUAGE[name]
        made = getattr(package, model)(getattr(package, config)(**options))
        return _first(made, inputs, return_dict=False, use_cache=False)
    package = _torchvision()
    if name in _SEGMENTING:
        package, extra = package.segmentation, {"weights_backbone": None}
    else:
        extra = {"init_weights": True} if name == "googlenet" else {}
    made = getattr(package, name)(weights=None, **extra)
    for each in made.modules():
        if isinstance(each, torch.nn.BatchNorm2d):  # moments that change something
            each.running_mean.normal_(0, 0.1)
            each.running_var.uniform_(0.5, 1.5)
    return _first(made, None)


def _first(module: Any, names: list[str] | None, **options: object) -> Any:
    """A module that takes inputs by position, and gives the first of several results.

    Args:
        module: The module.
        names: The names of its inputs; None if it takes them by position.
        options: Further arguments.
    """
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module.eval()

        def forward(self, *inputs: Any) -> Any:
            if names is None:
                made = self.module(*inputs)
            else:
                given = dict(zip(names, inputs, strict=True))
                made = self.module(**given, **options)
            while not isinstance(made, torch.Tensor):
                made = next(iter(made.values())) if isinstance(made, dict) else made[0]
            return made

    return First()


def _torchvision() -> Any:
    """The models of torchvision; its C++ operators may miss their library, unused."""
    import torch

    with suppress(RuntimeError):
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float threshold) -> Tensor")
        _KEPT.append(library)
    return importlib.import_module("torchvision.models")


_KEPT: list[object] = []  # a library's operators are gone with it
