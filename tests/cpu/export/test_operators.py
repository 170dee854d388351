"""Operators that are exported compute the same bits as in Python."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from tensorlang import ir, targets
from tensorlang.errors import ArgumentError, CodegenError, ShapeError, TargetError
from tensorlang.export import export_operator, machines
from tensorlang.export.library import c_name, library_name
from tensorlang.ops import find, math, nn, operator, optim, random


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export an operator for shapes; each once."""
    known = {}

    def export(name, *shapes, on=(), values=None, **attributes):
        key = str((name, shapes, on, values, attributes))
        if key not in known:
            op = find(name)
            given = shapes if shapes and isinstance(shapes[0], list) else (shapes,)
            workloads = [op.workload(*each, **attributes) for each in given]
            folder = tmp_path_factory.mktemp(op.__name__)
            known[key] = export_operator(op, workloads, folder, on=on, values=values)
        return known[key]

    return export


@pytest.fixture(scope="module")
def dense(exported):
    return exported("nn.dense", (64, 100), (70, 100))


def test_dense_for_any_batch(dense, loaded, in_order):
    function, w = loaded(dense), normal(70, 100, seed=1)
    for batch in (64, 9, 77):
        x, y = normal(batch, 100), np.empty((batch, 70), np.float32)
        assert function((batch,), x, w, y) == 0
        if batch == 64:
            np.testing.assert_array_equal(y, nn.dense(x, w))
        np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4)
        for count in (2, 3, 1000):
            again = np.empty_like(y)
            assert function((batch,), x, w, again, threads=in_order(count)) == 0
            np.testing.assert_array_equal(again, y)


def test_a_program_in_c_with_one_and_two_threads(dense, program):
    arrays = normal(64, 100), normal(70, 100, seed=1), np.zeros((64, 70), np.float32)
    for threads, sanitized in ((1, False), (2, False), (2, True)):
        *_, y = program(dense, threads, *arrays, sanitized=sanitized)
        np.testing.assert_array_equal(y, nn.dense(*arrays[:2]))


# Programs whose calls wake a sleeping thread while the caller computes.
POOL = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tensorlang_pool.h"

static _Atomic int places[2];
static _Atomic pthread_t runners[2];

static void task(void *data, int number)
{
    (void)data;
    atomic_store(&runners[number], pthread_self());
    atomic_store(&places[number], sched_getcpu());
    clock_t end = clock() + CLOCKS_PER_SEC / 20;
    while (number == 0 && atomic_load(&places[1]) < 0 && clock() < end)
        ;
}

static void call(tensorlang_pool *pool)
{
    tensorlang_threads threads = tensorlang_pool_threads(pool);
    struct timespec rest = {0, 2000000};
    nanosleep(&rest, NULL);
    atomic_store(&places[1], -1);
    threads.parallel_for(threads.context, 2, task, NULL);
    nanosleep(&rest, NULL);
}

/* The pool's thread, asleep on the caller's processor, and allowed on no other. */
static pthread_t asleep_here(tensorlang_pool *pool)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    sched_setaffinity(0, sizeof here, &here);
    do
        call(pool);
    while (atomic_load(&runners[1]) == pthread_self());
    pthread_t thread = atomic_load(&runners[1]);
    pthread_setaffinity_np(thread, sizeof here, &here);
    for (int n = 0; n < 5; n++)
        call(pool);
    return thread;
}

int main(void)
{
    int counted = 0;
    cpu_set_t all, now;
    sched_getaffinity(0, sizeof all, &all);
    tensorlang_pool *pool = tensorlang_pool_start(2);
    @BODY@
    tensorlang_pool_stop(pool);
    printf("%d", counted);
    return 0;
}
"""
APART = """
    for (int n = 0; n < 10; n++) {
        pthread_setaffinity_np(asleep_here(pool), sizeof all, &all);
        call(pool);
        counted += atomic_load(&places[0]) != atomic_load(&places[1]);
    }
