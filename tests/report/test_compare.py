"""Runs side by side: grouped by what was varied, spread over seeds, as tables and as a page."""

import csv
import json
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

from fl_app.composition import CONF
from fl_app.records.history import FIELDS, History, read_rounds
from fl_app.report.compare import figures, tables
from fl_app.report.compare.aggregate import SCALARS, Comparison, aggregate, label_of, varied
from fl_app.report.compare.figures import courses, endings
from fl_app.report.compare.jobs import read_jobs
from fl_app.report.compare.measures import measured
from fl_app.report.compare.numbers import curves
from fl_app.report.compare.page import compare, page, write
from fl_app.report.compare.tables import markdown, to_csv, to_latex
from fl_app.report.sweep import WriteTable


def _run(
    folder: Path,
    overrides: dict[str, object],
    accuracy: float,
    *,
    status: str = "completed",
    sent: tuple[int, int] = (3_000_000, 1_000_000),
) -> None:
    folder.mkdir(parents=True)
    given = [f"{key}={value}" for key, value in overrides.items()] + ["data.root=/somewhere"]
    (folder / "overrides.yaml").write_text(yaml.safe_dump(given))
    seed, strategy = overrides.get("seed", 0), overrides.get("strategy", "flic")
    communities = {"ari": None, "silhouette": 0.5, "count": 2}
    summary = {"status": status, "strategy": strategy, "seed": seed, "git": "abc",
               "accuracy": {"mean": accuracy}, "communities": communities}  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    measured = [{"mean": accuracy * part} for part in (0.5, 1.0)]
    History(folder, [
        dict.fromkeys(FIELDS) | {"round": number, "events": [], "sampled": [0, 1],
                                 "bytes": {"down": sent[0], "up": sent[1]}, "accuracy": each}
        for number, each in enumerate(measured, start=1)
    ])  # fmt: skip


def _sweep(folder: Path) -> Path:
    number = 0
    for seed in (0, 1):
        for strategy, head in (("flic", 0.2), ("ifca", 0.0)):
            for share in (0.3, 0.7):
                accuracy = 0.5 + share / 10 + seed / 50 + head
                overrides = {"strategy": strategy, "population.share": share, "rounds": 2}
                _run(folder / str(number), overrides | {"seed": seed}, accuracy)
                number += 1
    return folder


def _compared(folder: Path) -> Comparison:
    return aggregate(read_jobs([folder])[0])


def test_the_table_has_a_row_per_combination_and_the_spread_over_seeds(tmp_path: Path) -> None:
    lines = markdown(_compared(_sweep(tmp_path)), "scripts/run --multirun ...")
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[0] == (
        "| strategy | population.share | accuracy | silhouette | communities "
        "| MB per client and round |"
    )
    # 0.73 and 0.75 of seeds 0 and 1, against 0.53 and 0.55 of the other method
    assert rows[2] == (
        "| flic | 0.3 | **0.740 ± 0.010** | 0.500 ± 0.000 | 2.0 ± 0.0 | 2.00 ± 0.00 |"
    )
    assert rows[4].startswith("| ifca | 0.3 | 0.540 ± 0.010 |")
    assert len(rows) == 2 + 4
    assert "somewhere" not in "".join(lines)
    assert "`rounds=2`" in "".join(lines)


def test_one_seed_is_named_and_a_small_model_does_not_send_0_mb(tmp_path: Path) -> None:
    _run(tmp_path / "0", {"strategy": "flic", "seed": 3}, 0.5, sent=(2_000, 2_600))
    _run(tmp_path / "1", {"strategy": "ifca", "seed": 3}, 0.5, sent=(4_000, 1_000))
    lines = markdown(_compared(tmp_path), "scripts/run")
    # 4,600 and 5,000 bytes among two clients
    assert [line.split(" | ")[-1] for line in lines[-2:]] == ["0.0023 |", "0.0025 |"]
    assert "Seed 3 alone; settings common to all: the defaults." in lines


