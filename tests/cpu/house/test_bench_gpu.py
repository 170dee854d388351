"""`make bench-gpu`: its steps, its folder of packages, a rehearsal without a GPU."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def importable(monkeypatch, tmp_path):
    """The benchmarks, without the folders that lie beside them."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "benchmarks").symlink_to(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(str(tmp_path / "tree"))


def module(name):
    return importlib.import_module(f"benchmarks.gpu.{name}")


def run_of(out, **environment):
    return module("steps").Run(out, 60.0, {**os.environ, **environment})


def step(name, code, limit=20.0, **options):
    steps = module("steps")
    return steps.Step(name, steps.python("-c", code), limit, **options)


def test_a_step_that_fails_costs_itself_alone(tmp_path, capsys):
    run = run_of(tmp_path)
    assert not run.run(step("bad", "raise SystemExit('out of memory')"))
    assert not run.run(step("slow", "import time; time.sleep(60)", limit=1.5))
    assert not run.run(step("killed", "import os; os.kill(os.getpid(), 9)"))
    assert run.run(step("good", "print('hello')"))
    assert run.failed == ["bad", "slow", "killed"]
    bad, slow, killed, good = capsys.readouterr().out.splitlines()
    assert bad.startswith("bad: FAILED, exit code 1: out of memory (")
    assert slow.startswith("slow: not done after 2 s (")
    assert "killed by SIGKILL" in killed
    assert good.startswith("good: done (")
    assert "hello" in (tmp_path / "log.txt").read_text()


def test_steps_run_side_by_side(tmp_path):
    """Each waits for what another one writes."""
    code = """if True:
        import pathlib, sys, time
        own, other = sys.argv[1:]
        pathlib.Path(own).touch()
        while not pathlib.Path(other).exists():
            time.sleep(0.01)
        print(own)
    """
    run, places = run_of(tmp_path), [str(tmp_path / name) for name in "abc"]
    steps, made = module("steps"), []
    for own, other in zip(places, places[1:] + places[:1], strict=True):
        command = steps.python("-c", code, own, other)
        made.append(steps.Step(own[-1], command, 20.0))
    assert run.run_all(made)
    assert run.state == dict.fromkeys("abc", "done")
    said = (tmp_path / "log.txt").read_text().split("\n===== ")
    assert [part.splitlines()[-1] for part in said[1:]] == places
    assert not list(tmp_path.glob("*.log"))
    late = [step(f"late{n}", "import time; time.sleep(60)", limit=2) for n in range(9)]
    begun = time.monotonic()
    assert not run.run_all([*late, step("good", "pass")])
    assert time.monotonic() - begun < 15  # not the sum of their limits
    assert run.failed == [each.name for each in late]


def test_what_a_step_tells_is_told_even_if_it_is_stopped(tmp_path, capsys):
    code = "import time; print('[gw1] FAILED a.py::b', flush=True); time.sleep(60)"
    run = run_of(tmp_path)
    assert not run.run(step("tests", code, limit=3, tells="FAILED (.*)"))
    first, second = capsys.readouterr().out.splitlines()
    assert (first, second[:24]) == ("  a.py::b", "tests: not done after 3 ")


def test_the_same_command_goes_on(tmp_path, capsys):
    first = run_of(tmp_path)
    assert first.run(step("one", "print('{\"a\": 1}')", output="works/one.json"))
    assert not first.run(step("two", "raise SystemExit(1)"))
    again = run_of(tmp_path)
    capsys.readouterr()
    assert again.run(step("one", "raise SystemExit(1)"))
    assert again.run(step("two", "pass"))
    assert capsys.readouterr().out.startswith("one: done before\n")
    assert json.loads((tmp_path / "works/one.json").read_text()) == {"a": 1}


def test_a_result_that_is_none_is_said(tmp_path, capsys):
    run = run_of(tmp_path)
    assert not run.run(step("none", "print('nothing')", output="x.json"))
    assert "no result in its last line: nothing" in capsys.readouterr().out