"""
MASKS = """
    pthread_t thread = asleep_here(pool);
    pthread_getaffinity_np(thread, sizeof now, &now);
    counted += CPU_COUNT(&now) == 1;
    for (int n = 0; n < 5; n++) {
        pthread_setaffinity_np(thread, sizeof all, &all);
        call(pool);
        pthread_getaffinity_np(thread, sizeof now, &now);
        counted += CPU_EQUAL(&now, &all);
    }
"""
FORK = """
    asleep_here(pool);
    pid_t child = fork();
    if (child == 0) {
        sched_setaffinity(0, sizeof all, &all);
        call(pool);
        sched_getaffinity(0, sizeof now, &now);
        int good = CPU_EQUAL(&now, &all) && atomic_load(&places[1]) >= 0;
        tensorlang_pool_stop(pool);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    counted = waitpid(child, &status, 0) == child && status == 0;
"""

two_processors = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="there is one processor"
)


@pytest.fixture(params=[(), ("-g", "-fsanitize=thread")], ids=["plain", "sanitized"])
def counted(request, dense, tmp_path):
    """What a program with a pool of two threads counts."""

    def run(body):
        source, main = tmp_path / "pool.c", tmp_path / "pool"
        source.write_text(POOL.replace("@BODY@", body))
        pool = dense.folder / "tensorlang_pool.c"
        command = ["gcc", "-O1", *request.param, f"-I{dense.folder}", source, pool]
        subprocess.run([*command, "-pthread", "-o", main], check=True)
        said = subprocess.run(
            [main], check=True, capture_output=True, text=True, timeout=60
        )
        return int(said.stdout)

    return run


@two_processors
@pytest.mark.usefixtures("loaded")
def test_a_sleeping_thread_wakes_on_a_processor_of_its_own(counted):
    assert counted(APART) > 8  # of 10: other programs may hold the other processors


@two_processors
@pytest.mark.usefixtures("loaded")
def test_the_affinity_of_a_sleeping_thread_is_the_users(counted):
    assert counted(MASKS) == 6


@two_processors
@pytest.mark.usefixtures("loaded")
def test_the_caller_does_all_jobs_of_a_forked_process(counted):
    assert counted(FORK) == 1


def test_wrong_calls_have_codes(dense, loaded):
    function = loaded(dense)
    x, w, y = normal(64, 100), normal(70, 100), np.empty((64, 70), np.float32)
    nothing = np.empty(0, np.float32)
    large = 1 << 45
    for code, sizes, arrays in [
        (-1, (-1,), (x, w, y)),
        (-1, (8,), (x, w, y)),  # another kernel is for these
        (-1, (large,), (x, w, y)),
        (-2, (64,), (x, nothing, y)),
        (-3, (63,), (x.view(np.uint8).reshape(-1)[2:], w, y)),
        (-5, (64,), (x, w, x)),
        (-5, (40,), (x, w, x.reshape(-1)[100:])),
    ]:
        assert function(sizes, *arrays) == code, (code, sizes)
        assert function.said(code)
    need = function.workspace(64)
    assert function((64,), x, w, y, workspace=function.aligned(need)) == 0
    if need:
        assert function((64,), x, w, y, workspace=function.aligned(need - 1)) == -4
        assert function((64,), x, w, y, workspace=function.aligned(need + 64)[1:]) == -3
        assert function((64,), x, w, y, workspace=np.empty(0, np.uint8)) == -2
    assert function.workspace(-1) == ctypes.c_size_t(-1).value
    assert function.said(0) == "the call succeeded"
    assert {function.said(code) for code in (-7, 99)} != {""}


def test_empty_arrays(exported, loaded):
    function = loaded(exported("math.exp", (4, 100)))
    nothing = np.empty(0, np.float32)
    assert function((0, 100), nothing, nothing) == 0
    x = normal(3, 5)
    y = x.copy()
    assert function((3, 5), y, y) == 0  # in place, as in Python
    np.testing.assert_array_equal(y, math.exp(x))


def test_dropout_takes_a_key(exported, loaded, in_order):
    with pytest.raises(ArgumentError, match="fixed rate: give its value"):
        exported("nn.dropout", (40, 1000))
    function = loaded(exported("nn.dropout", (40, 1000), values={"rate": 0.3}))
    for rows in (40, 7):
        x, y = normal(rows, 1000), np.empty((rows, 1000), np.float32)
        key = random.key(5)
        assert function((rows, 1000), x, key.words, y, threads=in_order(2)) == 0
        np.testing.assert_array_equal(y, nn.dropout(x, 0.3, key=key))


def test_bits_of_a_key_from_a_position(exported, loaded):
    function, key = loaded(exported("random.bits", (100,))), random.key(3)
    words = np.array(key.words)
    drawn = random.bits(key, (333,))
    y = np.empty(333, np.uint32)
    zero = ctypes.c_uint32(0)
    assert function((333,), words, y, zero, zero) == 0
    np.testing.assert_array_equal(y, drawn)
    assert function((33,), words, y, zero, ctypes.c_uint32(300)) == 0
    np.testing.assert_array_equal(y[:33], drawn[300:])


def test_convolution_with_stages(exported, loaded, in_order):
    function = loaded(exported("nn.conv2d", (4, 3, 32, 32), (16, 3, 3, 3)))
    x, w = normal(4, 3, 32, 32), normal(16, 3, 3, 3)
    y = np.empty((4, 16, 30, 30), np.float32)
    for count in (1, 2, 5):
        y[:] = 0
        assert function((4,), x, w, y, threads=in_order(count)) == 0
        np.testing.assert_array_equal(y, nn.conv2d(x, w))


def test_a_check_of_the_kernel_is_a_positive_code(exported, loaded):
    function = loaded(exported("nn.embedding", (50,), (30, 8)))
    ids, table, y = np.arange(50), normal(30, 8), np.empty((50, 8), np.float32)
    code = function((50, 30), ids, table, y)
    assert code > 0
    assert "check" in function.said(code)
    assert function((50, 30), ids % 30, table, y) == 0
    np.testing.assert_array_equal(y, table[ids % 30])


def test_numbers_are_arguments_or_fixed(exported, loaded):
    x, weight, bias = normal(40, 64), normal(64), normal(64, seed=2)
    y = np.empty_like(x)
    shapes = (40, 64), (64,), (64,)
    free = loaded(exported("nn.layer_norm", *shapes))
    assert free((40,), x, weight, bias, y, ctypes.c_float(0.1)) == 0
    np.testing.assert_array_equal(y, nn.layer_norm(x, weight, bias, eps=0.1))
    fixed = loaded(exported("nn.layer_norm", *shapes, values={"eps": 0.1}))
    again = np.empty_like(x)
    assert fixed((40,), x, weight, bias, again) == 0
    np.testing.assert_array_equal(again, y)
    with pytest.raises(ArgumentError, match="no number rate; it has eps"):
        exported("nn.layer_norm", *shapes, values={"rate": 0.1})


def test_updates_in_place(exported, loaded):
    function = loaded(exported("math.add", (6, 5), (5,)))
    x, b = normal(6, 5), normal(5)
    y = np.empty_like(x)
    assert function((6, 5), x, b, y) == 0
    np.testing.assert_array_equal(y, x + b)


def test_adam_tells_how_its_numbers_follow_from_the_step(exported, loaded):
    made = exported("optim.adam", *[(100,)] * 4)
    header = (made.folder / f"{made.name}.h").read_text()
    assert (
        "    rate, root = lr / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step)"
        in header
    )
    arrays = [np.abs(normal(100)) for _ in range(4)]
    again = [a.copy() for a in arrays]
    numbers = find("optim.adam").host(step=3)
    assert loaded(made)((100,), *arrays, *map(ctypes.c_float, numbers)) == 0
    optim.adam(*again, step=3)
    for ours, theirs in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    made = exported("optim.adamw", *[(100,)] * 4)
    header = (made.folder / f"{made.name}.h").read_text()
    assert header.index("def _adam(") < header.index("def _adamw(")  # which calls it


def test_several_ranges_of_sizes(exported, loaded):
    shapes = [(64, 100), (70, 100)], [(1, 100), (70, 100)]
    function, w = loaded(exported("nn.dense", *shapes)), normal(70, 100)
    for batch in (64, 1):
        x, y = normal(batch, 100), np.empty((batch, 70), np.float32)
        assert function((batch,), x, w, y) == 0
        np.testing.assert_array_equal(y, nn.dense(x, w))
    with pytest.raises(ShapeError, match="as many dimensions"):
        exported("math.exp", [(4,)], [(4, 4)])


@pytest.mark.parametrize("bits", ["bfloat16", "float16"])
def test_narrow_floats_are_their_bits(exported, loaded, bits):
    function = loaded(exported("nn.relu", (1000,), dtypes=bits))
    x = normal(999).astype(nn.relu(np.zeros(1, bits)).dtype)
    y = np.empty_like(x)
    assert function((999,), x, y) == 0
    np.testing.assert_array_equal(y, nn.relu(x))


# ------------------------------------------------------------ machines and names


def test_levels_are_chosen_when_loaded(exported, loaded, in_order):
    names = ("x86-64-v2", "x86-64-v4", "x86-64-v3")
    if targets.host().arch != "x86_64":
        pytest.skip("levels are of x86-64")
    on = machines(names)
    assert [m.name for m in on] == ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
    made = exported("nn.dense", (64, 100), (70, 100), on=on)
    function = loaded(made)
    tell = function.library.nn_dense_processor
    tell.restype = ctypes.c_char_p
    features = targets.host().features
    best = "avx512vl" in features, "avx2" in features and "fma" in features, True
    assert tell().decode() == [m.name for m in on][best.index(True)]
    x, w, y = normal(64, 100), normal(70, 100), np.empty((64, 70), np.float32)
    assert function((64,), x, w, y, threads=in_order(2)) == 0
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-4, atol=1e-4)
    seen = subprocess.check_output(["nm", "-D", "--defined-only", made.libraries[1]])
    assert b"nn_dense_x86" not in seen  # symbols of levels stay inside


def test_unknown_machines_are_refused():
    for names, triple, said in [
        (("pdp11",), "", "no export for pdp11"),
        (("native", "x86-64-v3"), "", "not for native, x86-64-v3"),
        ((), "s390x-linux-gnu", "on s390x"),
        (("x86-64-v3",), "aarch64-linux-gnu", "on aarch64"),
        ((), "; rm", "no system"),
    ]:
        with pytest.raises(TargetError, match=said):
            machines(names, triple)
    with pytest.raises(TargetError, match="from 1 to"):
        machines(threads=-1)


def test_names_are_those_of_c():
    assert c_name("double") == "double_"
    assert c_name("key.0") == "key_0_"  # as no size is called
    assert c_name("my.key") == "my_key"
    for name in ("2x", "a b", "", "int", "x" * 65, 'a"b'):
        with pytest.raises(ArgumentError, match="begins the names"):
            library_name(name)


def test_without_a_compiler_cmake_is_left(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    op = find("math.exp")
    made = export_operator(op, [op.workload((8,))], tmp_path / "exp")
    assert not made.libraries
    assert "no C compiler" in made.missing
    assert (made.folder / "CMakeLists.txt").exists()
    monkeypatch.setenv("CC", "false")
    monkeypatch.undo()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CodegenError, match="false refuses"):
        export_operator(op, [op.workload((8,))], tmp_path / "exp")


def test_cmake_builds_it(dense, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("there is no CMake: apt-get install cmake")
    for command in (["-S", dense.folder, "-B", tmp_path], ["--build", tmp_path]):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL)
    said = subprocess.check_output([tmp_path / "nn_dense_main", "2"], text=True)
    assert said.startswith("nn_dense on native: ")


CPP = """
#include <vector>
#include "math_exp.h"
int main() {
    std::vector<float> x(30, 0.0f), y(30);
    int code = math_exp(5, 6, x.data(), y.data(), nullptr, 0, nullptr);
    return code == MATH_EXP_OK && y[29] == 1.0f ? 0 : 1;
}
"""
RUST = """
extern "C" {
    fn math_exp(n: i64, m: i64, x: *const f32, y: *mut f32, workspace: *mut u8,
                bytes: usize, threads: *const u8) -> i32;
}
fn main() {
    let (x, mut y) = (vec![0f32; 30], vec![0f32; 30]);
    let none = std::ptr::null_mut();
    let code = unsafe { math_exp(5, 6, x.as_ptr(), y.as_mut_ptr(), none, 0, none) };
    assert!(code == 0 && y[29] == 1.0);
}
"""


def _fails(command):
    """Whether a program does not run, as rustup's compiler without a toolchain."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


@pytest.mark.parametrize("compiler", ["g++", "rustc"])
def test_other_languages_call_it(exported, compiler, tmp_path):
    if shutil.which(compiler) is None or _fails([compiler, "--version"]):
        pytest.skip(f"there is no {compiler} that runs")
    made = exported("math.exp", (4, 100))
    source = tmp_path / ("main.cc" if compiler == "g++" else "main.rs")
    source.write_text(CPP if compiler == "g++" else RUST)
    folder = str(made.folder)
    ways = {
        "g++": ["-Wall", "-Werror", "-I", folder, source, "-L", folder, "-lmath_exp"],
        "rustc": [source, "-L", folder, "-l", "static=math_exp"],
    }
    program = tmp_path / "main"
    subprocess.run([compiler, *ways[compiler], "-o", program], check=True)
    subprocess.run([program], check=True, env={"LD_LIBRARY_PATH": folder})


def test_what_an_export_did_not_write_stays(tmp_path):
    kept, exp = tmp_path / "main.c", find("math.exp")
    kept.write_text("mine")
    with pytest.raises(ArgumentError, match="is there and was not written by"):
        export_operator(exp, [exp.workload((4, 5))], tmp_path, on=machines())
    assert kept.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["main.c"]
    folder = tmp_path / "exp"
    for _ in range(2):  # the second in place of the first
        made = export_operator(exp, [exp.workload((4, 5))], folder, on=machines())
    assert all(path.exists() for path in made.libraries)


def test_parameters_may_be_called_as_the_launcher_calls_something(tmp_path, loaded):
    @operator("test_export.collisions")
    def collisions(
        n: ir.Tensor, overlaps: ir.Tensor, team: ir.Tensor, n_bytes: ir.Tensor
    ) -> ir.Tensor:
        """The sum of all."""
        given = (n, overlaps, team, n_bytes)
        return ir.compute(n.shape, lambda i: sum(x[i] for x in given), "best")

    work = collisions.workload((5,), (5,), (5,), (5,))
    made = export_operator(collisions, [work], tmp_path, on=machines())
    subprocess.run(["cc", "-fsyntax-only", "main.c"], cwd=tmp_path, check=True)
    given, y = [normal(6) for _ in range(4)], np.empty(6, np.float32)
    assert loaded(made)((6,), *given, y) == 0
    np.testing.assert_allclose(y, sum(given), rtol=1e-6, atol=1e-6)


def test_a_library_uses_no_tiles(monkeypatch):
    host = targets.host()
    able = replace(host, features=(*host.features, "amx_bf16", "amx_tile"))
    monkeypatch.setattr(targets, "host", lambda: able)
    (machine,) = machines()
    assert machine.target.features == host.features


def test_declared_conditions_on_sizes_are_checked(tmp_path, loaded):
    @operator("test_export.blocks", sizes="x.1 % 4 == 0 and (2 <= x.1 or not whole)")
    def blocks(x: ir.Tensor, *, whole: bool = True) -> ir.Tensor:
        """Twice the elements."""
        factor = 2.0 if whole else 0.5
        return ir.compute(x.shape, lambda i, j: x[i, j] * factor, "y")

    made = export_operator(blocks, [blocks.workload((6, 8))], tmp_path, on=machines())
    function, x = loaded(made), normal(3, 8)
    y = np.empty_like(x)
    assert function((3, 8), x, y) == 0
    np.testing.assert_array_equal(y, 2 * x)
    assert function((3, 6), x[:, :6].copy(), y[:, :6].copy()) == -1