@pytest.mark.parametrize(
    ("first", "second", "bold"),
    [
        ([0.80, 0.82], [0.76, 0.78], True),  # 0.81 - 0.01 > 0.77 + 0.01
        ([0.80, 0.82], [0.78, 0.80], False),  # 0.80 = 0.80: the ranges touch
        ([0.70, 0.92], [0.76, 0.78], False),  # ahead by less than its own deviation
        ([0.90], [0.76], False),  # of one seed nothing is known of the spread
    ],
)
def test_the_best_is_bold_only_beyond_the_spread(
    tmp_path: Path, first: list[float], second: list[float], bold: bool
) -> None:
    for strategy, values in (("flic", first), ("ifca", second)):
        for seed, value in enumerate(values):
            _run(tmp_path / f"{strategy}{seed}", {"strategy": strategy, "seed": seed}, value)
    comparison = _compared(tmp_path)
    assert [row.values for row in comparison.best("accuracy")] == ([("flic",)] if bold else [])
    assert ("**" in "".join(markdown(comparison, "x"))) is bold
    assert comparison.best("silhouette") == set()  # each in a similarity of its own
    assert comparison.best("count") == set()  # more communities are neither better nor worse


def test_rows_of_other_seeds_show_theirs_and_are_not_ranked(tmp_path: Path) -> None:
    for strategy, value, seeds in (("flic", 0.9, (0, 1)), ("ifca", 0.5, (2, 10))):
        for seed in seeds:
            _run(tmp_path / f"{strategy}{seed}", {"strategy": strategy, "seed": seed}, value)
    comparison = _compared(tmp_path)
    assert comparison.best("accuracy") == set()
    lines = markdown(comparison, "x")
    assert [line.split(" | ")[:3] for line in lines[-4:]] == [
        ["| strategy", "seeds", "accuracy"],
        ["| ---", "---", "---"],
        ["| flic", "0, 1", "0.900 ± 0.000"],
        ["| ifca", "2, 10", "0.500 ± 0.000"],
    ]
    assert "Mean and standard deviation over the seeds of each row" in "".join(lines)
    assert r"\begin{tabular}{llrrr" in to_latex(comparison)
    assert '<th scope="col">seeds</th>' in page(comparison, "x", [])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.25, "0.250 ± 0.000"), (1.64e-4, "0.00016 ± 0.00000"), (3e-9, "3.0e-09 ± 0.0e+00")],
)
def test_a_small_number_of_no_usual_size_is_no_0(value: float, shown: str, tmp_path: Path) -> None:
    for seed in (0, 1):
        _run(tmp_path / f"{seed}", {"seed": seed}, 0.5)
        path = tmp_path / f"{seed}" / "summary.json"
        found = json.loads(path.read_text()) | {"metrics": {"mse": {"mean": value}}}
        path.write_text(json.dumps(found))
    assert markdown(_compared(tmp_path), "x")[-1].endswith(f" {shown} |")


