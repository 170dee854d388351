"""The thread pool: teams, barriers, concurrent callers, fork, exit."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import KernelError
from tensorlang.ir.text.parser import parse
from tensorlang.runtime import build
from tensorlang.runtime.cpu import pool

F32 = np.float32

# Each of 1000 rounds: every thread adds 1 to its own counter, waits, and checks that
# all of the others have the same count; fault 1 << tid where one has not.
ROUNDS = """
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %counts = load ptr, ptr %args
  %own.at = getelementptr i64, ptr %counts, i64 %tid
  %tid.32 = trunc i64 %tid to i32
  %flag = shl i32 1, %tid.32
  br label %round
round:
  %count = phi i64 [ 0, %0 ], [ %count.next, %checked ]
  %faults = phi i32 [ 0, %0 ], [ %faults.new, %checked ]
  %count.next = add i64 %count, 1
  store volatile i64 %count.next, ptr %own.at
  call void @tensorlang_barrier(ptr %barrier, i64 %team)
  br label %check
check:
  %i = phi i64 [ 0, %round ], [ %i.next, %check ]
  %faults.old = phi i32 [ %faults, %round ], [ %faults.new, %check ]
  %other.at = getelementptr i64, ptr %counts, i64 %i
  %other = load volatile i64, ptr %other.at
  %differs = icmp ne i64 %other, %count.next
  %fault = select i1 %differs, i32 %flag, i32 0
  %faults.new = or i32 %faults.old, %fault
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %team
  br i1 %more, label %check, label %checked
checked:
  call void @tensorlang_barrier(ptr %barrier, i64 %team)
  %again = icmp slt i64 %count.next, 1000
  br i1 %again, label %round, label %done
