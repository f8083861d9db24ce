"""A person's path: forecast, submit, watch, evaluate, download, predict, compare, describe."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import axe_selenium_python  # type: ignore[import-untyped]
import httpx
import pytest

from parley.learner.experiments.datasets import BIOPSIES
from tests.support.browser import Visitor
from tests.support.cluster import Cluster
from tests.support.nightly import nightly

SCRIPT = "<script>document.title = 'taken'</script>"


def clear(visitor: Visitor, selector: str, value: str) -> None:
    """Type a value in the place of another."""
    field = visitor.find(selector)
    field.clear()
    field.send_keys(value)


def take_away(visitor: Visitor, cluster: Cluster, folder: Path, run: str) -> None:
    """Download the model that is shown, and predict with it."""
    visitor.find("#download").click()
    visitor.until(lambda: list(folder.glob("*.json")))
    with visitor.site.client() as client:
        assert json.loads(next(folder.glob("*.json")).read_text()) == client.get(f"/v1/runs/{run}/model").json()
    visitor.find("#card").click()
    visitor.until(lambda: list(folder.glob("*-card.html")))
    assert f"<h1>{BIOPSIES.name}: model card</h1>" in next(folder.glob("*-card.html")).read_text()
    visitor.find("#predict summary").click()
    visitor.find("#rows").send_keys(str(cluster.root / "party-1.csv"))
    visitor.until_it_says("Predictions of diagnosis, the first 10", "#predictions")


def evaluate(visitor: Visitor) -> None:
    """Ask for an evaluation of the model that is shown, once its owners would allow it, and wait for it."""
    visitor.until_it_says("Of a model without any error", "#at-most")
    visitor.until_it_says("All its owners answer, and their rules and budgets allow it.", "#allowed")
    clear(visitor, "#evaluation-epsilon", "40")
    visitor.until_it_says("party-1, party-2, party-3 allow less ε in one run", "#allowed")
    assert visitor.find("#evaluate button").get_attribute("disabled")
    clear(visitor, "#evaluation-epsilon", "0.05")
    visitor.until_it_says("So small a budget tells nothing of 84 held-out rows", "#at-most")
    clear(visitor, "#evaluation-epsilon", "1")
    visitor.find("#evaluate button").click()
    visitor.until_it_says("An evaluation", "h1")
    visitor.until_it_says("Commonest class alone", seconds=60)


def compare(visitor: Visitor) -> None:
    """Put the two runs there are side by side."""
    visitor.go("runs")
    visitor.until(lambda: len(visitor.all("#runs input")) == 2)
    for box in visitor.all("#runs input"):
        box.click()
    visitor.photograph("runs")
    visitor.find("#compare").click()
    visitor.until_it_says("AUC", "#comparison")
    visitor.photograph("compare")


def test_what_would_be_refused_is_said_before_it_is_sent(visitor: Visitor) -> None:
    visitor.sign_in("#new/biopsies")
    visitor.until_it_says("Expected excess loss")
    before = visitor.text("#expected")
    clear(visitor, "#epsilon", "3")
    visitor.until(lambda: visitor.text("#expected") != before and "excess loss" in visitor.text("#expected"))
    clear(visitor, "#epsilon", "0")
    visitor.until_it_says("ε must be above 0", "#refused")
    assert visitor.find("#submit").get_attribute("disabled")
    clear(visitor, "#epsilon", "50")
    visitor.until_it_says("party-1, party-2, party-3 allow less ε in one run", "#refused")
    visitor.find("#submit").click()
    with visitor.site.client() as client:
        assert client.get("/v1/runs").json()["runs"] == []
    assert visitor.log() == []


def test_a_person_trains_evaluates_downloads_predicts_compares(
    visitor: Visitor, cluster: Cluster, tmp_path: Path
) -> None:
    visitor.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    visitor.sign_in("#new/biopsies")
    visitor.until_it_says("Expected excess loss")
    clear(visitor, "#epsilon", "3")
    visitor.find("#rest summary").click()
    clear(visitor, "#purpose", SCRIPT)
    time.sleep(0.5)
    visitor.until_it_says("Expected excess loss")
    visitor.photograph("new")
    visitor.find("#submit").click()
    visitor.until_it_says("completed", "#state", 60)
    visitor.until_it_says("What is promised")
    assert SCRIPT in visitor.text("#terms")
    run = visitor.find("article").get_attribute("data-run")
    evaluate(visitor)
    visitor.go(f"run/{run}")
    visitor.until_it_says("Commonest class alone")
    visitor.photograph("model")
    take_away(visitor, cluster, tmp_path, run or "")
    compare(visitor)
    assert visitor.browser.title != "taken"
    assert visitor.log() == []


@pytest.mark.slow
def test_budgets_are_current_without_being_asked_for(visitor: Visitor) -> None:
    visitor.sign_in("#new/biopsies")
    visitor.until_it_says("excess loss", "#expected")
    visitor.find("#forecast details:last-of-type summary").click()
    clear(visitor, "#epsilon", "0.5")
    visitor.until_it_says("ε 0.5,", "#forecast")
    form = visitor.text("#forecast table")
    with visitor.site.client() as client:
        first, second = (spend(client, epsilon) for epsilon in (0.7, 0.8))
        visitor.until(lambda: visitor.text("#forecast table") not in {"", form})
        assert visitor.find("#forecast details:last-of-type").get_attribute("open"), "what was opened stays so"
        visitor.go("studies")
        visitor.until_it_says("Describe its columns")
        button = next(candidate for candidate in visitor.all("main button") if "Describe" in candidate.text)
        visitor.browser.execute_script("arguments[0].focus()", button)
        before = visitor.text()
        spend(client, 0.9)
        visitor.until(lambda: visitor.text() != before)
        assert "Describe" in visitor.browser.switch_to.active_element.text, "the focus stays"
        visitor.go(f"compare/{first},{second}")
        visitor.until_it_says("AUC", "#comparison")
        client.post(f"/v1/runs/{first}/evaluation", json={"epsilon": 0.9, "delta": 1e-6}).raise_for_status()
        visitor.until(lambda: " to " in visitor.text("#comparison"))
    assert visitor.log() == []


@pytest.mark.slow
def test_a_model_shows_what_others_find_of_it_and_its_drawings_fit(visitor: Visitor) -> None:
    visitor.sign_in("#runs")
    with visitor.site.client() as client:
        run = spend(client, 0.7)
        visitor.go(f"run/{run}")
        visitor.until_it_says("Nobody has evaluated it yet.", "#quality")
        visitor.find("#course summary").click()
        for width, wanted in ((1280, 600), (390, 358), (1280, 600)):
            visitor.look(width, "light")
            visitor.until(partial(_draws, visitor, wanted))
        client.post(f"/v1/runs/{run}/evaluation", json={"epsilon": 0.9, "delta": 1e-6}).raise_for_status()
        visitor.until(lambda: "Commonest class alone" in visitor.text("#quality"), 60)
    assert visitor.log() == []


def _draws(visitor: Visitor, width: int) -> bool:
    """Whether the drawing of the rounds is so wide."""
    drawn = "return document.querySelector('#chart .drawing svg').getAttribute('viewBox').split(' ')[2]"
    return bool(float(visitor.browser.execute_script(drawn)) == width)


def spend(client: httpx.Client, epsilon: float) -> str:
    """A run that has ended."""
    ask = {"study": "biopsies", "epsilon": epsilon, "delta": 1e-5, "parameters": {"n_rounds": 2}}
    run: str = client.post("/v1/runs", json=ask).raise_for_status().json()["id"]
    client.get(f"/v1/runs/{run}/events").raise_for_status()
    return run


def test_a_study_is_described(visitor: Visitor) -> None:
    visitor.sign_in("#studies")
    visitor.until_it_says("Describe its columns")
    next(button for button in visitor.all("main button") if "Describe" in button.text).click()
    boxes = visitor.until(lambda: visitor.all("dialog .choices input"))
    assert len(boxes) == len(BIOPSIES.features) + 1
    visitor.until_it_says("Choose a column", "#precision")
    for box in (boxes[0], boxes[-1]):
        box.click()
    visitor.until_it_says("of 343 rows, each count will be right to ±", "#precision")
    epsilon = visitor.find("dialog[open] input")
    epsilon.clear()
    epsilon.send_keys("50")
    visitor.until_it_says("beyond the budget of party-1, party-2, party-3", "#precision")
    epsilon.clear()
    epsilon.send_keys("0.1")
    visitor.until_it_says("each count will be right to ±", "#precision")
    visitor.find("dialog[open] button.main").click()
    visitor.until_it_says("What the columns hold", seconds=60)
    assert len(visitor.all("#description svg")) == 2
    visitor.photograph("description")
    assert visitor.log() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, *(pytest.param(width, marks=nightly) for width in (1280, 1920))])
def test_axe_finds_nothing_serious(visitor: Visitor, width: int) -> None:
    axe = Path(axe_selenium_python.__file__).parent / "node_modules/axe-core/axe.min.js"
    script = axe.read_text(encoding="utf-8")
    visitor.sign_in()
    visitor.until_it_says("Runs")
    with visitor.site.client() as client:
        runs = [run["id"] for run in client.get("/v1/runs").json()["runs"]]
    for scheme in ("light", "dark"):
        visitor.look(width, scheme)
        for place in ("runs", "studies", "new/biopsies", *(f"run/{run}" for run in runs[:3])):
            visitor.go(place)
            visitor.until(lambda: visitor.all("main h1"))
            time.sleep(1)
            visitor.browser.execute_script("document.querySelectorAll('details').forEach((each) => each.open = true)")
            visitor.browser.execute_cdp_cmd("Runtime.evaluate", {"expression": script})
            report = visitor.browser.execute_async_script("axe.run().then(arguments[0])")
            bad = [
                f"{violation['id']}: {[node['html'][:120] for node in violation['nodes'][:3]]}"
                for violation in report["violations"]
                if violation["impact"] in {"serious", "critical"}
            ]
            print(f"{place} at {width}, {scheme}: {len(report['passes'])} rules hold, {len(bad)} serious faults")
            assert bad == [], place


WEIGHTS = """
  const { weights } = await import("/page/weights.js"), main = document.getElementById("main");
  const said = (model, divisor) => { main.replaceChildren(...weights(model, divisor)); return main.textContent; };
  const features = [{ name: "fico", lower: 600, upper: 850 }, { name: "purpose", values: ["car", "house"] }];
  const names = ["fico", "purpose=car", "purpose=house", "intercept"];
  const real = { name: "rate", lower: 5, upper: 30, unit: "percent" }, classes = ["a", "b", "c"];
  const study = { label: real, row_norm: "largest", intercept: true, features };
  const loans = { kind: "linear", classes: null, study, column_names: names, weights: [-.5, .2, .1, .9] };
  const two = ["a", "b"], places = [{ columns: 4, bound: 3, first: 1 }];
  const sparse = { ...study, label: { values: two }, row_norm: "own", features: places };
  const entries = { length: 5, index: [0, 4], value: [2, 1] };
  const words = { kind: "linear", classes: two, study: sparse, column_names: [], weights: entries };
  const three = { kind: "softmax", classes, study: { ...study, label: { values: classes } }, column_names: names,
    weights: [[.1, 0, 0, 0], [.2, 0, 0, 0], [.4, 0, 0, 0]] };
  const found = [said(loans, 5), said(words, null), said(three, 1)], choose = main.querySelector("select");
  choose.value = "2";
  choose.dispatchEvent(new Event("change"));
  return [...found, main.textContent];