def test_many_settings_are_one_column_before_the_measures_and_have_no_figures(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for number in range(9):
        given = {"strategy": "flic" if number % 2 else "ifca", f"client.setting_{number}": 1}
        _run(tmp_path / str(number), given, 0.5)
    comparison = _compared(tmp_path)
    assert tables.heads(comparison)[:3] == ["strategy", "settings", "accuracy"]
    assert tables.body(comparison, str)[1][:3] == ["flic", "client.setting_1=1", "0.500"]
    text = write([tmp_path], tmp_path)[0].read_text()
    assert "<h1>9 combinations of 10 settings, 9 runs</h1>" in text
    assert "because the runs differ in more than 6 settings" in text
    assert "<svg" not in text
    assert not recwarn.list
    (first, *_) = csv.DictReader((tmp_path / "compare.csv").open())
    assert (first["client.setting_0"], first["client.setting_1"]) == ("1", "default")


def test_labels_name_what_differs_from_the_default_in_lines_that_fit(tmp_path: Path) -> None:
    for number in range(5):
        given = {"strategy": "flic", f"client.a_setting_with_a_name_{number}": 1}
        _run(tmp_path / str(number), given, 0.5)
    long = {f"client.a_setting_with_a_name_{n}": 1 for n in range(3)}
    _run(tmp_path / "more", {"strategy": "ifca"} | long, 0.5)
    figure = courses(_compared(tmp_path), "accuracy")
    assert figure is not None
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "a_setting_with_a_name_0=1"
    assert titles[-1] == "\n".join(f"a_setting_with_a_name_{n}=1" for n in range(3))


def test_a_label_has_the_option_of_a_group_and_the_name_of_any_other_setting() -> None:
    keys = ("strategy", "rounds", "privacy.epsilon", "fallback")
    assert label_of(keys, ("ifca", "5", "2", "default")) == "ifca rounds=5 epsilon=2"
    assert label_of(keys, ("default", "default", "default", "true")) == "fallback=true"
    assert label_of(keys, ("default",) * 4) == "default"
    assert label_of((), ()) == "all"
    tree = OmegaConf.load(CONF / "config.yaml")
    at_top = {key for key, value in tree.items() if not isinstance(value, DictConfig | ListConfig)}
    assert at_top - {"seed"} == set(SCALARS)


def test_methods_are_compared_inside_a_setting(tmp_path: Path) -> None:
    comparison = _compared(_sweep(tmp_path))
    assert comparison.method == ("strategy",)
    assert comparison.setting == ("population.share",)
    best = {row.values for row in comparison.best("accuracy")}
    assert best == {("flic", "0.3"), ("flic", "0.7")}
    assert comparison.name(comparison.rows[0], comparison.setting) == "share=0.3"


def test_a_page_may_choose_measures_and_set_a_papers_numbers_beside_them(tmp_path: Path) -> None:
    jobs = read_jobs([_sweep(tmp_path)]).jobs
    columns = {"paper": {"strategy": {"flic": "0.99"}}}
    assert "average" not in aggregate(jobs).measures
    assert aggregate(jobs, measures=["average"]).rows[0].cells["average"].mean == pytest.approx(
        0.75 * 0.74  # half the accuracy first, then all of it
    )
    comparison = aggregate(jobs, measures=["accuracy"])
    lines = markdown(comparison, "x", title="Two methods", text="Why.", columns=columns)
    assert lines[:3] == ["# Two methods", "", "Why."]
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[0] == "| strategy | population.share | accuracy | paper |"
    assert rows[2].endswith("| 0.99 |")
    assert rows[4].endswith("|  |")


def test_only_completed_runs_count_and_a_run_done_twice_counts_once(tmp_path: Path) -> None:
    _run(tmp_path / "1", {"strategy": "flic", "rounds": 3, "seed": 0}, 0.1)
    _run(tmp_path / "2", {"seed": 0, "rounds": 3, "strategy": "flic"}, 0.9)
    _run(tmp_path / "3", {"strategy": "ifca", "seed": 0}, 0.2, status="interrupted")
    (tmp_path / "4").mkdir()
    History(tmp_path / "4")  # still going: no summary yet
    (tmp_path / "5").mkdir()
    History(tmp_path / "5")
    (tmp_path / "5" / "summary.json").write_text("{}")
    jobs, others, _ = read_jobs([tmp_path])
    assert [job.measured["accuracy"] for job in jobs] == [0.9]
    assert [path.name for path in others] == ["3", "4", "5"]


def test_runs_whose_scores_are_of_others_are_several(tmp_path: Path) -> None:
    given = [{}, {"records.evaluate_at_most": 2}, {"records.evaluate_every": 9}]
    ignored = {"records.figures": False, "++engine.workers": 1, "records.snapshots": 0}
    for number, each in enumerate([*given, ignored]):
        _run(tmp_path / f"{number}", {"seed": 0} | each, 0.5)
    jobs = read_jobs([tmp_path]).jobs
    assert [job.folder.name for job in jobs] == ["3", "1", "2"]


def test_a_run_that_did_not_complete_is_named_by_what_is_its_own(tmp_path: Path) -> None:
    rate = "client.learning_rate"
    for seed in (0, 1):
        _run(tmp_path / f"{seed}", {"seed": seed, "rounds": 3, rate: 0.1}, 0.9)
    _run(tmp_path / "2", {"seed": 1, "rounds": 3, rate: 1e8}, 0.1, status="failed")
    assert "learning_rate" in _table(tmp_path).rpartition("Did not complete: ")[2]
    assert "rounds" not in _table(tmp_path).rpartition("Did not complete: ")[2]


def _table(folder: Path, page: str | None = None, text: str = "") -> str:
    """Return the table that a sweep writes, without its command."""
    options = {"page": page, "title": "A sweep", "text": text, "columns": None, "measures": None}
    hydra = {"sweep": {"dir": str(folder)}}
    WriteTable(**options).on_multirun_end(OmegaConf.create({"hydra": hydra}))
    return (folder / "table.md").read_text()


def test_the_page_of_a_sweep_names_the_command_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(tmp_path / "0", {"strategy": "flic"}, 0.5)
    monkeypatch.setattr(sys, "argv", ["fl-app", "--multirun", "seed=0", "data.root=/x"])
    _table(tmp_path)
    told = "Written by <code>fl-app --multirun seed=0 data.root=&lt;data&gt;</code>."
    assert told in (tmp_path / "compare.html").read_text()


def test_findings_of_an_experiments_page_are_not_told_of_other_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    _run(tmp_path / "0", {"strategy": "flic"}, 0.5)
    page = tmp_path / "page.md"
    table = _table(tmp_path, str(page), "FLIC finds all.")
    assert table.startswith("# A sweep\n\nWritten by")
    assert "FLIC finds all." not in capsys.readouterr().out
    assert page.read_text() == table.replace("\n\n", "\n\nFLIC finds all.\n\n", 1)


def test_the_page_of_a_comparison_names_its_folders_without_private_paths(tmp_path: Path) -> None:
    for name in ("a<b", "c"):
        _run(tmp_path / name, {"strategy": "flic"}, 0.5)
    told = write([tmp_path / "a<b", tmp_path / "c"], tmp_path / "page")[0].read_text()
    assert "<p>Comparison of the runs in <code>a&lt;b</code>, <code>c</code>. Seed" in told
    assert "fl-app compare" not in told
    assert str(tmp_path) not in told


def test_dollars_in_settings_are_no_mathematics(tmp_path: Path) -> None:
    labels = (r"$\nope$", "$a$")
    for number, label in enumerate(labels):
        for rate in (1, 2):
            _run(tmp_path / f"{number}{rate}", {"data.label": label, "client.epochs": rate}, 0.5)
    assert "No run has" not in _table(tmp_path)
    assert (tmp_path / "table.png").exists()
    assert "<tspan" not in (tmp_path / "compare.html").read_text()  # parts of a formula


def test_runs_whose_settings_are_unknown_are_excluded_and_never_merged(tmp_path: Path) -> None:
    for name, rounds in (("1", 3), ("2", 6), ("3", 6)):
        _run(tmp_path / name, {"strategy": "ifca", "rounds": rounds}, 0.5)
    for name in ("1", "2"):
        (tmp_path / name / "overrides.yaml").unlink()
    found = read_jobs([tmp_path])
    assert [job.folder.name for job in found.jobs] == ["3"]
    assert [folder.name for folder in found.unknown] == ["1", "2"]
    told = "2 runs are excluded because they have no overrides.yaml (1, 2)."
    assert told in write([tmp_path], tmp_path)[0].read_text()
    with pytest.raises(ValueError, match=r"1 run is excluded because it has no overrides.yaml"):
        compare([str(tmp_path / "1")])


def test_curves_are_drawn_over_the_numbers_with_a_line_per_method(tmp_path: Path) -> None:
    figure = curves(read_jobs([_sweep(tmp_path)])[0])
    assert figure is not None
    top = figure.axes[0]
    assert [line.get_label() for line in top.get_lines()] == ["flic", "ifca"]
    np.testing.assert_allclose(top.get_lines()[0].get_xdata(), [0.3, 0.7])
    np.testing.assert_allclose(top.get_lines()[0].get_ydata(), [0.74, 0.78])


def test_a_method_without_the_number_has_no_point_there(tmp_path: Path) -> None:
    _sweep(tmp_path)
    _run(tmp_path / "plain", {"strategy": "fedavg", "privacy": "none", "rounds": 2}, 0.5)
    figure = curves(read_jobs([tmp_path])[0])
    assert figure is not None
    top = figure.axes[0]
    points = {line.get_label(): list(line.get_xdata()) for line in top.get_lines()}
    assert points == {"flic": [0.3, 0.7], "ifca": [0.3, 0.7], "fedavg": []}


def test_courses_share_axes_and_show_the_mean_of_the_seeds(tmp_path: Path) -> None:
    comparison = _compared(_sweep(tmp_path))
    figure = courses(comparison, "accuracy")
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == ["share=0.3", "share=0.7"]
    flic, ifca = figure.axes[0].get_lines()
    assert (flic.get_label(), ifca.get_label()) == ("flic", "ifca")
    np.testing.assert_allclose(flic.get_ydata(), [0.37, 0.74])
    assert courses(comparison, "ari") is None
    ends = endings(comparison)
    assert ends is not None
    np.testing.assert_allclose(ends.axes[0].get_lines()[0].get_xdata(), [0.73, 0.75])


def test_a_setting_in_which_no_method_has_the_measure_has_an_empty_panel(tmp_path: Path) -> None:
    jobs = [
        replace(job, courses=job.courses | {"ari": {1: 0.5, 2: 1.0}})
        if job.overrides["population.share"] == "0.3"
        else job
        for job in read_jobs([_sweep(tmp_path)])[0]
    ]
    figure = courses(aggregate(jobs), "ari")
    assert figure is not None
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 0]
    assert figure.axes[1].get_ylim() == (-0.02, 1.04)