done:
  ret i32 %faults
}
"""
# counts[tid] = team; each thread reports fault 1 << tid
WHO = """
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %counts = load ptr, ptr %args
  %own.at = getelementptr i64, ptr %counts, i64 %tid
  store i64 %team, ptr %own.at
  %tid.32 = trunc i64 %tid to i32
  %wide = icmp sgt i64 %team, 1
  %flag = shl i32 1, %tid.32
  %code = select i1 %wide, i32 %flag, i32 0
  ret i32 %code
}
"""
# the same without faults
TEAM = WHO.replace("ret i32 %code", "ret i32 0")
# counts[tid] += 1, indivisibly
COUNT = """
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %counts = load ptr, ptr %args
  %own.at = getelementptr i64, ptr %counts, i64 %tid
  atomicrmw add ptr %own.at, i64 1 monotonic
  ret i32 0
}
"""


# Three stages of 8 shares: counts[64 * stage + share] += 1, counts[256 + ...] = tid;
# workers sleep before the first. All shares of a stage are done before the next one.
CLAIMS = """
declare i64 @tensorlang_claim(ptr, i64, i64, i64, i64)
declare void @tensorlang_wait(ptr)
declare i32 @usleep(i32)
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %member) {
  %counts = load ptr, ptr %args
  %worker = icmp ne i64 %tid, 0
  br i1 %worker, label %late, label %begin
late:
  call i32 @usleep(i32 SLEEP)
  br label %begin
begin:
  br label %stage
stage:
  %number = phi i64 [ 0, %begin ], [ %number.next, %finish ]
  %faults = phi i32 [ 0, %begin ], [ %faults.stage, %finish ]
  %base = mul i64 %number, 64
  br label %next
next:
  %before = phi i64 [ -1, %stage ], [ %share, %run ]
  %faults.stage = phi i32 [ %faults, %stage ], [ %faults.new, %run ]
  %share = call i64
    @tensorlang_claim(ptr %member, i64 %team, i64 %tid, i64 8, i64 %before)
  %some = icmp sge i64 %share, 0
  br i1 %some, label %run, label %finish
run:
  %index = add i64 %base, %share
  %at = getelementptr i64, ptr %counts, i64 %index
  %old = atomicrmw add ptr %at, i64 1 monotonic
  %who = add i64 %index, 256
  %who.at = getelementptr i64, ptr %counts, i64 %who
  store i64 %tid, ptr %who.at
  %mirror = sub i64 %base, 57
  %mirrored = sub i64 %mirror, %share
  %first = icmp eq i64 %number, 0
  %seen = select i1 %first, i64 %index, i64 %mirrored
  %seen.at = getelementptr i64, ptr %counts, i64 %seen
  %count = load volatile i64, ptr %seen.at
  %expected = add i64 %old, 1
  %wrong = icmp ne i64 %count, %expected
  %fault = zext i1 %wrong to i32
  %faults.new = or i32 %faults.stage, %fault
  br label %next
finish:
  call void @tensorlang_wait(ptr %member)
  %number.next = add i64 %number, 1
  %more = icmp ult i64 %number.next, 3
  br i1 %more, label %stage, label %done
done:
  ret i32 %faults.stage
}
"""
# counts[tid] = team; the worker sleeps for long, as if its processor were held
LATE = """
declare i32 @usleep(i32)
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %counts = load ptr, ptr %args
  %own.at = getelementptr i64, ptr %counts, i64 %tid
  store i64 %team, ptr %own.at
  %first = icmp eq i64 %tid, 0
  %time = select i1 %first, i32 5000, i32 50000
  call i32 @usleep(i32 %time)
  BARRIER
  ret i32 0
}
"""


FOREVER = (1 << 63) - 1


@pytest.fixture(autouse=True)
def whole_teams():
    """Teams stay whole on a busy machine."""
    pool.always_share()
    yield
    pool.always_share(False)


def team_kernel(assemble, text, threads):
    counts = assemble.buffer("counts", "i64", "out", (4096,))
    return assemble(text, [counts], team=threads, threads=threads)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_barriers_hold_every_thread(assemble, threads):
    counts = np.zeros(4096, np.int64)
    team_kernel(assemble, ROUNDS, threads)(counts)
    assert counts[:threads].tolist() == [1000] * threads


def backing_off(name):
    address = pool._pool().addresses[f"tensorlang_alone_{name}"]
    return ctypes.c_int64.from_address(address)


def lose(until, left):
    """As after a loss: launches run alone until then, or for so many nanoseconds."""
    backing_off("until").value, backing_off("left").value = until, left


def test_whole_teams_follow_a_loss_at_once_if_asked_for(assemble):
    counts, kernel = np.zeros(4096, np.int64), team_kernel(assemble, COUNT, 2)
    lose(FOREVER, FOREVER)
    kernel.launch(counts)
    assert counts[:2].tolist() == [1, 0]
    pool.always_share()
    kernel.launch(counts)
    assert counts[:2].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("until", "left"),
    [(time.clock_gettime_ns(time.CLOCK_MONOTONIC), FOREVER), (FOREVER, 0)],
    ids=["later", "paid"],
)
def test_teams_are_back_when_the_time_is_over_or_the_loss_is_paid(
    assemble, until, left
):
    counts, kernel = np.zeros(4096, np.int64), team_kernel(assemble, COUNT, 2)
    lose(until, left)
    kernel.launch(counts)
    assert counts[:2].tolist() == [1, 1]


def test_launches_alone_pay_for_a_loss_with_their_time(assemble):
    counts, kernel = np.zeros(4096, np.int64), team_kernel(assemble, COUNT, 2)
    lose(FOREVER, 50_000)
    for _ in range(100_000):
        kernel.launch(counts)
        if counts[1]:
            break
    assert counts[1] == 1 < counts[0]


@pytest.mark.parametrize("threads", [2, 5])
def test_fault_codes_of_all_threads_are_joined(assemble, threads):
    counts = np.zeros(4096, np.int64)
    with pytest.raises(KernelError) as caught:
        team_kernel(assemble, WHO, threads)(counts)
    assert caught.value.code == (1 << threads) - 1
    assert counts[:threads].tolist() == [threads] * threads


def test_every_share_runs_exactly_once(assemble):
    counts = np.zeros(4096, np.int64)
    kernel = team_kernel(assemble, COUNT, 5)
    for _ in range(5000):
        kernel.launch(counts)
    assert counts.tolist() == [5000] * 5 + [0] * 4091


@pytest.mark.parametrize("threads", [2, 3, 5, 8])
def test_each_share_of_each_stage_is_run_once_and_in_order(assemble, threads):
    counts = np.zeros(4096, np.int64)
    kernel = team_kernel(assemble, CLAIMS.replace("SLEEP", "0"), threads)
    for _ in range(2000):
        kernel.launch(counts)
    stages = counts[:192].reshape(3, 64)
    assert (stages[:, :8] == 2000).all()
    assert not stages[:, 8:].any()


def test_shares_of_a_late_worker_are_taken_over(assemble):
    counts = np.zeros(4096, np.int64)
    kernel = team_kernel(assemble, CLAIMS.replace("SLEEP", "30000"), 2)
    for _ in range(3):
        counts[256:] = -1
        kernel.launch(counts)
        ran = counts[256:448].reshape(3, 64)[:, :8]
        assert not ran.any(), "the caller has run all of them"
    assert (counts[:192].reshape(3, 64)[:, :8] == 3).all()


# what one thread does alone stands before and after what all of them do, in a host loop
STAGES = """
def stages(x: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[64])
    s = alloc(f32[1])
    for r in range(5):
        for i in parallel(64):
            t[i] = x[i] + cast(f32, r)
        s[0] = t[0] + t[63] * 2.0
        for j in parallel(n):
            y[j] = s[0] + x[j] * t[j % 64]
