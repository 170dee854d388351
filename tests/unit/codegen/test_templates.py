"""Templates are compiled once: their bytecode is kept, and left aside when stale."""

import jinja2
import pytest

from tensorlang import templates
from tensorlang.templates.bytecode import PycacheBytecode


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "greeting.j2"
    path.write_text("hello {{ name }}")
    return path


def greet(source, *, write: bool) -> str:
    """The template rendered by an environment that has seen nothing before."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(source.parent),
        bytecode_cache=PycacheBytecode(write=write),
        autoescape=False,
    )
    return environment.get_template(source.name).render(name="you")


def kept(source):
    return list(source.parent.rglob("*.j2c"))


def test_bytecode_lies_where_python_keeps_its_own(source):
    assert greet(source, write=True) == "hello you"
    (place,) = kept(source)
    assert place.parent.name == "__pycache__"
    assert greet(source, write=False) == "hello you"


def test_kept_bytecode_is_what_runs(source):
    greet(source, write=True)
    (place,) = kept(source)
    place.write_bytes(place.read_bytes().replace(b"hello ", b"howdy "))
    assert greet(source, write=False) == "howdy you"


def test_nothing_is_written_where_python_writes_no_bytecode(source):
    assert greet(source, write=False) == "hello you"
    assert kept(source) == []


@pytest.mark.parametrize("damage", [b"", b"j2", b"not bytecode at all"])
def test_damaged_bytecode_is_left_aside(source, damage):
    greet(source, write=True)
    (place,) = kept(source)
    place.write_bytes(damage or place.read_bytes()[:-40])
    assert greet(source, write=False) == "hello you"


def test_bytecode_of_an_older_source_is_left_aside(source):
    greet(source, write=True)
    source.write_text("goodbye {{ name }}")
    assert greet(source, write=False) == "goodbye you"


def test_a_name_that_is_not_given_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="signature"):
        templates.render("wrapper.ll.j2")