@pytest.mark.parametrize(("measure", "first", "second"), [("count", 1, 12), ("ari", -0.3, 0.5)])
def test_panels_have_one_range_with_the_lines_of_all(
    measure: str, first: float, second: float, tmp_path: Path
) -> None:
    jobs = [
        replace(job, courses=job.courses | {measure: dict.fromkeys((1, 2), value)})
        for job in read_jobs([_sweep(tmp_path)])[0]
        for value in [first if job.overrides["population.share"] == "0.3" else second]
    ]
    figure = courses(aggregate(jobs), measure)
    assert figure is not None
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert low <= min(first, 0)
        assert high >= second


def test_the_page_says_which_of_many_settings_have_panels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        replace(job, courses=job.courses | {"ari": {1: 0.5, 2: 1.0}})
        if job.overrides["population.share"] == "0.7"
        else job
        for job in read_jobs([_sweep(tmp_path)])[0]
    ]
    assert "There are panels" not in page(aggregate(jobs), "x", [])
    monkeypatch.setattr(figures, "MOST_PANELS", 1)
    told = "There are panels for the first 1 of 2 settings. The table has all."
    assert told in page(aggregate(jobs), "x", [])
    assert courses(aggregate(jobs), "ari") is None  # only the other setting has it


def test_methods_that_only_one_setting_has_keep_their_names_at_the_end(tmp_path: Path) -> None:
    _run(tmp_path / "a", {"strategy": "flic", "rounds": 40}, 0.9)
    _run(tmp_path / "b", {"strategy": "fedavg", "rounds": 5}, 0.6)
    figure = endings(_compared(tmp_path))
    assert figure is not None
    named = figure.axes[0].get_yticklabels()  # beside the first panel, for all
    for axes, method in zip(figure.axes, ("flic", "fedavg"), strict=True):
        (place,) = np.asarray(axes.get_lines()[0].get_ydata())
        assert named[int(place)].get_text() == method


