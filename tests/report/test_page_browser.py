"""Reports of three tiny runs, opened, used and read in a headless Chromium without network."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from fl_app.one_run import run
from fl_app.records.rounding import share, upwards

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs Chromium: apt-get install chromium chromium-driver",
)
PATIENCE_S = 300  # on a busy machine a page draws slowly, and scripts wait for it
COMMON = ["rounds=6", "population.clients=6", "population.train_samples=60",
          "records.evaluate_every=2", "records.figures=false", "records.snapshots=6"]  # fmt: skip
RUNS = {
    "flic": ["population.groups=2", "strategy.participation=0.5", "strategy.cluster_round=4"],
    "dcfl": ["strategy=dcfl", "strategy.participation=1.0", "population.groups=2",
             "population/dynamics=every_ten", "population.dynamics.newcomers=1",
             "population.dynamics.join_every=3", "population.dynamics.drifters=1",
             "population.dynamics.drift_every=4"],
    "cfl": ["strategy=cfl", "strategy.participation=1.0", "population=iid", "attack=minus_grad"],
}  # fmt: skip


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the runs."""
    folder = tmp_path_factory.mktemp("reports")
    for name, overrides in RUNS.items():
        run([*COMMON, *overrides], folder / name)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu",
                     "window-size=1280,1000", "host-resolver-rules=MAP * ~NOTFOUND"):  # fmt: skip
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, webdriver.ChromeService(str(DRIVER)))
    driver.set_script_timeout(PATIENCE_S)
    driver.command_executor.client_config.timeout = PATIENCE_S
    yield driver
    driver.quit()


def opened(browser: Chrome, report: Path) -> Chrome:
    """Return the browser once it has loaded the report, which has drawn every figure then.

    A program that takes a picture of the page waits no longer.
    """
    browser.get(report.as_uri())
    assert browser.execute_script("return document.body.dataset.drawn === 'yes'")
    return browser


def problems(browser: Chrome) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] != "INFO"]


def column(browser: Chrome, key: str) -> list[str]:
    """Return what the table of clients shows in a column, top to bottom."""
    place = browser.execute_script(
        "return page.clients.columns.findIndex((column) => column.key === arguments[0])", key
    )
    cells = browser.find_elements(By.CSS_SELECTOR, f"#clients tbody tr > :nth-child({place + 1})")
    return [cell.text for cell in cells]


@pytest.mark.parametrize("name", RUNS)
def test_a_report_is_drawn_whole_and_without_a_complaint(
    browser: Chrome, reports: Path, name: str
) -> None:
    report = opened(browser, reports / name / "report.html")
    wanted = report.execute_script("return Object.keys(page.figures)")
    assert {"accuracy", "quality", "gains", "seconds"} <= set(wanted)
    for figure in [*wanted, "matrix", "graph"]:
        layers = (f"#{figure} .{kind}layer > *" for kind in ("scatter", "bar", "heatmap"))
        drawn = report.find_elements(By.CSS_SELECTOR, ", ".join(layers))
        assert drawn, figure
    assert len(column(report, "client")) == 6
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert report.execute_script(wide) == 0
    assert problems(report) == []
    assert (reports / name / "report.html").stat().st_size < 5e6


def test_a_report_is_drawn_in_a_sandbox(browser: Chrome, reports: Path, tmp_path: Path) -> None:
    report = (reports / "flic" / "report.html").as_uri()
    page = tmp_path / "viewer.html"
    page.write_text(f'<iframe sandbox="allow-scripts" src="{report}"></iframe>')
    browser.get(page.as_uri())
    browser.switch_to.frame(0)
    drawn = "return document.body.dataset.drawn === 'yes'"
    WebDriverWait(browser, PATIENCE_S).until(lambda each: each.execute_script(drawn))
    browser.switch_to.default_content()
    problems(browser)


def test_the_slider_moves_matrix_and_graph_by_keyboard(browser: Chrome, reports: Path) -> None:
    report = opened(browser, reports / "flic" / "report.html")
    matrix = "return JSON.stringify(document.getElementById('matrix').data[0].z)"
    told, drawn = report.find_element(By.ID, "frame"), report.execute_script(matrix)
    last = told.text
    report.find_element(By.ID, "round").send_keys(Keys.HOME)
    WebDriverWait(report, 10).until(lambda each: each.execute_script(matrix) != drawn)
    assert told.text.startswith("round 1:")
    assert told.text != last
    report.find_element(By.ID, "round").send_keys(Keys.END)
    WebDriverWait(report, 10).until(lambda each: each.execute_script(matrix) == drawn)
    assert problems(report) == []


def test_the_table_is_sorted_and_filtered(browser: Chrome, reports: Path) -> None:
    report = opened(browser, reports / "cfl" / "report.html")
    header = report.find_element(By.XPATH, "//*[@id='clients']//button[contains(., 'after')]")
    header.send_keys(Keys.ENTER)
    values = [float(text.rstrip("%")) for text in column(report, "after")]
    assert values == sorted(values)
    header.send_keys(Keys.ENTER)
    values = [float(text.rstrip("%")) for text in column(report, "after")]
    assert values == sorted(values, reverse=True)
    malicious = column(report, "out")
    Select(report.find_element(By.ID, "community")).select_by_value("removed")
    assert set(column(report, "community")) == {"removed"}
    assert len(column(report, "out")) == sum(text != "\N{EN DASH}" for text in malicious)
    assert all("alpha_cross" in why for why in column(report, "why"))
    Select(report.find_element(By.ID, "community")).select_by_value("")
    report.find_element(By.ID, "search").send_keys("3")
    assert column(report, "client") == ["3"]
    assert report.find_element(By.ID, "count").text == "1 of 6 clients"
    assert problems(report) == []


def test_the_table_rounds_as_the_text_does(browser: Chrome, reports: Path, tmp_path: Path) -> None:
    shares, budgets = [299 / 300, 0.9996, 0.5, 0.4999, 1.0, 0.683], [0.003751, 1.501, 0.5, 1e-7]
    page = (reports / "cfl" / "report.html").read_text()
    changed = "page.clients.rows.forEach((row, i) => page.clients.columns.forEach((each, j) => {"
    changed += f"if (each.key === 'after') row[j] = {shares}[i];"
    changed += f"if (each.key === 'epsilon') row[j] = {[*budgets, 'Infinity']}[i] ?? null; }}));"
    script = page.rindex('"use strict";')  # of the table
    (tmp_path / "report.html").write_text(f"{page[:script]}{changed}{page[script:]}")
    report = opened(browser, tmp_path / "report.html")
    assert column(report, "after") == [share(each, 1) for each in shares]
    dash = "\N{EN DASH}"
    assert column(report, "epsilon") == [*map(upwards, budgets), "Infinity", dash]
    assert problems(report) == []


def test_the_scheme_is_switched(browser: Chrome, reports: Path) -> None:
    report = opened(browser, reports / "dcfl" / "report.html")
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.querySelector('#accuracy .xtick text').style.fill"
    before = report.execute_script(ground), report.execute_script(ink)
    report.find_element(By.ID, "scheme").send_keys(Keys.ENTER)
    WebDriverWait(report, 10).until(lambda each: each.execute_script(ink) != before[1])
    assert report.execute_script(ground) != before[0]
    report.find_element(By.ID, "scheme").send_keys(Keys.ENTER)
    WebDriverWait(report, 10).until(lambda each: each.execute_script(ink) == before[1])
    assert problems(report) == []
