# SPDX-License-Identifier: Apache-2.0
"""Checks build/site in a browser: links, pictures, search, colors, and the layout on a phone."""

import functools
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
READ = [page for page in PAGES if page != "404.html"]
DESKTOP, PHONE = (1400, 900), (390, 844)
PATIENCE = 30  # seconds
NOT_FOUND = 400
BROKEN_PICTURES = """
return [...document.images]
  .filter(image => image.checkVisibility() && !(image.complete && image.naturalWidth))
  .map(image => image.src)
"""
PICTURES_ARE_COMPLETE = "return [...document.images].every(image => image.complete)"
LOAD_PICTURES = "for (const image of document.images) image.loading = 'eager'"
LOADED_FONTS = """
return [...document.fonts].filter(font => font.status === 'loaded')
  .map(font => font.family.replaceAll('"', ''))
"""
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Links(HTMLParser):
    """Collects the links and the anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value or "")


@functools.cache
def links_of(page: Path) -> Links:
    return Links(page)


def broken_links(name: str, links: list[str]) -> list[str]:
    broken = []
    for link in links:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"http://site/{name}", link))
        if parts.netloc != "site" or link.startswith("data:"):
            continue
        target = SITE / urllib.parse.unquote(parts.path).lstrip("/")
        target = target / "index.html" if target.is_dir() else target
        anchor = urllib.parse.unquote(parts.fragment)
        is_page = target.suffix == ".html"
        if not target.exists() or (is_page and anchor not in links_of(target).anchors):
            broken.append(link)
    return broken


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with Chrome(options, ChromeService("/usr/bin/chromedriver")) as browser:
        yield browser


def resize(browser: Chrome, size: tuple[int, int]) -> None:
    """Sets the page to this size, which may be smaller than the smallest possible window."""
    width, height = size
    is_phone = size == PHONE
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def prefer(browser: Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait_for(browser: Chrome, condition: Any) -> Any:
    return WebDriverWait(browser, PATIENCE).until(condition)


def shown(browser: Chrome, selector: str) -> list[WebElement]:
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    return [element for element in found if element.is_displayed()]


def requests(browser: Chrome) -> tuple[list[str], list[str]]:
    """Returns the addresses requested since the last call, and those that failed."""
    asked, failed = [], []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
        if message["method"] == "Network.responseReceived":
            response = message["params"]["response"]
            failed += [response["url"]] if response["status"] >= NOT_FOUND else []
    return asked, failed


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    assert broken_links(page, links_of(SITE / page).links) == []


def test_broken_links_are_reported() -> None:
    links = ["../t5/", "../t5/#nowhere", "../none/", "https://example.org/none"]
    assert broken_links("gallery/alibi/index.html", links) == ["../t5/#nowhere", "../none/"]


@pytest.mark.parametrize("page", READ)
def test_page_loads_and_fits_a_phone(browser: Chrome, server: str, page: str) -> None:
    resize(browser, PHONE)
    browser.get(server + page.removesuffix("index.html"))
    browser.execute_script(LOAD_PICTURES)
    wait_for(browser, lambda browser: browser.execute_script(PICTURES_ARE_COMPLETE))
    assert browser.execute_script(BROKEN_PICTURES) == []
    assert browser.execute_script(OVERFLOW) <= 0
    asked, failed = requests(browser)
    assert asked
    assert [url for url in asked if not url.startswith((server, "data:", "blob:"))] == []
    assert failed == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("kerple", "gallery/kerple/"),
        ("memory-budget", "operations/size/"),
        ("StreamTensorRequest", "reference/contract/"),
        ("from_config", "reference/python/"),
    ],
)
def test_search_finds_the_page(browser: Chrome, server: str, words: str, page: str) -> None:
    resize(browser, DESKTOP)
    browser.get(server)
    field = browser.find_element(By.CSS_SELECTOR, "input.md-search__input")
    field.click()
    field.send_keys(words)

    def results(browser: Chrome) -> list[str]:
        found = browser.find_elements(By.CSS_SELECTOR, "a.md-search-result__link")
        return [urllib.parse.urlsplit(str(link.get_attribute("href"))).path for link in found]

    wait_for(browser, results)
    assert f"/{page}" in results(browser)


def shown_pictures(browser: Chrome) -> list[str]:
    pictures = [str(it.get_attribute("src")) for it in shown(browser, "article img")]
    return [urllib.parse.urlsplit(it).path for it in pictures]


def wait_for_scheme(browser: Chrome, name: str) -> None:
    body = browser.find_element(By.TAG_NAME, "body")
    wait_for(browser, lambda _: body.get_attribute("data-md-color-scheme") == name)


@pytest.mark.parametrize(("scheme", "name"), [("light", "default"), ("dark", "slate")])
def test_colours_follow_the_system(browser: Chrome, server: str, scheme: str, name: str) -> None:
    resize(browser, DESKTOP)
    prefer(browser, scheme)
    browser.get(f"{server}gallery/alibi/")
    wait_for_scheme(browser, name)
    assert shown_pictures(browser) == [f"/gallery/alibi-{scheme}.svg"]
    assert browser.execute_script(BROKEN_PICTURES) == []


def test_button_switches_the_colours(browser: Chrome, server: str) -> None:
    resize(browser, DESKTOP)
    prefer(browser, "dark")
    browser.get(f"{server}gallery/t5/")
    wait_for_scheme(browser, "slate")
    (button,) = shown(browser, "label[title='Light colours']")
    button.click()
    wait_for_scheme(browser, "default")
    assert shown_pictures(browser) == ["/gallery/t5-light.svg"]
    browser.execute_script("localStorage.clear()")


def test_tabs_show_lines_of_one_language(browser: Chrome, server: str) -> None:
    resize(browser, PHONE)
    browser.get(f"{server}gallery/rotary/")
    for title, word in (("Go", "&pb.Rotary{"), ("grpcurl", "-plaintext"), ("Python", "Rotary(")):
        labels = shown(browser, ".tabbed-labels label")
        next(label for label in labels if label.text == title).click()
        (block,) = shown(browser, ".tabbed-content pre code")
        assert word in block.text


def test_phone_menu_links_to_pages(browser: Chrome, server: str) -> None:
    resize(browser, PHONE)
    browser.get(server)
    (menu,) = shown(browser, "label.md-header__button[for='__drawer']")
    menu.click()
    wait_for(browser, lambda browser: shown(browser, ".md-nav--primary label.md-nav__link"))


@pytest.mark.parametrize("page", ["gallery/t5/", "gallery/deberta/"])
def test_formulas_are_rendered(browser: Chrome, server: str, page: str) -> None:
    browser.get(server + page)
    formulas = shown(browser, "article math")
    assert formulas
    for formula in formulas:
        assert "\\" not in formula.text
        assert formula.size["height"] > 0
    assert browser.execute_script(LOADED_FONTS) == ["Latin Modern Math"]