def test_one_run_has_nothing_that_varies(tmp_path: Path) -> None:
    _run(tmp_path / "0", {"strategy": "flic"}, 0.5)
    jobs = read_jobs([tmp_path]).jobs
    assert varied(jobs) == ()
    assert curves(jobs) is None
    assert aggregate(jobs).best("accuracy") == set()


def test_a_setting_that_a_method_lacks_is_no_default(tmp_path: Path) -> None:
    for name, own in (("flic", {"strategy.cluster_round": 4}), ("late", {}), ("fedavg", {})):
        _run(tmp_path / name, {"strategy": name} | own, 0.5)
        settings = {} if name == "fedavg" else {"cluster_round": 20}
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump({"strategy": settings}))
    _run(tmp_path / "old", {"strategy": "ifca"}, 0.5)  # without a configuration nothing is known
    comparison = _compared(tmp_path)
    lines = markdown(comparison, "x")[-4:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| fedavg", "-"],
        ["| flic", "4"],
        ["| late", "default"],
        ["| ifca", "default"],
    ]
    rows = csv.DictReader(to_csv(comparison).splitlines())
    assert [row["strategy.cluster_round"] for row in rows] == ["", "4", "default", "default"]
    assert "<td>-</td>" in page(comparison, "x", [])


def test_captions_tell_of_a_spread_only_over_several_seeds(tmp_path: Path) -> None:
    several = page(_compared(_sweep(tmp_path / "several")), "x", [])
    assert several.count("over the rounds: mean and standard deviation over the seeds.<") == 1
    assert "at the end: one marker per seed, a bar at the mean.<" in several
    for number, strategy in enumerate(("flic", "ifca")):
        _run(tmp_path / "one" / str(number), {"strategy": strategy}, 0.5)
    alone = page(_compared(tmp_path / "one"), "x", [])
    assert "Accuracy over the rounds.<" in alone
    assert "Accuracy at the end.<" in alone