def test_a_step_that_did_nothing_is_repeated(tmp_path, capsys):
    first = step("tests", "print('5 skipped in 0.1s')", proof=r"\d+ passed")
    assert not run_of(tmp_path).run(first)
    said = capsys.readouterr().out
    assert said.startswith("tests: FAILED, not '\\\\d+ passed': 5 skipped in 0.1s (")
    again = step("tests", "print('4 passed, 1 skipped')", proof=r"\d+ passed")
    assert run_of(tmp_path).run(again)


def test_what_follows_has_its_time(tmp_path, capsys):
    run = run_of(tmp_path)
    run.reserved = 59.5
    assert not run.run(step("before", "pass"))
    assert "no time left" in capsys.readouterr().out
    run.reserved = 0.0
    assert run.run(step("after", "pass"))


def test_no_time_is_said(tmp_path, capsys):
    run = run_of(tmp_path)
    run.limit = 0.5
    assert not run.run(step("late", "pass"))
    assert "no time left" in capsys.readouterr().out


def test_the_newest_fitting_wheel_is_taken(tmp_path):
    own = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    for name in (
        "optuna-4.9.0-py3-none-any.whl",
        "optuna-4.10.0-py3-none-any.whl",
        f"ml_dtypes-0.5.4-{own}-{own}-manylinux_2_27_x86_64.whl",
        "ml_dtypes-0.6.0-cp27-cp27m-manylinux_2_27_x86_64.whl",
    ):
        (tmp_path / name).touch()
    environment = module("environment")
    assert environment.wheel_of("Optuna", tmp_path).name.startswith("optuna-4.10")
    assert environment.wheel_of("ml-dtypes", tmp_path).name.startswith("ml_dtypes-0.5")
    assert environment.wheel_of("numpy", tmp_path) is None


def test_what_is_in_neither_place_is_named(tmp_path, monkeypatch):
    environment = module("environment")
    monkeypatch.setitem(environment.NEEDED, "no-such-thing", "1.0")
    with pytest.raises(RuntimeError, match=r"no-such-thing: neither here nor in .*w;"):
        environment.install(tmp_path / "site", tmp_path / "w")


def test_what_is_outdated_is_used_where_nothing_newer_is_brought(tmp_path, monkeypatch):
    environment = module("environment")
    monkeypatch.setitem(environment.NEEDED, "pytest", "999")
    said = environment.install(tmp_path / "site", tmp_path)
    assert f"pytest {pytest.__version__} is older than asked for" in said


def test_every_requirement_of_the_package_is_packed():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[><=]", text)[0].lower() for text in project["dependencies"]}
    packed = {name.lower().replace("-", "_") for name in module("environment").NEEDED}
    assert names <= packed


def test_the_table_says_what_was_wanted(tmp_path):
    row = {
        "work": "gelu",
        "scale": 1,
        "samples": {"tensorlang": [1e-3] * 6, "torch": [2e-3] * 6, "copy": [8e-4] * 6},
        "ratios": {"torch": [2.0, 1.9, 2.1], "copy": [0.8, 0.79, 0.81]},
        "wanted": {"torch": 1.0, "copy": 0.9},
        "moved": 10**9,
        "operations": 0,
    }
    (tmp_path / "works").mkdir()
    (tmp_path / "works" / "gelu.json").write_text(json.dumps(row))
    lines = module("report").report(tmp_path).splitlines()
    assert "| gelu | tensorlang | 1.000 ms | 1000 |  |  |  |  |  |" in lines
    assert "|  | torch | 2.000 ms | 500 |  |  | 2.00x | 1.90-2.10 | 1 yes |" in lines
    assert "|  | copy | 800.0 us | 1250 |  |  | 0.80x | 0.79-0.81 | 0.9 no |" in lines


def row_of(name, seconds, **more):
    return {
        "work": name,
        "scale": 1,
        "samples": {"tensorlang": [seconds] * 6},
        "ratios": {},
        "wanted": {},
        "moved": 10**9,
        "operations": 10**12,
        "limit": "products",
        **more,
    }