"""


def test_stages_of_one_thread_and_of_all_follow_each_other():
    kernel = build(parse(STAGES), targets.host().with_threads(8))
    x = np.arange(5000, dtype=F32) % 7
    t = x[:64] + 4
    expected = t[0] + t[63] * 2 + x * t[np.arange(5000) % 64]
    for _ in range(100):
        np.testing.assert_array_equal(kernel(x), expected)


# two parts of one thread, of which the second needs the first, around a variable
ALONE = """
def alone(x: f32[n], y: Out[f32[n]], z: Out[f32[1]], w: Out[f32[1]], *, n: i64):
    for i in parallel(n):
        y[i] = x[i]
    z[0] = 0.0
    for k in range(n):
        z[0] = z[0] + x[k]
    half: i64 = n // 2
    w[0] = z[0] * cast(f32, half)
"""


def test_parts_of_one_thread_follow_each_other_whoever_runs_them():
    kernel = build(parse(ALONE), targets.host().with_threads(2))
    x = np.ones(300_000, F32)
    for _ in range(40):
        *_, w = kernel(x)
        assert w[0] == F32(x.size) * F32(x.size // 2)


def test_a_program_that_depends_on_data_has_fixed_shares():
    program = """
def halved(x: f32[n], y: Out[f32[n]], *, n: i64):
    s = alloc(f32[1])
    s[0] = x[0]
    while s[0] > 1.0:
        for i in parallel(n):
            y[i] = x[i] * s[0]
        s[0] = s[0] * 0.5
"""
    kernel = build(parse(program), targets.host().with_threads(8))
    assert "tensorlang_barrier" in kernel.source
    x = np.full(5000, 9.0, F32)
    for _ in range(100):
        np.testing.assert_array_equal(kernel(x), x * F32(1.125))


def test_small_calls_stay_in_the_calling_thread(assemble):
    counts = assemble.buffer("counts", "i64", "out", (8,))
    small = np.zeros(8, np.int64)
    assemble(WHO, [counts], team=8, threads=8)(small)
    assert small.tolist() == [1] + [0] * 7


def test_eight_threads_call_at_once(scale):
    failures = []

    def work(seed):
        x = np.random.default_rng(seed).random(20_000, F32)
        failures.extend(
            (seed, rate)
            for rate in range(1, 200)
            if not np.array_equal(scale(x, float(rate)), x * F32(rate))
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_gil_is_released_around_larger_work(assemble):
    """A kernel that waits for a flag which only another Python thread sets."""
    wait = """
    define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
      %flag = load ptr, ptr %args
      br label %look
    look:
      %value = load volatile i64, ptr %flag
      %closed = icmp eq i64 %value, 0
      br i1 %closed, label %look, label %done
    done:
      ret i32 0
    }
    """
    kernel = assemble(wait, [assemble.buffer("flag", "i64", "in", (4096,))])
    flag = np.zeros(4096, np.int64)
    thread = threading.Thread(target=kernel, args=(flag,))
    thread.start()
    flag[0] = 1
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_fork_after_use(scale):
    x = np.ones(20_000, F32)
    scale(x, 2.0)
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(scale(x, float(r)), x * F32(r)) for r in range(50))
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(scale(x, 3.0), 3 * x)


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("size", [20_000, 4_000_000])
def test_fork_while_another_thread_launches(scale, size):
    x = np.ones(size, F32)
    stop = threading.Event()

    def work():
        while not stop.is_set():
            scale(x, 2.0)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(20):
            time.sleep(0.002 * (number % 5))
            child = os.fork()
            if child == 0:
                os._exit(0 if np.array_equal(scale(x, 3.0), x * 3) else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        thread.join()


def test_the_process_ends_with_its_workers_asleep_or_not():
    code = """