def test_the_rule_of_bold_values_stands_only_where_one_is_bold(tmp_path: Path) -> None:
    told = _compared(_sweep(tmp_path / "several"))
    assert "% Bold: the best value" in to_latex(told)
    assert tables.RULE in page(told, "x", [])
    for number, strategy in enumerate(("flic", "ifca")):
        _run(tmp_path / "one" / str(number), {"strategy": strategy}, 0.5 + number / 10)
    alone = _compared(tmp_path / "one")
    assert "Bold" not in to_latex(alone)
    assert tables.RULE not in page(alone, "x", [])


def test_csv_has_the_numbers_and_latex_the_table(tmp_path: Path) -> None:
    comparison = _compared(_sweep(tmp_path))
    first, *_ = csv.DictReader(to_csv(comparison).splitlines())
    assert (first["strategy"], first["population.share"], first["seeds"]) == ("flic", "0.3", "0 1")
    assert float(first["accuracy_mean"]) == pytest.approx(0.74)
    assert float(first["accuracy_std"]) == pytest.approx(0.01)
    assert first["accuracy_runs"] == "2"
    latex = to_latex(comparison)
    assert r"flic & 0.3 & \textbf{0.740 $\pm$ 0.010} & 0.500 $\pm$ 0.000" in latex
    assert latex.count(r"\\") == 1 + 4


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.bold: list[str] = []
        self.outside: list[str] = []
        self.panels = 0
        self._in_bold = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_bold = tag == "b"
        self.panels += tag == "svg"
        links = [value for name, value in attrs if name in ("src", "href", "xlink:href") and value]
        self.outside += [link for link in links if not link.startswith("#")]

    def handle_data(self, data: str) -> None:
        if self._in_bold:
            self.bold.append(data)
            self._in_bold = False