"""


def test_weights_are_told_in_the_studys_units(visitor: Visitor) -> None:
    visitor.sign_in("#studies")
    visitor.until_it_says("party-1")
    loans, words, first, third = visitor.browser.execute_async_script(
        f"(async () => {{{WEIGHTS}}})().then(arguments[0])"
    )
    assert "the prediction of rate, in percent, moves" in loans
    wanted = "fico 600 to 850−2.5−1 per 100"
    assert wanted in loans, "2 x -.5 over 250, of a label 12.5 from its middle to its bounds, over 5"
    assert "purpose=car0.5" in loans
    assert "intercept" not in loans
    assert "where the number of a column is 3 and not 0. A row is then divided by its own length" in words
    assert "column 12" in words
    assert "intercept1" in words
    assert ("the score of a moves" in first, "0.2" in first) == (True, True)
    assert ("the score of c moves" in third, "0.8" in third) == (True, True)


EXPECTED = """
  const { ForecastPane } = await import("/page/forecast.js"), pane = new ForecastPane();
  const none = { error_lost: null, rmse_lost: null, warning: null }, excess = { estimate: .1, low: .05, high: .2 };
  const answer = { algorithm: "dp_gd", rounds: 3, run_time: { seconds: 1 }, chosen: {}, owners: [], majority: null,
    key_holders: [] };
  const said = (found, label) => {
    pane.take({ ...answer, outcome: { excess, rate: .9, assumptions: [], ...none, ...found } }, { label }, []);
    return pane.summary.textContent;
  };
  const classes = { values: ["a", "b"] }, real = { lower: 5, upper: 30, unit: "percent" };
  return [said({ error_lost: .1234 }, classes), said({ rmse_lost: .32 }, real), said({}, classes), said({}, real),
    said({ error_lost: .1234, warning: "more owners <i>are</i> needed" }, classes),
    (answer.key_holders = ["key-holder-1 <i>cannot</i> be reached"], said({ error_lost: .1234 }, classes)),
    pane.details.textContent,
    (Object.assign(answer, { more_runs: 1200, instead: "law = <i>x</i>: y would do", delta_buys: "with delta 1e-6" }),
      said({}, classes), pane.details.textContent)];