import numpy as np
from tensorlang.ir.text.parser import parse
from tensorlang.runtime import build
kernel = build(parse('''
def twice(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in parallel(n):
        with block("twice", vi=spatial(n, i)):
            y[vi] = x[vi] + x[vi]
'''))
assert kernel(np.ones(100_000, np.float32))[-1] == 2
print("done")
"""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "TENSORLANG_THREADS": "4"},
        )
        assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_short_jobs_wake_no_threads(assemble):
    """The first call learns how long the job takes, and what waking costs."""
    pool.always_share(False)
    kernel = team_kernel(assemble, TEAM, 2)
    counts = np.zeros(4096, np.int64)
    teams = []
    for _ in range(20):  # on a busy machine times vary
        time.sleep(0.05)
        kernel.launch(counts)
        teams.append(int(counts[0]))
    assert teams.count(1) > 9, teams


def test_short_jobs_in_a_loop_wake_threads_at_last(assemble):
    pool.always_share(False)
    kernel = team_kernel(assemble, TEAM, 2)
    counts = np.zeros(4096, np.int64)
    for number in range(10_000):
        if number < 4:
            time.sleep(0.05)
        kernel.launch(counts)
        if number >= 4 and counts[0] == 2:
            break
    else:
        pytest.fail("one thread ran all of them")


def test_small_calls_between_pauses_are_right_whoever_runs_them(scale):
    x = np.ones(8000, F32)
    for pause in (0, 0.001, 0, 0, 0.002, 0, 0.0005, 0):
        time.sleep(pause)
        np.testing.assert_array_equal(scale(x, 3.0), 3 * x)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_a_worker_that_was_woken_may_run_everywhere_again(assemble):
    """It is put on a processor of its own for the moment of waking only."""
    kernel = team_kernel(assemble, COUNT, 3)
    counts = np.zeros(4096, np.int64)
    for _ in range(5):
        kernel.launch(counts)
        time.sleep(0.05)  # the workers fall asleep
    kernel.launch(counts)
    time.sleep(0.05)
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    allowed = {frozenset(os.sched_getaffinity(task)) for task in tasks}
    assert allowed == {frozenset(os.sched_getaffinity(0))}
    assert counts[:3].tolist() == [6] * 3


_TRIES = 10  # on a busy machine the worker is late in other calls, too


def since_long():
    """As if no time had been lost for long."""
    pool.always_share()
    pool.always_share(False)


@pytest.mark.parametrize(
    "barrier", ["", "call void @tensorlang_barrier(ptr %barrier, i64 %team)"]
)
def test_a_caller_that_waits_for_a_held_worker_goes_on_alone_for_a_while(
    assemble, barrier
):
    """The first loss makes workers measure, the second makes the caller go alone."""
    kernel = team_kernel(assemble, LATE.replace("BARRIER", barrier), 2)
    counts = np.zeros(4096, np.int64)

    def goes_alone():
        since_long()
        teams = []
        for pause in (0.5, 0, 0):
            time.sleep(pause)
            kernel.launch(counts)
            teams.append(int(counts[0]))
        left = backing_off("until").value - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        rests = 0 < left <= pool.REST * pool.MOST_LOST
        return (
            teams == [2, 2, 1]
            and rests
            and 0 < backing_off("left").value <= pool.MOST_LOST
        )

    assert any(goes_alone() for _ in range(_TRIES))


def test_losses_that_follow_each_other_cost_twice_as_long_each_time(assemble):
    kernel = team_kernel(assemble, LATE.replace("BARRIER", ""), 2)
    counts = np.zeros(4096, np.int64)

    def costs():
        since_long()
        kernel.launch(counts)
        times = []
        for number in range(8):
            if number == 7:
                since_long()
                kernel.launch(counts)
            kernel.launch(counts)
            times.append(backing_off("left").value / pool.MOST_LOST)
            lose(0, 0)  # paid
        return times

    wanted = [1, 2, 4, 8, 16, 32, pool.BACKOFF, 1]
    assert any(costs() == wanted for _ in range(_TRIES))