def test_the_page_stands_alone(tmp_path: Path) -> None:
    paths = write([_sweep(tmp_path / "runs")], tmp_path / "out")
    assert [path.name for path in paths] == ["compare.html", "compare.csv", "compare.tex"]
    text = paths[0].read_text()
    page = _Links()
    page.feed(text)
    assert page.outside == []
    assert page.panels == 3
    assert page.bold == ["0.740 ± 0.010", "0.780 ± 0.010"]
    assert str(tmp_path) not in text
    assert len(text) < 500_000


def test_a_metric_that_only_some_runs_have_leaves_the_others_cells_empty(tmp_path: Path) -> None:
    for number, strategy in enumerate(("flic", "ifca")):
        _run(tmp_path / str(number), {"strategy": strategy, "population.share": number}, 0.5)
    file = tmp_path / "0" / "summary.json"
    told = json.loads(file.read_text()) | {"metrics": {"f1": {"mean": 0.25, "std": 0.0}}}
    file.write_text(json.dumps(told))
    (page, *_) = write([tmp_path], tmp_path / "page")
    assert page.read_text().count("0.25") >= 1
    rows = list(csv.DictReader((tmp_path / "page" / "compare.csv").open()))
    assert {row["strategy"]: row["metric.f1_mean"] for row in rows} == {"flic": "0.25", "ifca": ""}
    assert curves(read_jobs([tmp_path])[0]) is not None


def test_a_metric_has_a_course_of_the_runs_that_have_it(tmp_path: Path) -> None:
    for seed, strategy in enumerate(("flic", "ifca", "fedavg")):
        folder = tmp_path / strategy
        _run(folder, {"strategy": strategy}, 0.5)
        if strategy == "fedavg":
            continue
        told = json.loads((folder / "summary.json").read_text())
        metrics = {"mae": {"mean": 1.5 + seed, "std": 0.0}}
        (folder / "summary.json").write_text(json.dumps(told | {"metrics": metrics}))
        rounds = [
            each | {"accuracy": None, "metrics": {"mae": {"mean": seed - 0.5 * each["round"]}}}
            for each in read_rounds(folder)
        ]
        History(folder, rounds)
    comparison = _compared(tmp_path)
    figure = courses(comparison, "metric.mae")
    assert figure is not None
    (axes,) = figure.axes
    assert [line.get_ydata().tolist() for line in axes.get_lines()] == [[-0.5, -1.0], [0.5, 0.0]]
    assert axes.get_ylim()[0] < -1.0  # a metric can be negative, unlike a number of communities
    assert axes.get_ylabel() == "mae, mean over clients"
    assert "A metric of the task over the rounds" in page(comparison, "", [])


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        compare([str(tmp_path / "nowhere")])
    empty, failed = tmp_path / "empty", tmp_path / "failed"
    empty.mkdir()
    with pytest.raises(ValueError, match=rf"got none in {empty}; .*They have no run\."):
        compare([str(empty)])
    _run(failed, {"seed": 0}, 0.5, status="failed")
    with pytest.raises(ValueError, match=rf"got none in {failed}; .*it did not complete\."):
        compare([str(failed)])
    with pytest.raises(ValueError, match="usage: fl-app compare"):
        compare([])


