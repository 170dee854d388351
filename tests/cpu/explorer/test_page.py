"""Pages: well formed, small, self-contained, and safe with any name."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection

import pytest
from typer.testing import CliRunner

from tensorlang.cli.app import app
from tensorlang.errors import OperatorError
from tensorlang.explorer.page import page
from tensorlang.explorer.serving import server_of

VOID = {"meta", "link", "br", "hr", "img", "input"}
HOSTILE = (
    "</script><script>alert(1)</script> \"quoted\" 'and' <b>&amp; \u202eright to left"
)


class Nesting(HTMLParser):
    """Elements must close in the order in which they opened; ids are unique."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.kinds = [], set(), [], []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.kinds.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in named:
            assert named["id"] not in self.ids
            self.ids.add(named["id"])
        self.links += [named[name] for name in ("href", "src") if name in named]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    found = Nesting()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def links_of(text):
    (data,) = re.findall(r'id="links">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


@pytest.fixture(scope="module")
def softmax(subject):
    return subject("softmax", "128x1000")


def test_a_page_nests_and_fetches_nothing(softmax):
    text = page(softmax)
    found = parsed(text)
    assert len(text.encode()) < 3_000_000
    assert all(link.startswith("#") or link == "data:," for link in found.links)
    assert all(link[1:] in found.ids for link in found.links if link[0] == "#")
    for name, stage in links_of(text)["stages"].items():
        count = len(stage.get("own", stage["sources"]))
        assert f"{name}:{count}" in found.ids
        assert f"{name}:{count + 1}" not in found.ids


def test_hostile_names_do_no_harm(softmax):
    plain = parsed(page(softmax)).kinds
    text = page(replace(softmax, title=HOSTILE, why=HOSTILE))
    assert parsed(text).kinds == plain
    assert "alert(1)</script>" not in text


def test_a_page_of_an_operator_with_attributes(tmp_path):
    file = tmp_path / "bits.html"
    result = CliRunner().invoke(app, ["explore", "bits", "-o", str(file)])
    assert (result.exit_code, result.stdout) == (0, f"written to {file}\n")
    assert "trace:1" in parsed(file.read_text("utf-8")).ids


@pytest.fixture
def asked():
    """A function that serves a page and sends one request."""

    def ask(make, path="/", host=None):
        with server_of(make) as server:
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            client = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
            client.request("GET", path, headers={"Host": host} if host else {})
            answer = client.getresponse()
            body = answer.read().decode()
            client.close()
            thread.join()
        return answer.status, body

    return ask


def test_a_server_makes_the_page_at_each_request(asked):
    assert asked(lambda: "a page") == (200, "a page")


def test_a_server_answers_this_machine_alone(asked):
    assert asked(lambda: "a page", host="evil.example:80")[0] == 404
    assert asked(lambda: "a page", path="/etc/passwd")[0] == 404


def test_a_server_says_what_is_wrong(asked):
    def wrong():
        raise OperatorError("there is no <such> operator")

    status, body = asked(wrong)
    assert status == 500
    assert "no &lt;such&gt; operator" in body
