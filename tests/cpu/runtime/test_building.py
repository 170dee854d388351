"""build and cached_kernel: built once, found again, open about what they are."""

import gc
import os
import platform
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import CodegenError, TargetError
from tensorlang.ir.text.parser import parse
from tensorlang.runtime import (
    build,
    building,
    cached_kernel,
)
from tensorlang.runtime.cpu import llvm

TEXT = """
def twice(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in parallel(n):
        with block("twice", vi=spatial(n, i)):
            y[vi] = x[vi] + x[vi]
"""


@pytest.fixture(autouse=True)
def nothing_in_memory():
    building.forget()
    yield
    building.forget()


@pytest.fixture
def compiled(monkeypatch):
    """The texts handed to LLVM during the test."""
    calls = []
    original = llvm.compile_module

    def counting(text):
        calls.append(text)
        return original(text)

    monkeypatch.setattr(llvm, "compile_module", counting)
    return calls


def test_a_kernel_says_what_it_is():
    function = parse(TEXT)
    kernel = build(function, trace=['s.parallel("i")'], knobs={"rows": 4})
    assert kernel.name == "twice"
    assert kernel.ir == function
    assert kernel.trace == 's.parallel("i")'
    assert "define i32 @twice(" in kernel.source
    assert "rows=4" in kernel.source
    assert "twice" in kernel.asm
    assert kernel.nests == ("parallel i (n): twice",)
    assert kernel.lowered.name == "twice"
    assert kernel.resources["object_bytes"] > 0
    assert kernel.resources["instructions"] > 5
    assert "twice(x: f32[n], y: f32[n], *, n: i64)" in repr(kernel)
    assert kernel.target == targets.host()


def test_the_same_function_is_built_once(compiled):
    first = build(parse(TEXT))
    assert build(parse(TEXT)) is first
    assert len([c for c in compiled if "@twice" in c]) == 1


def test_a_cached_kernel_is_loaded_without_compiling(compiled):
    x = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(build(parse(TEXT), knobs={"k": 1})(x), 2 * x)
    building.forget()
    compiled.clear()
    again = build(parse(TEXT))
    np.testing.assert_array_equal(again(x), 2 * x)
    assert compiled == []
    assert again.ir == parse(TEXT)
    assert again.artifact.knobs == {"k": 1}
    assert set(again.artifact.seconds) == {"lower", "render", "compile"}


def test_another_thread_count_is_another_kernel():
    host = targets.host()
    one, two = (build(parse(TEXT), host.with_threads(n)) for n in (1, 2))
    assert one is not two


def test_unstored_kernels_are_built_anew(compiled):
    first = build(parse(TEXT), store=False)
    second = build(parse(TEXT), store=False)
    assert first is not second
    assert len([c for c in compiled if "@twice" in c]) == 2


def test_dropped_kernels_are_unloaded():
    kernels = [build(parse(TEXT), store=False) for _ in range(3)]
    x = np.ones(3, np.float32)
    assert all(kernel(x)[0] == 2 for kernel in kernels)
    alive = [weakref.ref(kernel._library) for kernel in kernels]
    launch = kernels[0].launch
    del kernels
    gc.collect()
    assert [ref() is None for ref in alive] == [False, True, True]
    y = np.zeros(3, np.float32)
    launch(x, y)  # a builtin taken from a kernel keeps its code
    launch(x[::1][::-1], y)
    assert y.tolist() == [2, 2, 2]


def test_cost_is_counted_from_the_ir():
    assert build(parse(TEXT)).cost.at({"n": 10}) == (10, 0, 40, 40)


def test_eight_threads_build_one_kernel_once(compiled):
    kernels = []
    start = threading.Barrier(8)

    def work():
        start.wait()
        kernels.append(cached_kernel("twice", lambda: parse(TEXT)))
        kernels.append(build(parse(TEXT)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kernels) == 16
    assert len(set(map(id, kernels))) == 1
    assert len([c for c in compiled if "@twice" in c]) == 1


def test_eight_threads_build_different_kernels_at_once():
    x = np.arange(5, dtype=np.float32)
    wrong = []

    def work(number):
        for factor in range(number, number + 4):
            text = TEXT.replace("x[vi] + x[vi]", f"x[vi] * {factor}.0")
            if not np.array_equal(build(parse(text))(x), x * np.float32(factor)):
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_kernels_are_built_without_a_cache(tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "open"))
    x = np.ones(3, np.float32)
    with pytest.warns(RuntimeWarning, match="kernels are not cached") as caught:
        assert build(parse(TEXT))(x)[0] == 2
    assert len(caught) == 1
    assert list((tmp_path / "open").iterdir()) == []


def test_a_named_kernel_is_found_without_its_function():
    def never():
        raise AssertionError("made although it is cached")

    first = cached_kernel("twice", lambda: parse(TEXT))
    assert cached_kernel("twice", never) is first
    building.forget()
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(cached_kernel("twice", never)(x), 2 * x)
    with pytest.raises(AssertionError, match="made although"):
        cached_kernel("another", never)


