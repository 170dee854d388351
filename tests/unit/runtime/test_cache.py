"""The cache on disk: whole entries or none, in a folder that is the user's alone."""

import os
import threading
import warnings

import pytest

from tensorlang.runtime import cache
from tensorlang.runtime.cache import Entry

ENTRY = Entry({"name": "f", "sizes": [1, 2]}, {"object": b"\x00code\n", "text": b""})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    cache._usable.cache_clear()
    yield tmp_path / "cache"
    cache._usable.cache_clear()


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_what_is_saved_is_loaded(folder):
    key = cache.key_of("a")
    assert cache.load(key) is None
    cache.save(key, ENTRY)
    assert cache.load(key) == ENTRY
    assert folder.stat().st_mode & 0o777 == 0o700


def test_keys_tell_their_parts_apart():
    keys = {cache.key_of(*parts) for parts in [("ab", "c"), ("a", "bc"), ("abc",)]}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda data: data[:-3], "its checksum does not match"),
        (lambda data: data[:40], "its checksum does not match"),
        (lambda _: b"", "it is not a cache entry"),
        (lambda data: data.replace(b"code", b"evil"), "its checksum does not match"),
        (lambda _: b"\x89PNG\r\n", "it is not a cache entry"),
    ],
    ids=["torn", "head only", "empty", "altered", "foreign"],
)
def test_harmed_files_are_ignored_with_a_sentence(folder, harm, sentence):
    key = cache.key_of("a")
    cache.save(key, ENTRY)
    path = only_file(folder)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.warns(RuntimeWarning, match=sentence) as caught:
        assert cache.load(key) is None
    assert str(path) in str(caught[0].message)
    cache.save(key, ENTRY)
    assert cache.load(key) == ENTRY


def _pipe(path):
    os.mkfifo(path)


def _endless(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("put", [_pipe, _endless])
def test_what_is_no_file_neither_waits_nor_fills_memory(folder, put):
    key = cache.key_of("a")
    cache.save(key, ENTRY)
    path = only_file(folder)
    path.unlink()
    put(path)
    with pytest.warns(RuntimeWarning, match="it is not a regular file"):
        assert cache.load(key) is None
    cache.save(key, ENTRY)
    assert cache.load(key) == ENTRY


def test_a_folder_in_the_place_of_an_entry_is_none(folder):
    key = cache.key_of("a")
    cache.save(key, ENTRY)
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    assert cache.load(key) is None


def test_a_file_too_large_for_an_entry_is_not_read(folder):
    key = cache.key_of("a")
    cache.save(key, ENTRY)
    os.truncate(only_file(folder), cache.LIMIT_ENTRY + 1)
    with pytest.warns(RuntimeWarning, match="it is larger than 128 MiB"):
        assert cache.load(key) is None


def test_an_entry_under_another_name_is_refused(folder):
    first, second = cache.key_of("a"), cache.key_of("b")
    cache.save(first, ENTRY)
    only_file(folder).rename(folder / f"{second}.tlc")
    with pytest.warns(RuntimeWarning, match="belongs to another key"):
        assert cache.load(second) is None


def test_concurrent_writers_leave_one_whole_entry(folder):
    key = cache.key_of("a")
    entries = [Entry({"n": n}, {"object": bytes([n]) * 100_000}) for n in range(8)]
    threads = [
        threading.Thread(target=lambda e=e: [cache.save(key, e) for _ in range(20)])
        for e in entries
    ]
    for thread in threads:
        thread.start()
    seen = [cache.load(key) for _ in range(200)]
    for thread in threads:
        thread.join()
    assert cache.load(key) in entries
    assert all(entry is None or entry in entries for entry in seen)
    assert only_file(folder).suffix == ".tlc"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_folder_open_to_others_turns_caching_off(folder):
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with warnings.catch_warnings(record=True) as caught:
        assert cache.directory() is None
        cache.save(cache.key_of("a"), ENTRY)
        assert cache.load(cache.key_of("a")) is None
    (warning,) = caught
    assert "is open to others (mode 755, not 700)" in str(warning.message)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_folder_of_another_user_turns_caching_off(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.warns(RuntimeWarning, match=f"belongs to user {user}, not to you"):
        assert cache.directory() is None


def test_a_file_in_place_of_the_folder_turns_caching_off(folder):
    folder.write_text("")
    with pytest.warns(RuntimeWarning, match="kernels are not cached"):
        assert cache.directory() is None


def test_a_disk_that_takes_nothing_is_no_error(folder, monkeypatch):
    assert cache.directory() == folder

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(folder), "replace", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.save(cache.key_of("a"), ENTRY)
    assert list(folder.iterdir()) == []


def test_the_oldest_files_go_first_when_it_grows_too_large(folder, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT_BYTES", 1000)
    folder.mkdir(mode=0o700)
    for age, name in enumerate("abcd"):
        (folder / name).write_bytes(b"x" * 400)
        os.utime(folder / name, (age, age))
    cache._prune(folder)
    assert [path.name for path in folder.iterdir()] == ["d"]


def test_notes_outlive_a_process_and_harm(folder, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT_NOTES", 3)
    for name in "abcd":
        cache.note(name, f"what is known of {name}")
    cache.note("a", "another thing")
    path = only_file(folder)
    path.write_bytes(path.read_bytes().replace(b"known of b", b"told of b")[:-3])
    cache._notes_in.cache_clear()
    assert cache.notes() == {"a": "what is known of a"}
    cache.note("e", "after a torn line")
    cache._notes_in.cache_clear()
    assert cache.notes() == {"a": "what is known of a", "e": "after a torn line"}


def test_lines_that_are_no_notes_take_no_place(folder, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT_NOTES", 3)
    cache.note("a", "known")
    path = only_file(folder)
    path.write_bytes(b"junk\n" * 20 + 5 * path.read_bytes())
    cache._notes_in.cache_clear()
    cache.note("b", "known too")
    cache._notes_in.cache_clear()
    assert cache.notes() == {"a": "known", "b": "known too"}


def _huge(path):
    path.touch()
    os.truncate(path, cache.LIMIT_NOTES_FILE + 1)


@pytest.mark.parametrize(
    ("put", "said"),
    [(_pipe, "not a regular"), (_endless, "not a regular"), (_huge, "larger than 16")],
)
def test_what_is_no_file_of_notes_is_replaced(folder, put, said):
    cache.note("a", "known")
    path = only_file(folder)
    path.unlink()
    put(path)
    cache._notes_in.cache_clear()
    with pytest.warns(RuntimeWarning, match=said):
        assert cache.notes() == {}
    cache.note("b", "known")
    cache._notes_in.cache_clear()
    assert cache.notes() == {"b": "known"}


def test_a_folder_in_the_place_of_notes_is_none(folder):
    cache.note("a", "known")
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    cache._notes_in.cache_clear()
    assert cache.notes() == {}
    cache.note("b", "known")