def test_newcomers_points_and_privacy_are_measured_where_a_run_has_them() -> None:
    joined = {"kind": "joined", "clients": [3, 4]}
    rounds = [
        dict.fromkeys(FIELDS) | {"sampled": [], "bytes": {"down": 0, "up": 0}, "events": each}
        for each in ([joined], [])
    ]
    rounds[1] |= {
        "communities": {"settled": {"3": {"kind": "joined", "rounds": 2}}},
        "notes": {"distance": 0.5, "v_measure": 0.75},
        "central": {"global": 0.4, "communities": [0.25, 0.5]},
        "privacy": {"epsilon": {"max": 8.0}, "noise_multiplier": 1.1},
        "round": 2,
    }
    rounds[1]["communities"]["right"] = False
    nothing = dict.fromkeys(["ari", "silhouette", "count"])
    found = measured({"accuracy": {"mean": None}, "communities": nothing}, rounds)
    assert (found["joined_rounds"], found["joined_share"]) == (2.0, 0.5)
    assert (found["drifted_rounds"], found["drifted_share"]) == (None, None)
    assert (found["distance"], found["v_measure"], found["completeness"]) == (0.5, 0.75, None)
    assert (found["epsilon"], found["noise"]) == (8.0, 1.1)
    assert (found["central"], found["central_communities"]) == (0.4, 0.375)


def test_a_run_without_noise_has_an_infinite_epsilon_in_every_table(tmp_path: Path) -> None:
    for number, (strategy, seed, most) in enumerate(
        [("flic", 0, None), ("flic", 1, None), ("ifca", 0, 2.0), ("ifca", 1, 4.0)]
    ):
        folder = tmp_path / str(number)
        _run(folder, {"strategy": strategy, "seed": seed}, 0.5)
        privacy = {"epsilon": {"max": most}, "noise_multiplier": 0.0 if most is None else 1.5}
        rounds = read_rounds(folder)
        rounds[-1] |= {"privacy": privacy}
        (folder / "rounds.jsonl").unlink()
        History(folder, rounds)
    comparison = _compared(tmp_path)
    lines = markdown(comparison, "scripts/run")
    assert [line.split(" | ")[-2] for line in lines if line.startswith("| ")] == [
        "epsilon spent", "---", "infinite", "3.00 ± 1.00",
    ]  # fmt: skip
    rows = list(csv.DictReader(to_csv(comparison).splitlines()))
    assert [(row["epsilon_mean"], row["epsilon_std"], row["epsilon_runs"]) for row in rows] == [
        ("inf", "", "2"), ("3.0", "1.0", "2"),
    ]  # fmt: skip
    assert "& infinite &" in to_latex(comparison)
    assert '<td class="number">infinite</td>' in page(comparison, "", [])


@pytest.mark.parametrize(
    "name", ["ifca", "communities-of-a-long-name and=more letters in=a third line"]
)
def test_numbers_and_names_beside_narrow_panels_stand_apart(tmp_path: Path, name: str) -> None:
    ends = (0.703, 0.897)  # with numbers at both edges of each panel: 0.7 and 0.9
    for number, (share, seed, strategy) in enumerate(
        product((0.3, 0.7), (0, 1), ("flic", "fedavg", name))
    ):
        overrides = {"strategy": strategy, "population.share": share, "seed": seed}
        _run(tmp_path / str(number), overrides, ends[seed])
    figure = endings(_compared(tmp_path))
    assert figure is not None
    figure.draw_without_rendering()
    across = []
    for axes in figure.axes:
        low, high = axes.get_xlim()
        shown = [each for each in axes.get_xticklabels() if low <= each.get_position()[0] <= high]
        assert len(shown) > 1
        across += [each.get_window_extent() for each in shown]
    gaps = [right.x0 - left.x1 for left, right in pairwise(across)]
    assert min(gaps) > 0.15 * figure.dpi
    down = [each.get_window_extent() for each in figure.axes[0].get_yticklabels()]
    assert len(down) == 3
    assert min(upper.y0 - lower.y1 for upper, lower in pairwise(down)) > 0.05 * figure.dpi