def test_a_name_whose_object_is_gone_is_made_again(private_cache):
    cached_kernel("twice", lambda: parse(TEXT))
    building.forget()
    for file in private_cache.iterdir():
        if file.stat().st_size > 1000:
            file.unlink()
    x = np.ones(3, np.float32)
    kernel = cached_kernel("twice", lambda: parse(TEXT))
    np.testing.assert_array_equal(kernel(x), 2 * x)


@pytest.mark.parametrize("harm", ["cut", "changed", "foreign"])
def test_a_harmed_cache_file_is_one_sentence_and_a_rebuild(private_cache, harm):
    build(parse(TEXT))
    building.forget()
    for file in private_cache.iterdir():
        data = bytearray(file.read_bytes())
        if harm == "cut":
            del data[len(data) // 2 :]
        elif harm == "changed":
            data[-1] ^= 1
        else:
            data = b"GIF89a"
        file.write_bytes(data)
    x = np.ones(3, np.float32)
    with pytest.warns(RuntimeWarning, match=r"cache file .* is not usable \(.*rebuilt"):
        kernel = build(parse(TEXT))
    np.testing.assert_array_equal(kernel(x), 2 * x)
    building.forget()
    build(parse(TEXT))  # and no warning any more


def test_a_warm_process_compiles_nothing_and_loads_no_templates(tmp_path):
    code = f"""
import sys
import numpy as np
from tensorlang.runtime import cached_kernel
def make():
    from tensorlang.ir.text.parser import parse
    return parse('''{TEXT}''')
kernel = cached_kernel("twice", make)
assert kernel(np.ones(3, np.float32))[0] == 2
heavy = ("jinja2", "tensorlang.codegen", "tensorlang.ir.text.parser", "optuna")
print([name for name in heavy if name in sys.modules])
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "TENSORLANG_CACHE": str(tmp_path / "warm")},
        ).stdout.strip()
        for _ in range(2)
    ]
    assert "jinja2" in runs[0]
    assert runs[1] == "[]"


def test_what_cannot_be_built():
    with pytest.raises(TargetError, match="'cuda' is not present"):
        build(parse(TEXT), "cuda")
    with pytest.raises(CodegenError, match="3 is neither a function nor a schedule"):
        build(3)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")
@pytest.mark.parametrize(("kind", "feature"), [("half", "f16c"), ("bfloat", "bf16")])
def test_text_for_another_processor_never_comes_to_llvm(kind, feature, monkeypatch):
    monkeypatch.setattr(llvm, "_features", lambda: "+sse2,-f16c,-avx512bf16")
    text = f"define float @f(<4 x {kind}> %x) {{ ret float 0.0 }}"
    with pytest.raises(CodegenError, match=f"{kind}, which needs .*{feature}"):
        llvm.compile_module(text)


def test_text_that_llvm_refuses():
    with pytest.raises(CodegenError, match="LLVM rejects the generated code"):
        llvm.compile_module("define i32 @f() {\n ret i64 0\n}")
    with pytest.raises(CodegenError, match="LLVM could not link f"):
        llvm.link([b"not an object"], ["f"])


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_can_build_what_its_parent_was_building(monkeypatch):
    inside, go = threading.Event(), threading.Event()
    original = building.make_artifact

    def slow(*args):
        inside.set()
        go.wait(30)
        return original(*args)

    monkeypatch.setattr(building, "make_artifact", slow)
    thread = threading.Thread(target=lambda: build(parse(TEXT)))
    thread.start()
    inside.wait(30)
    child = os.fork()
    if child == 0:
        building.make_artifact = original
        ok = build(parse(TEXT))(np.ones(3, np.float32))[0] == 2
        os._exit(0 if ok else 1)
    _, status = os.waitpid(child, 0)
    go.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    "name",
    [
        "entry", "tid", "team", "useful_threads", "args", "barrier", "workspace",
        "fault", "ptr", "label", "out", "self", "then", "loop", "done",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_a_name_may_be_any(name, kind):
    as_loop = build(
        parse(
            f"def f(x: f32[n], y: Out[f32[n]], *, n: i64):\n"
            f"    for {name} in {kind}(n):\n        y[{name}] = x[{name}]"
        ),
        store=False,
    )
    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    as_loop(x, y)
    assert (y == x).all()
    as_array = build(
        parse(
            f"def f({name}: f32[n], y: Out[f32[n]], *, n: i64, s: f32):\n"
            f"    for i in {kind}(n):\n        y[i] = {name}[i] + s"
        ),
        store=False,
    )
    as_array(x, y, 1.0)
    assert (y == x + 1).all()
    as_scalar = build(
        parse(
            f"def f(x: f32[40], y: Out[f32[40]], *, {name}: i64):\n"
            f"    for i in {kind}({name}):\n        y[i] = x[i]"
        ),
        store=False,
    )
    as_scalar(x, y, 7)
    assert (y == np.where(np.arange(40) < 7, x, x + 1)).all()
