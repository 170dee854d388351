"""The jobs of the guide to a shared search, run by stand-ins of schedulers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorlang.tuner.storage import studies

onnx = pytest.importorskip("onnx", reason="the jobs tune a network")
GUIDE = Path(__file__).parents[3] / "docs" / "shared_search.md"
SBATCH = """#!/bin/bash
last=$(sed -n 's/^#SBATCH --array=0-//p' "$1")
for SLURM_ARRAY_TASK_ID in 0 "$last"; do
    export SLURM_ARRAY_TASK_ID
    bash "$1" || exit
done
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder with a network, and schedulers on the PATH that run jobs here."""
    bin = tmp_path / "bin"
    bin.mkdir()
    main = "from tensorlang.cli import main; main()"
    tlang = f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
exec {sys.executable} -P -c '{main}' "$@"
"""
    for name, text in (
        ("sbatch", SBATCH),
        ("srun", '#!/bin/sh\nexec "$@"\n'),
        ("tlang", tlang),
    ):
        (bin / name).write_text(text)
        (bin / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    floats = onnx.TensorProto.FLOAT
    weight = np.random.default_rng(0).standard_normal((24, 40), np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [onnx.helper.make_tensor_value_info("x", floats, ("n", 24))],
        [onnx.helper.make_tensor_value_info("y", floats, ("n", 40))],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path


def block(language: str, holding: str) -> str:
    """The guide's code block in a language that holds a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (found,) = (each for each in blocks if holding in each)
    return found


def here(text: str, folder: Path) -> str:
    """A job of the guide for this machine: its device, a short budget, its files."""
    for stated, own in (
        ("--target cuda", "--target llvm"),
        ("--budget 50m", "--budget 4s"),
        ("postgresql://me@server/tuning", f"sqlite:///{folder}/trials.db"),
    ):
        assert stated in text
        text = text.replace(stated, own)
    return text


def seeds(folder: Path) -> list[str]:
    return re.findall(r"--seed (\d+) --storage", (folder / "asked").read_text())


def run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_slurm_script_tunes_with_a_seed_for_each_task(cluster):
    job = cluster / "job.sh"
    job.write_text(here(block("bash", "#SBATCH"), cluster))
    run(["sbatch", str(job)], cluster)
    assert seeds(cluster) == ["0", "7"]
    (study,) = studies.by_name(f"sqlite:///{cluster}/trials.db").values()
    assert study.finished >= 1


@pytest.mark.long
def test_the_kubernetes_job_tunes_with_a_seed_for_each_index(cluster):
    yaml = pytest.importorskip("yaml", reason="reads the job")
    job = yaml.safe_load(block("yaml", "kind: Job"))
    assert job["spec"]["completionMode"] == "Indexed"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in container["env"]] == ["PGPASSWORD"]
    command = [*container["command"], *(here(a, cluster) for a in container["args"])]
    run(command, cluster, JOB_COMPLETION_INDEX="5", PGPASSWORD="secret")
    assert seeds(cluster) == ["5"]
    (study,) = studies.by_name(f"sqlite:///{cluster}/trials.db").values()
    assert study.finished >= 1
