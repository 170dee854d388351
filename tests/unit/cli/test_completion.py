"""What the shells complete, asked for as bash, zsh and fish ask."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tensorlang.cli import completion
from tensorlang.errors import RecordError

MAIN = "from tensorlang.cli import main; main()"


def completed(line, shell="bash"):
    asked = {
        "bash": {
            "COMP_WORDS": line.replace(" ", "\n"),
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
    }[shell]
    env = os.environ | asked | {"_TLANG_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", MAIN],
        capture_output=True,
        text=True,
        check=True,
        env=env,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tlang st", ["studies"]),
        ("tlang records ex", ["explain", "export"]),
        ("tlang show softm", ["softmax", "softmax_grad"]),
        ("tlang show dense --target cuda:sm_1", ["cuda:sm_100"]),
        ("tlang show dense --target cuda : sm_1", ["sm_100"]),  # as bash breaks words
        ("tlang show dense --target = cuda : sm_1", ["sm_100"]),
        ("tlang show dense --target cuda : sm_100 --stage p", ["ptx"]),
        ("tlang show dense --stage so", ["source"]),
        ("tlang show dense --target cuda --stage p", ["ptx"]),
        ("tlang tune bits --compare def", ["default"]),
        ("tlang ops --js", ["--json"]),
        ("tlang show nothinglikeit", []),
    ],
)
def test_words_of_a_line(line, expected):
    assert completed(line).split() == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_what_a_word_means_too(shell):
    said = completed("tlang show nn.softmax", shell)
    assert "nn.softmax" in said
    assert "along an axis" in said


def test_other_shells_get_the_option_before_the_equals_sign():
    line = "tlang show dense --target=cuda:sm_"
    words = [word.partition("\t")[0] for word in completed(line, "fish").splitlines()]
    assert words == [f"--target=cuda:sm_{arch}" for arch in ("80", "90a", "100")]
    assert completed(line, "zsh").count('"--target=cuda\\\\:sm_') == 3
    assert "--target" not in completed(line.replace("=", " "), "fish")


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
def test_fish_puts_what_follows_an_equals_sign_there(tmp_path):
    program = tmp_path / "tlang"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, "-P", "-c", MAIN])} "$@"\n'
    )
    program.chmod(0o755)
    env = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    asked = "complete -C 'tlang show dense --target=cuda:sm_1'"
    done = subprocess.run(
        [
            "fish",
            "--no-config",
            "-c",
            f"tlang --show-completion fish | source; {asked}",
        ],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=True,
    )
    assert done.stdout == "--target=cuda:sm_100\tto compile for\n"


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_puts_what_follows_a_colon_there(tmp_path):
    asked = [sys.executable, "-P", "-c", MAIN, "--show-completion", "bash"]
    env = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = subprocess.run(asked, capture_output=True, check=True, env=env).stdout
    tmp_path.joinpath("script").write_bytes(script)
    program = tmp_path / "tlang"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(asked[:4])} "$@"\n')
    program.chmod(0o755)
    typed = "tlang show dense --target cuda:\t90a --json\x01echo said \n"
    done = subprocess.run(
        ["bash", "--norc", "-i"],
        input=f"source {tmp_path}/script\n{typed}exit\n",
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb"},
        timeout=120,
        check=True,
    )
    assert "said tlang show dense --target cuda:sm_90a --json\n" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_reads(shell, tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-c", MAIN, "--show-completion", shell],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_TLANG_COMPLETE=complete_" in done.stdout
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.stdout)
        subprocess.run([shell, "-n", str(script)], check=True)


def test_what_cannot_be_found_completes_nothing(monkeypatch):
    def broken():
        raise RecordError("the folder is a file")

    monkeypatch.setattr(completion.databases, "default_url", broken)
    assert completion.stored("") == []
