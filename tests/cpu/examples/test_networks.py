"""The examples of networks learn what they promise, and draw where one would look."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture
def folder(load, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra examples is not installed")
    load("plots")
    return tmp_path / "plots"


def drawn(folder):
    made = sorted(folder.glob("*.png"))
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
    return [path.stem for path in made]


@pytest.mark.long
def test_lenet_reads_digits(load, folder, capsys) -> None:
    pytest.importorskip("sklearn", reason="the extra examples is not installed")
    assert load("lenet_digits").main(folder) >= 0.98
    assert "unseen digits are read right" in capsys.readouterr().out
    assert drawn(folder) == ["confusion", "loss"]


def test_a_network_learns_a_sine(load, folder) -> None:
    assert load("sine").main(folder) < 0.15
    assert drawn(folder) == ["loss", "sine"]


@pytest.mark.long
def test_a_transformer_block_learns(load, folder) -> None:
    assert load("transformer_block").main(folder) > 0.95
    assert drawn(folder) == ["loss"]


@pytest.mark.long
def test_a_language_model_recites_its_text(load, folder, capsys) -> None:
    assert load("language_model").main(folder) > 0.98
    assert "All mimsy were the borogoves" in capsys.readouterr().out
    assert drawn(folder) == ["loss"]


def test_a_head_draws_what_its_keys_make(load, folder, capsys) -> None:
    load("vgg_head").main(folder, 64, 5)
    assert "one key, one result: True" in capsys.readouterr().out
    assert drawn(folder) == ["keys"]


def test_stateful_dropout_draws_its_masks(load, folder, capsys) -> None:
    load("stateful_dropout").main(folder)
    assert "same state, same output: True" in capsys.readouterr().out
    assert drawn(folder) == ["masks"]


def test_a_network_of_a_package_reads_text(load, capsys) -> None:
    for extra, module in {"examples": "matplotlib", "onnx": "onnx"}.items():
        pytest.importorskip(module, reason=f"the extra {extra} is not installed")
    if not importlib.util.find_spec("rapidocr_onnxruntime"):
        pytest.skip("pip install --no-deps rapidocr-onnxruntime: it has the networks")
    example = load("read_text")
    assert example.main() == example.LINES
    assert "run on our kernels" in capsys.readouterr().out