def test_the_table_has_limits_clocks_and_what_tuning_gained(tmp_path):
    limits = {"copy": 4e12, "products": 8e14, "floats": 6e13, "state": "SM 1980 MHz"}
    (tmp_path / "limits.json").write_text(json.dumps(limits))
    (tmp_path / "plan.json").write_text(json.dumps({"b": {}, "a": {}}))
    clocks = {"tensorlang": "SM 1700 MHz, slowed by power cap in 4 of 6"}
    told = {"slowed": {"tensorlang": 4}, "clocks": clocks, "measured": "H200, 13.0"}
    for folder, rows in {
        "works": [row_of("a", 4e-3), row_of("b", 3e-3)],
        "tuned": [row_of("b", 2.5e-3, **told)],
    }.items():
        (tmp_path / folder).mkdir()
        for row in rows:
            (tmp_path / folder / f"{row['work']}.json").write_text(json.dumps(row))
    lines = module("report").report(tmp_path).splitlines()
    assert "* limit, copies: 4.00 TB/s, read and written (measured)" in lines
    table = [line for line in lines if line.startswith("| ")][1:]
    assert table == [
        "| b | tensorlang | 2.500 ms* | 400 | 400000 | 50% |  |  |  |",
        "|  | tensorlang, untuned | 3.000 ms |  |  |  |  |  |  |",
        "| a | tensorlang | 4.000 ms | 250 | 250000 | 31% |  |  |  |",
    ]
    assert lines[-2:] == ["* H200, 13.0: b", f"* b, tensorlang: {clocks['tensorlang']}"]


