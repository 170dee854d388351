"""The examples of graphs say what they promise."""

from __future__ import annotations

import re


def test_stateful_dropout(load, capsys, golden):
    load("stateful_dropout").main()
    golden(capsys.readouterr().out)


def test_vgg_head(load, capsys):
    load("vgg_head").main(width=64, classes=5)
    said = capsys.readouterr().out
    assert "one key, one result: True" in said
    assert "another key, another: True" in said
    assert said.count("dropout=0.5") == 2 or said.count("nn.dropout(") == 2
    assert len(re.findall(r"drawn from at .*?vgg_head.py:\d+", said)) == 2
