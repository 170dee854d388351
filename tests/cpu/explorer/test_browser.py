"""Pages in a real browser: hovering, keys, deep links, widths, console, requests."""

from __future__ import annotations

import shutil

import pytest

from tensorlang.explorer.page import page
from tensorlang.explorer.search import Effect, History, Search

BROWSER = shutil.which("chromium")
if BROWSER is None:
    pytest.skip(
        "there is no chromium (apt-get install chromium)", allow_module_level=True
    )
PATIENCE = 300_000  # milliseconds, on a machine that is busy with other tests
playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright")


ENDS = [(0, 0), (300, 160)]
SEARCH = Search(
    "dense on a machine",
    {"ok": 2, "wrong": 1},
    History(ENDS, ENDS, [150.0], (2e-6, 1e-6), 3),
    ("direct(lanes=8)", 1e-6),
    ("direct(lanes=16)", 2e-6),
    [Effect("lanes", 0.5, [(str(n), 1.0 + n, 1) for n in range(24)])],
    [("wrong: " + "long" * 60, 1, "direct(lanes=16)")],
)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        # as root, and where /dev/shm is small
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        opened = p.chromium.launch(executable_path=BROWSER, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(subject, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "dense.html"
    shown = subject("dense", "64x784,512x784")
    path.write_text(page(shown, None, SEARCH), "utf-8")
    return path


@pytest.fixture
def opened(browser, file):
    """A function that opens the page; nothing may be fetched or said on the console."""
    said, asked, tabs, opened = [], [], [], set()

    def open_page(width=1440, fragment="", path=file):
        tab = browser.new_page(viewport={"width": width, "height": 800})
        tab.set_default_timeout(PATIENCE)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(f"{path.as_uri()}{fragment}")
        opened.add(path.as_uri())
        tabs.append(tab)
        return tab

    yield open_page
    for tab in tabs:
        tab.close()
    assert said == []
    assert {url.partition("#")[0] for url in asked} == opened


def marked(tab, stage, kind="strong"):
    """The texts of the marked lines of a stage."""
    return tab.locator(f"#{stage} .{kind} code").all_text_contents()


def line_of(tab, stage, text):
    return tab.locator(f"#{stage} .line", has_text=text).first


def test_hovering_links_the_lines_of_all_stages(opened):
    tab = opened()
    line_of(tab, "definition", "reduce(sum").hover()
    for stage, text in {
        "scheduled": "reduce(sum, y_register",
        "lowered": "= fma(splat(x",
        "source": "llvm.fma",
        "asm": "vfmadd",
    }.items():
        assert any(text in line for line in marked(tab, stage)), stage
    assert not any("shuffle(" in line for line in marked(tab, "lowered"))
    line_of(tab, "lowered", "w_global = alloc").hover()
    assert [text.strip()[:16] for text in marked(tab, "scheduled")] == [
        "w_global = alloc"
    ]


def test_machine_code_is_linked_back_to_the_definition(opened):
    tab = opened()
    line_of(tab, "asm", "vfmadd").hover()
    assert any("reduce(sum" in line for line in marked(tab, "definition"))
    (source,) = marked(tab, "source")
    assert "llvm.fma" in source


def test_keys_move_and_keep_a_line_that_can_be_linked_to(opened):
    tab = opened()
    tab.locator("#definition pre").focus()
    for key in ("ArrowDown",) * 3 + ("Enter",):
        tab.keyboard.press(key)
    assert tab.url.endswith("#definition:3")
    assert "loop j" in tab.locator("#status").text_content()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.parentElement.id") == "scheduled"
    tab.keyboard.press("Escape")
    assert "#" not in tab.url
    tab.keyboard.press("t")
    assert tab.locator("#trace").is_visible()


def test_a_key_shows_the_search(opened):
    tab = opened()
    assert not tab.locator("#search").is_visible()
    tab.keyboard.press("s")
    assert tab.locator("#search svg").is_visible()
    assert "lanes" in tab.locator("#search table").first.text_content()


def test_a_deep_link_shows_its_line(opened):
    tab = opened(fragment="#lowered:60")
    assert tab.locator('[id="lowered:60"]').is_visible()
    assert "current" in tab.locator('[id="lowered:60"]').get_attribute("class")
    tab = opened(width=360, fragment="#trace:3")
    assert tab.locator('[id="trace:3"] pre').is_visible()


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_screen(opened, width):
    tab = opened(width)
    for name in tab.locator("button[data-stage]").all():
        name.click()
        wide = tab.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide, name.text_content()


def test_light_and_dark(opened):
    tab = opened()
    colours = set()
    for _ in range(2):
        tab.keyboard.press("d")
        colours.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_a_long_stage_is_made_when_it_is_shown(opened, subject, monkeypatch, tmp_path):
    monkeypatch.setattr("tensorlang.explorer.page._MOST_LINES", 150)
    path = tmp_path / "softmax.html"
    path.write_text(page(subject("softmax", "128x1000")), "utf-8")
    tab = opened(path=path)
    assert tab.locator("#asm .line").count() == 0
    line_of(tab, "lowered", "lane_reduce").hover()  # it is linked to hidden lines, too
    tab.locator("button[data-stage=asm]").click()
    lines = tab.locator("#asm .line")
    assert tab.locator("#asm small").text_content() == f"{lines.count()} lines"
    assert lines.nth(120).get_attribute("id") == "asm:121"
    tab = opened(path=path, fragment="#asm:121")
    assert tab.locator("#asm .current").get_attribute("id") == "asm:121"
    assert tab.locator("#asm .current").is_visible()
    assert marked(tab, "definition")
