"""Pages of benchmarks, from measurements that are known."""

from __future__ import annotations

from typing import Any

from benchmarks.networks import page


def row(name: str, ratio: float, **more: Any) -> dict[str, Any]:
    ratios = {"onnxruntime": [ratio, ratio - 0.1, ratio + 0.1], "torch": [2.0] * 3}
    return {"work": name, "seconds": {"ours": 0.004}, "ratios": ratios} | more


def test_networks_are_shown_worst_first() -> None:
    alone = {"ours": 0.004, "onnxruntime": 0.006}
    first = {"cold": 3.25, "warm": 0.5}
    fast, slow = row("fast", 1.6), row("slow", 0.4)
    assert list(page({"rows": [fast, slow]}))[:4] == [
        "| peer | networks | geometric mean | least |",
        "|---|---|---|---|",
        "| onnxruntime | 2 | 0.80 | 0.40 |",
        "| torch | 2 | 2.00 | 2.00 |",
    ]
    *_, one, two = page({"rows": [fast, slow]})
    assert one == "| slow | 4.00 | 0.40, below | 0.30 to 0.50 |  | 2.00 |"
    assert two.startswith("| fast |")
    fast["ratios"]["within"] = [2.4] * 3
    assert "| 1.60 | 1.50 to 1.70 | 2.40 | 2.00 |" in [*page({"rows": [fast]})][-1]
    *_, whole = page({"rows": [fast | {"alone": alone, "first": first}]})
    assert whole.endswith("| 2.00 | 1.50 |  | 3.2 | 0.50 |")