"""


def test_a_forecast_says_what_is_known_and_makes_nothing_up(visitor: Visitor) -> None:
    visitor.sign_in("#studies")
    visitor.until_it_says("party-1")
    texts = visitor.browser.execute_async_script(f"(async () => {{{EXPECTED}}})().then(arguments[0])")
    interval = "Expected excess loss 0.1, between 0.05 and 0.2, in 90 % of such runs."
    assert texts[0] == f"Accuracy: 0 to 12 points below the best possible{interval}"
    assert texts[1] == f"Root mean squared error: 0 to 4 percent above the least possible{interval}"
    assert texts[2].startswith("Of the accuracy nothing can be said beforehand")
    assert texts[3].startswith("Of the error nothing can be said beforehand")
    assert texts[4] == texts[0].replace(interval, f"More owners <i>are</i> needed.{interval}")
    assert texts[5] == f"Key-holder-1 <i>cannot</i> be reached.{texts[0]}"
    assert "Afterwards not known" in texts[6]
    for words in ("1,200 more like this", "Law = <i>x</i>: y would do.", "With delta 1e-6."):
        assert words in texts[7]
        assert words not in texts[6]


def test_the_words_of_a_party_stay_text(visitor: Visitor) -> None:
    """No name may hold markup; where a party's problem does, or a learner were to let one pass, it is text."""
    visitor.sign_in("#studies")
    visitor.until_it_says("party-1")
    script = """
      const dom = await import("/page/dom.js"), charts = await import("/page/charts.js");
      const name = "<script>document.title = 'taken'<" + "/script><img src=x onerror=\\"document.title = 'taken'\\">";
      const main = document.getElementById("main");
      main.replaceChildren(dom.table(name, [name, name, name], [[name, name, name]]), dom.badge(name),
        charts.plane({ title: name, x: name, y: name, line: [] }).element);
      return [main.querySelectorAll("script, img").length, main.textContent.includes("<script>"), document.title];
    """
    texts = visitor.browser.execute_async_script(f"(async () => {{{script}}})().then(arguments[0])")
    assert texts[:2] == [0, True]
    assert texts[2] != "taken"


def test_the_boundary_of_a_cluster_is_a_users(visitor: Visitor) -> None:
    """Nobody without a token learns of a run."""
    with httpx.Client(base_url=visitor.site.url, trust_env=False) as client:
        for path in ("/v1/user", "/v1/events", "/v1/runs"):
            assert client.get(path).status_code == 401
