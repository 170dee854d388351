"""Networks of torchvision, transformers and other packages, as ONNX files with inputs.

Each case is a function of a folder that gives the path of the file, exported there if
it is not yet, and inputs by name. Packages that are not installed have no cases.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Model: TypeAlias = tuple[Path, dict[str, np.ndarray]]
Case: TypeAlias = Callable[[Path], Model]

# the smallest images that the networks take; 64 where none is given
IMAGES = {
    **dict.fromkeys(("maxvit_t", "vit_b_16"), 224),
    **dict.fromkeys(("alexnet", "vgg11", "vgg11_bn"), 224),
    **dict.fromkeys(("swin_t", "swin_v2_t", "convnext_tiny"), 96),
    "inception_v3": 96,
}
CLASSIFIERS = (
    *("alexnet", "vgg11", "vgg11_bn", "resnet18", "resnet50", "resnext50_32x4d"),
    *("wide_resnet50_2", "densenet121", "squeezenet1_0", "squeezenet1_1"),
    *("googlenet", "inception_v3", "mobilenet_v2", "mobilenet_v3_small"),
    *("mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0", "efficientnet_b0"),
    *("efficientnet_v2_s", "regnet_x_400mf", "regnet_y_400mf", "convnext_tiny"),
    *("vit_b_16", "swin_t", "swin_v2_t", "maxvit_t"),
)
SEGMENTERS = ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large")
SMALL = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 64,
    "intermediate_size": 128,
}
T5 = {"num_layers": 2, "num_heads": 4, "d_model": 64, "d_ff": 128, "d_kv": 16}
WHISPER = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "d_model": 64,
    "max_source_positions": 50,
    "num_mel_bins": 16,
}
CLIP = {
    "text_config": SMALL | {"vocab_size": 1000},
    "vision_config": SMALL | {"image_size": 64, "patch_size": 16},
}
# configuration, class, and options of the configuration
LANGUAGE: dict[str, tuple[str, str, Mapping[str, object]]] = {
    "bert": ("BertConfig", "BertModel", SMALL),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"n_layers": 2, "n_heads": 4, "dim": 64, "hidden_dim": 128},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_layer": 2, "n_head": 4, "n_embd": 64},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SMALL | {"num_key_value_heads": 2}),
    "t5": ("T5Config", "T5Model", T5),
    "whisper": ("WhisperConfig", "WhisperModel", WHISPER),
    "clip": ("CLIPConfig", "CLIPModel", CLIP),
}
SHIPPED = ("rapidocr_onnxruntime", "silero_vad", "magika")
ENDS = ("", "_16k_op15", "_half", "_op18_ifless")
TYPES = {
    "tensor(float)": np.dtype("float32"),
    "tensor(float16)": np.dtype("float16"),
    "tensor(int64)": np.dtype("int64"),
    "tensor(int32)": np.dtype("int32"),
}
SHAPES = {
    "ch_PP-OCRv4_det_infer": {"x": (1, 3, 96, 160)},
    "ch_PP-OCRv4_rec_infer": {"x": (2, 3, 48, 160)},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": (2, 3, 48, 192)},
    **{f"silero_vad{end}": {"input": (2, 576)} for end in ENDS},
}


def cases() -> dict[str, Case]:
    """The cases by name, as `resnet18/dynamo/dynamic`."""
    made: dict[str, Case] = {}
    for package in SHIPPED:
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(folder).rglob("*.onnx")):
                made[f"{package}/{path.stem}"] = partial(_shipped, path)
    for package, names in (
        ("transformers", LANGUAGE),
        ("torchvision", (*CLASSIFIERS, *SEGMENTERS)),
    ):
        for name in names if importlib.util.find_spec(package) else ():
            for exporter in ("script", "dynamo"):
                for sizes in ("fixed", "dynamic"):
                    case = partial(_exported, name, exporter, sizes)
                    made[f"{name}/{exporter}/{sizes}"] = case
    return made


def _exported(name: str, exporter: str, sizes: str, folder: Path) -> Model:
    """Export a network with random weights; the inputs are of another batch."""
    path = folder / f"{name}-{exporter}-{sizes}.onnx"
    batch = 3 if sizes == "dynamic" else 2
    if not path.exists():
        module, inputs = _module(name, 2)
        _export(module, inputs, path, exporter == "dynamo", sizes == "dynamic")
    else:
        inputs = _inputs(name, 2)
    given = _inputs(name, batch) if sizes == "dynamic" else inputs
    return path, {key: value.numpy() for key, value in given.items()}


def _export(
    module: Any, inputs: dict[str, Any], path: Path, dynamo: bool, dynamic: bool
) -> None:
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # which ONNX has no operator for
    part = path.with_suffix(".part")
    options: dict[str, Any] = {}
    if dynamic and dynamo:
        batch = torch.export.Dim("batch")
        options["dynamic_shapes"] = (tuple({0: batch} for _ in inputs),)
    elif dynamic:
        options["dynamic_axes"] = {key: {0: "batch"} for key in inputs}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            str(part),
            input_names=list(inputs),
            dynamo=dynamo,
            verbose=False,
            external_data=False,
            **options,
        )
    part.rename(path)


def _module(name: str, batch: int) -> tuple[Any, dict[str, Any]]:
    import torch

    torch.manual_seed(0)
    inputs = _inputs(name, batch)
    models = _torchvision()  # which transformers imports
    if name in LANGUAGE:
        transformers = importlib.import_module("transformers")
        config, kind, options = LANGUAGE[name]
        made = getattr(transformers, kind)(getattr(transformers, config)(**options))
        return _positional(partial(_first, list(inputs)), made.eval()), inputs
    if name in SEGMENTERS:
        made = getattr(models.segmentation, name)(weights=None, weights_backbone=None)
        return _positional(lambda net, x: net(x)["out"], made.eval()), inputs
    options = {"init_weights": True} if name in {"googlenet", "inception_v3"} else {}
    made = getattr(models, name)(weights=None, **options)
    _moments(made)
    return _positional(lambda net, x: net(x), made.eval()), inputs


def _torchvision() -> Any:
    """torchvision's models; its C++ operators, unused here, may miss their library."""
    import torch

    with suppress(RuntimeError):
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float threshold) -> Tensor")
        _KEPT.append(library)
    return importlib.import_module("torchvision.models")