def test_no_process_of_a_step_outlives_a_run_that_is_killed(tmp_path):
    import os
    import signal

    (tmp_path / "out").mkdir()
    place = tmp_path / "pid"
    code = f"""
from pathlib import Path
from benchmarks.gpu.steps import Run, Step, python
import os
inner = "import os, time; open({str(place)!r}, 'w').write(str(os.getpid()))"\
"; print('begun', flush=True); time.sleep(60)"
Run(Path({str(tmp_path / "out")!r}), 60.0, dict(os.environ)).run(
    Step("long", python("-c", inner), 50.0))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "tree")}
    run = subprocess.Popen([sys.executable, "-P", "-c", code], env=environment)
    until = time.monotonic() + 20
    while not (place.exists() and place.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    log = tmp_path / "out" / "long.log"
    while "begun" not in log.read_text().splitlines() and time.monotonic() < until:
        time.sleep(0.02)
    inner = int(place.read_text())
    run.send_signal(signal.SIGKILL)
    run.wait()
    while Path(f"/proc/{inner}").exists() and time.monotonic() < until:
        if "State:\tZ" in Path(f"/proc/{inner}/status").read_text():
            break
        time.sleep(0.02)
    assert time.monotonic() < until


def test_another_machine_goes_on_with_what_was_archived(tmp_path):
    main = importlib.import_module("benchmarks.gpu.__main__")
    first, second = tmp_path / "first", tmp_path / "second"
    run = run_of(first)
    kernels = tmp_path / "work" / "kernels"
    kernels.mkdir(parents=True)
    for name, blobs in {
        "device": ["cubin"],
        "brought": ["cubin"],
        "host": ["o"],
    }.items():
        line = json.dumps({"sizes": dict.fromkeys(blobs, 4)})
        (kernels / f"{name}.tlc").write_text(f"magic\n{line}\ncode")
    (tmp_path / "wheels" / "kernels").mkdir(parents=True)
    (tmp_path / "wheels" / "kernels" / "brought.tlc").touch()
    made, archive = main._made(kernels, tmp_path / "wheels"), tmp_path / "a.tar.gz"
    run.ended = lambda: main._told(first, archive, made)
    assert run.run(step("one", "print('{}')", output="plan.json"))

    class Given:
        earlier, out = archive, second

    main._resumed(Given)
    assert run_of(second).state == {"one": "done"}
    assert json.loads((second / "plan.json").read_text()) == {}
    assert [path.name for path in (second / "kernels").iterdir()] == ["device.tlc"]
    (second / "state.json").write_text("{}")
    main._resumed(Given)  # there is something here: it stays
    assert run_of(second).state == {}


def test_the_most_valuable_works_come_first_and_have_the_most_time():
    works = module("measure").WORKS
    assert next(iter(works)).startswith("dense bf16")
    assert all(work.weight > 0 for work in works.values())
    stage = module("works").Stage("cuda", 256)
    tuned = [len(list(work.tuned(stage))) for work in works.values()]
    assert set(tuned) == {0, 1}
    shares = [n * work.weight for n, work in zip(tuned, works.values(), strict=True)]
    first = list(takewhile(lambda work: work.weight > 1, works.values()))
    assert sum(shares[: len(first)]) > sum(shares) / 2


@pytest.mark.parametrize("name", ["dense f32 4096", "conv 3x3 bf16 512x7"])
def test_what_is_to_be_tuned_is_not_refused_before_it(name):
    from tensorlang import targets
    from tensorlang.ops import find
    from tensorlang.runtime.cuda import toolchain
    from tensorlang.tuner.search.pruning import refusal

    if problem := toolchain.missing():
        pytest.skip(problem)
    stage = module("works").Stage("cuda")
    ((id, _, shapes, _, dtype, *options),) = module("measure").WORKS[name].tuned(stage)
    extents = [tuple(map(int, shape.split("x"))) for shape in shapes.split(",")]
    given = dict(text.split("=") for text in options if "=" in text)
    if "padding" in given:
        given["padding"] = tuple(map(int, given["padding"].split(",")))
    op, target = find(id), targets.get("cuda:sm_90a")
    kernel = op.build(op.workload(*extents, dtypes=dtype, **given), target)
    assert not refusal(kernel.ir, target)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize(
    ("kind", "opcodes"),
    [("floats", {"FFMA": 1}), ("integers", {"SHF": 1, "LOP3": 1, "IMAD": 2})],
)
def test_limits_are_of_nothing_else(arch, kind, opcodes):
    from collections import Counter

    from tensorlang import build
    from tensorlang.runtime.cuda import toolchain

    if problem := toolchain.missing():
        pytest.skip(problem)
    limits = module("limits")
    func = getattr(limits, f"chains_of_{kind}")(1 << 20)
    kernel = build(func, f"cuda:{arch}")
    found = Counter(
        re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\w+)", kernel.asm)
    )
    for name, count in opcodes.items():
        assert count * limits.STEPS <= found[name] <= count * limits.STEPS + 6
    assert kernel.resources["spill_bytes"] == 0
    rest = sum(found.values()) - sum(opcodes.values()) * limits.STEPS - found["NOP"]
    assert rest < 30


@pytest.mark.skipif(bool(Path("/dev/nvidia0").exists()), reason="a GPU is here")
def test_without_a_gpu_it_says_so_in_a_sentence(tmp_path):
    command = [
        "make",
        "bench-gpu",
        f"OUT={tmp_path / 'o'}",
        f"GPU_PYTHON={sys.executable}",
    ]
    # not the variables of a make that runs these tests
    given = os.environ.get("MAKEFLAGS", "")
    alone = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MAKE") and f"{name}=" not in given
    }
    done = subprocess.run(
        command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    said = "make bench-gpu: this machine has no CUDA GPU that its driver finds"
    assert said in done.stderr.splitlines(), done.stderr
    done = subprocess.run(
        command[:2], cwd=ROOT, env=alone, capture_output=True, text=True, check=False
    )
    assert "make bench-gpu OUT=folder" in done.stdout


def mistaken(*arguments):
    command = [sys.executable, "-m", "benchmarks.gpu", *map(str, arguments)]
    done = subprocess.run(
        [*command, "--rehearse"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("make bench-gpu: ")
    return line


def test_kernels_are_not_built_without_what_it_takes(tmp_path, monkeypatch):
    pack = module("pack")
    monkeypatch.setattr(pack, "missing", lambda *_: ["ml_dtypes"])
    wheels = tmp_path / "wheels"
    monkeypatch.setattr(sys, "argv", ["pack", str(wheels), "--compilers", "13.0"])
    with pytest.raises(SystemExit, match=r"ml_dtypes: missing here.*make setup"):
        pack.main()
    assert not wheels.exists()


def test_mistakes_are_told_before_anything_is_written(tmp_path):
    out, junk = tmp_path / "out", tmp_path / "junk"
    junk.write_text("no archive")
    foreign = tmp_path / "foreign.tar.gz"
    with tarfile.open(foreign, "w:gz") as archive:
        archive.add(junk, "junk")
    assert "no folder" in mistaken(out, "--wheels", tmp_path / "none")
    for file in (junk, foreign, tmp_path / "none.tar.gz"):
        assert "no all.tar.gz of a run" in mistaken(out, "--from", file)
    assert "0: at least one is needed" in mistaken(out, "--rounds", 0)
    assert not out.exists()
    assert "nothing can be kept in" in mistaken(junk)
    assert junk.read_text() == "no archive"


def test_a_rehearsal_measures_tunes_and_packs_up(tmp_path):
    from tensorlang.runtime.cuda import toolchain

    pytest.importorskip("torch")
    if problem := toolchain.missing():
        pytest.skip(problem)
    out = tmp_path / "out"
    options = ["--rehearse", "--only", "multiply", "--rounds", "1"]
    command = [sys.executable, "-m", "benchmarks.gpu", str(out), *options]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition(" (")[0] for line in done.stdout.splitlines()]
    assert "measure multiply f32: done" in lines
    assert "tune math.multiply --shape 16384,16384: done" in lines
    assert "measure multiply f32, tuned: done" in lines
    assert "A rehearsal at a small size: its times are meaningless." in lines
    (row,) = json.loads((out / "bench.json").read_text())["rows"]
    assert row["ratios"].keys() == {"torch", "copy"}
    assert row["how"] == "by its own clock, cold"
    assert row["measured"].startswith("Fake H200, driver for CUDA 13.5, nvrtc")
    with tarfile.open(out / "all.tar.gz") as archive:
        assert {"bench.md", "log.txt", "works"} <= set(archive.getnames())


@pytest.mark.parametrize(
    "kind", ["threefry", "dense bf16", "batch bf16", "gradient bf16", "faults"]
)
@pytest.mark.usefixtures("ptx_driver")
def test_first_kernels_are_compared_with_the_cpu(kind, monkeypatch):
    first = module("first")
    told = first.checked(kind, "cuda")
    assert told["error"] <= told["allowed"]
    wrong = {"cuda": [1.0, 2.0], "llvm": [1.0, 3.0]}
    monkeypatch.setitem(first.KINDS, kind, (wrong.get, 0.1))
    with pytest.raises(ArithmeticError, match=r"of 0\.333, 0\.1 allowed"):
        first.checked(kind, "cuda")


def test_steps_need_nothing_that_a_machine_may_lack(tmp_path):
    """The steps are started by a Python that has only its standard library."""
    code = "import benchmarks.gpu.__main__"
    command = [sys.executable, "-I", "-S", "-c"]
    path = f"import sys; sys.path.insert(0, {str(tmp_path / 'tree')!r}); "
    subprocess.run([*command, path + code], check=True)


def test_kernels_that_travel_lie_in_the_cache_of_the_steps(tmp_path, monkeypatch):
    main = importlib.import_module("benchmarks.gpu.__main__")
    monkeypatch.setattr(main, "ROOT", ROOT)
    kernels = tmp_path / "wheels" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "a.tlc").write_text("machine code")

    class Given:
        wheels, out, rehearse = tmp_path / "wheels", tmp_path / "out", True

    work = tmp_path / "work"
    run = run_of(tmp_path / "out")
    run.run = lambda _: True
    assert main._prepared(run, work / "site", work, Given)
    cache = main._environment(work / "site", Given, work)["TENSORLANG_CACHE"]
    assert (Path(cache) / "a.tlc").read_text() == "machine code"
    assert Path(cache).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("name", "shapes", "dtype"),
    [("nn.gelu", [(1 << 20,)], "f32"), ("nn.dense", [(4096, 4096)] * 2, "bf16")],
)
@pytest.mark.usefixtures("ptx_driver")
def test_kernels_that_travel_are_those_of_the_gpu(name, shapes, dtype):
    from tensorlang import targets
    from tensorlang.ops import find
    from tensorlang.ops.kernels import building
    from tensorlang.runtime import backends
    from tensorlang.runtime.cuda import cubins

    def source(target):
        op = find(name)
        workload = op.workload(*shapes, dtypes=dtype)
        func, _ = building.default(op, workload, target, {})
        backend = backends.of(target)
        text = backend.render(backend.lower(func.function, target), target, {})
        return cubins._HEADER.sub("", text)

    assert source(module("builds").whole("cuda:sm_90a")) == source(targets.get("cuda"))


def test_the_ring_is_alone_and_ends(tmp_path):
    """A barrier with a wrong phase waits for ever: its tests have 30 seconds."""
    main = importlib.import_module("benchmarks.gpu.__main__")
    steps = []
    run = run_of(tmp_path)
    run.run_all = lambda some: steps.extend(some) or True

    class Given:
        only, rehearse, budget, limit, rounds = "", False, 10.0, 60.0, 15

    plan = {"gelu f32": 1, "dense bf16": 4}
    works = {name: {"tuned": [], "weight": weight} for name, weight in plan.items()}
    (tmp_path / "plan.json").write_text(json.dumps(works))
    main._all(run, Given)
    names = [step.name for step in steps]
    assert names[:2] == ["doctor", "first threefry"]
    ring = names.index("tests/cuda/test_hopper.py -k ring")
    assert steps[ring].limit == 30
    assert "-n" not in steps[ring].command
    assert names[ring - 1] == "first faults"
    later = ["list the works", "build the works' kernels", "measure dense bf16"]
    later += ["tests/cuda/test_runtime.py tests/cuda/test_arrays.py"]
    later += ["limits of the device", "measure gelu f32"]
    assert names[ring + 1 :] == [*later, "tests/cuda", "tests/targets"]
    for each in ("tests/cuda/test_hopper.py -k ring", *later[3:4], *names[-2:]):
        assert re.search(steps[names.index(each)].proof, "3 passed, 1 skipped")
        assert not re.search(steps[names.index(each)].proof, "5 skipped in 0.1s")


def test_what_the_folder_holds_is_installed_where_it_is_missing(tmp_path, monkeypatch):
    environment = module("environment")
    for name in ("not_here_at_all-1.0", "pytest-99.0", "optuna-99.0"):
        (tmp_path / f"{name}-py3-none-any.whl").touch()
    monkeypatch.setitem(environment.NEEDED, "optuna", "98")
    asked = []
    monkeypatch.setattr(environment, "_pip", lambda _, files: asked.extend(files))
    environment.install(tmp_path / "site", tmp_path)
    assert [Path(file).name.partition("-")[0] for file in asked] == [
        "not_here_at_all",
        "optuna",  # outdated
    ]


def test_what_packages_require_is_looked_for(tmp_path):
    missing = module("environment").missing
    assert missing(tmp_path, ["pytest", "optuna"]) == []
    for name, requires in {
        "outer": ["inner>=1", "elsewhere; sys_platform == 'win32'", "m; extra == 'x'"],
        "inner": ["Not.There"],
    }.items():
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        lines = [f"Name: {name}", "Version: 1.0"]
        lines += [f"Requires-Dist: {each}" for each in requires]
        (tmp_path / f"{name}-1.0.dist-info" / "METADATA").write_text("\n".join(lines))
    assert missing(tmp_path, ["outer", "nothing"]) == ["nothing", "Not.There"]


@pytest.mark.usefixtures("ptx_driver")
def test_reading_the_clocks_is_not_timed(monkeypatch):
    from tensorlang.tuner.measurement import telemetry

    done = []

    def read():
        assert len(done) % 256 == 0  # with all calls queued again
        time.sleep(0.05)

    monkeypatch.setattr(telemetry, "reader", lambda _: read)
    measure, works = module("measure"), module("works")
    stage = works.Stage("cuda")
    monkeypatch.setattr(stage, "wait", lambda: None)
    monkeypatch.setattr(measure, "calls_for", lambda *_: 256)
    sides = works.Sides({"ours": [lambda: done.append(1)]}, {})
    times, about = measure._by_bursts(sides, stage, 3)
    assert len(times["ours"]) == 3
    assert 256 * max(times["ours"]) < 0.05
    assert about["clocks"] == {"ours": "clocks unknown"}


def test_what_jax_was_asked_for_is_waited_for():
    asked = []

    class Drawn:
        def block_until_ready(self):
            asked.append(self)

    stage = module("works").Stage("cuda", 2)
    stage.last = Drawn()
    stage.wait()
    stage.wait()
    assert len(asked) == 1