_KEPT: list[object] = []  # a library's operators are gone with it


def _moments(module: Any) -> None:
    """Running moments other than 0 and 1, so that normalisation matters."""
    import torch

    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm2d):
            each.running_mean.normal_(0, 0.1)
            each.running_var.uniform_(0.5, 1.5)


def _inputs(name: str, batch: int) -> dict[str, Any]:
    import torch

    draw = torch.Generator().manual_seed(batch)

    def ids(length: int = 12) -> Any:
        return torch.randint(1, 900, (batch, length), generator=draw)

    def image(*shape: int) -> Any:
        return torch.randn(batch, *shape, generator=draw)

    mask = torch.ones(batch, 12, dtype=torch.int64)
    mask[-1, 9:] = 0
    match name:
        case "t5":
            return {"input_ids": ids(), "decoder_input_ids": ids(7)}
        case "whisper":
            return {"input_features": image(16, 100), "decoder_input_ids": ids(7)}
        case "clip":
            return {
                "input_ids": ids(),
                "pixel_values": image(3, 64, 64),
                "attention_mask": mask,
            }
        case _ if name in LANGUAGE:
            return {"input_ids": ids(), "attention_mask": mask}
    size = IMAGES.get(name, 64)
    return {"input": image(3, size, size)}


def _positional(call: Callable[..., Any], module: Any) -> Any:
    """A module with positional inputs."""
    import torch

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: Any) -> Any:
            return call(self.module, *inputs)

    return Positional()


def _first(names: list[str], module: Any, *inputs: Any) -> Any:
    """The first result of a language model."""
    given = dict(zip(names, inputs, strict=True))
    if "use_cache" in inspect.signature(module.forward).parameters:
        given["use_cache"] = False
    return module(**given, return_dict=False)[0]


def _shipped(path: Path, _: Path) -> Model:
    """A file of a package, and inputs of sizes that it takes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    draw = np.random.default_rng(0)
    made = {}
    for each in session.get_inputs():
        dtype = TYPES[each.type]
        given = SHAPES.get(path.stem, {}).get(each.name)
        shape = given or [n if isinstance(n, int) else 2 for n in each.shape]
        made[each.name] = _drawn(tuple(shape), dtype, draw)
        if each.name == "sr":
            made[each.name] = np.array(16000, dtype)
    return path, made


def _drawn(
    shape: tuple[int, ...], dtype: np.dtype, draw: np.random.Generator
) -> np.ndarray:
    """Numbers; or pages with dark lines, since no detector finds anything in noise."""
    if dtype.kind == "i":
        return draw.integers(0, 250, shape).astype(dtype)
    made = draw.normal(size=shape)
    if len(shape) == 4:
        made = np.full(shape, 1.5)
        made[:, :, 30:34, 20:60] = made[:, :, 20:50, 70:74] = -2
        made[:, :, 40:44, 90:140] = -2
    return made.astype(dtype)
