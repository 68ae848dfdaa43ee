"""The page of a run: what it says, from records made by hand; how it looks is another file's."""

import json
import re
import shlex
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import yaml

from fl_app.evaluation.ranks import worst_decile
from fl_app.main import main
from fl_app.records.history import FIELDS, History
from fl_app.records.snapshot import Snapshot, spread, write_snapshot
from fl_app.report.page import answers, events, run_records, write_page
from fl_app.report.page.cells import cells
from fl_app.report.page.clients import client_table, community_rows, ranges, replies
from fl_app.report.page.curves import accuracy
from fl_app.report.page.frames import frames
from fl_app.report.page.look import COMMUNITIES, DARK, GROUND, REMOVED
from fl_app.report.page.metrics import metrics
from fl_app.report.page.run_records import RunRecords, read_records
from fl_app.report.page.seconds import how, time_parts
from fl_app.report.page.write import FIGURES

TIME = {"total_s": 1.0, "training_s": 0.6, "server_s": 0.1, "evaluation_s": 0.3, "clients_s": 0.9}
MOVES = {
    1: {"0": [None, 4], "1": [None, 4], "2": [None, 7], "3": [None, 7], "4": [None, 7]},
    3: {"1": [4, 7]},
}
SCORES = {
    2: [0.5, 0.5, 0.6, 0.4, 0.2],
    4: [0.9, 0.8, 0.9, 0.7, 0.1],
}
EVENTS = {
    2: [{"kind": "clustered", "detail": "2 communities", "clients": [], "right": None}],
    3: [
        {"kind": "removed", "detail": "alpha 0.1 of cluster 0: [4]", "clients": [4], "right": True}
    ],
    4: [{"kind": "left", "detail": "clients [3]", "clients": [3], "right": None}],
}


REJECTED = {
    3: {"0": "evaluation: accuracy must be a number in 0..1, got 7", "node 77": "introduction: no"},
    4: {"4": "num_examples must be an integer in 1..9, got 10"},
}


def record(number: int) -> dict[str, Any]:
    scores = SCORES.get(number)
    measured = scores and {
        "mean": float(np.mean(scores)),
        "std": 0.1,
        "clients": {str(client): score for client, score in enumerate(scores)},
    }
    found = dict.fromkeys(("ari", "pure_share", "majority_purity", "silhouette", "modularity"), 0.5)
    return dict.fromkeys(FIELDS) | {
        "round": number,
        "sampled": [0, 1, 2] if number % 2 else [2, 3, 4],
        "failed": {"2": "lost", "3": "evaluation: lost"} if number == 4 else {},
        "rejected": REJECTED.get(number, {}),
        "dominance": {"1": 0.75} if number == 2 else {},
        "odd_updates": {"1": 4.0} if number == 3 else {"3": 0.25, "4": 5.5},
        "accuracy": measured,
        "communities": found | {"count": 2, "right": False, "moved": MOVES.get(number, {})},
        "events": EVENTS.get(number, []),
        "notes": {"alpha_cross": {"0": 0.1 * number}},
        "attack": {"loyal_accuracy": 0.8, "recall": 1.0, "precision": 0.5, "success": None},
        "time": TIME,
        "privacy": {"epsilon": {"clients": {"0": 0.5 * number}}},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run of five clients: 1 changes its community, 4 is removed, 3 leaves."""
    History(tmp_path, [record(number) for number in range(1, 5)])
    config = {"seed": 3, "rounds": 4, "strategy": {"_target_": "fl_app.strategies.cfl.Cfl"},
              "graph": {"benign": "largest"}}  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "overrides.yaml").write_text(yaml.safe_dump(["strategy=cfl", "data.root=a b"]))
    for number, value in ((1, 1.0), (2, 1.0), (4, 1.5)):
        matrix = np.full((5, 5), value) - value * np.eye(5)
        labels = np.array([0, 0, 1, 1, 1]) if number < 4 else np.array([0, 1, 1, 1, 2])
        groups = np.array([0, 0, 1, 1, 1])
        write_snapshot(
            tmp_path, round=number, ids=np.arange(5), similarity=matrix, labels=labels,
            groups=groups,
        )  # fmt: skip
    return tmp_path


@pytest.fixture
def records(folder: Path) -> RunRecords:
    return read_records(folder)


def test_a_finished_run_numbers_communities_as_its_summary_and_models_do(folder: Path) -> None:
    found = {"communities": {"assignment": {"0": 0, "1": 2, "2": 2, "3": 2, "4": 3}}}
    run = RunRecords("run", read_records(folder).run, {"status": "completed"} | found, None)
    assert run.members[1] == {0: 0, 1: 0, 2: 2, 3: 2, 4: 2}
    assert run.final == {0: 0, 1: 2, 2: 2, 3: 2, 4: REMOVED}
    assert [row["name"] for row in community_rows(run)] == ["2", "0", "removed"]


def test_the_command_is_that_with_which_the_run_was_started(folder: Path) -> None:
    assert read_records(folder).command == "fl-app strategy=cfl 'data.root=a b'"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    written = yaml.safe_dump(config | {"records": {"started_by": None}})
    (folder / "config.yaml").write_text(written)
    (word,) = shlex.split(read_records(folder).command or "")[-1:]
    assert word == """overrides="strategy=cfl 'data.root=a b'\""""
    (folder / "overrides.yaml").unlink()
    assert read_records(folder).command is None


def test_communities_are_ranked_by_size_and_the_removed_stand_apart(records: RunRecords) -> None:
    assert records.members[1] == {0: 1, 1: 1, 2: 0, 3: 0, 4: 0}
    assert records.members[4] == {0: 1, 1: 0, 2: 0, 3: 0, 4: REMOVED}
    rows = community_rows(records)
    assert [(row["name"], row["clients"], row["members"]) for row in rows] == [
        ("0", 3, "1\N{EN DASH}3"), ("1", 1, "0"), ("removed", 1, "4"),
    ]  # fmt: skip
    assert rows[0]["groups"] == "0: 1, 1: 2"
    assert rows[0]["before"] == pytest.approx(0.5)
    assert rows[0]["after"] == pytest.approx(0.8)
    assert rows[0]["worst"] == 0.7


def test_a_row_tells_what_became_of_a_client(records: RunRecords) -> None:
    table = client_table(records)
    keys = [column["key"] for column in table["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in table["rows"]]
    assert rows[4] == {
        "client": 4, "community": "removed", "group": 1, "before": 0.2, "after": 0.1,
        "gain": pytest.approx(-10), "trained": 1, "lost": 1,
        "rejected": "num_examples must be an integer in 1..9, got 10", "odd": 3, "out": 3,
        "why": "alpha 0.1 of cluster 0", "epsilon": None,
    }  # fmt: skip
    assert (rows[3]["out"], rows[3]["why"]) == (4, "left")
    assert (rows[2]["trained"], rows[2]["lost"]) == (3, 1)
    assert (rows[3]["trained"], rows[3]["lost"]) == (2, 0)  # only its evaluation was lost
    assert rows[0]["epsilon"] == 2.0
    assert rows[0]["rejected"].startswith("evaluation: accuracy")
    assert rows[0]["lost"] == 0  # a score is no training


def test_one_of_a_kind_has_a_singular_noun(records: RunRecords) -> None:
    first = records.run.rounds[0] | {"rejected": {"1": "no number"}}
    run = replace(records.run, rounds=[first], config=records.run.config | {"rounds": 1})
    one = replace(records, run=run)
    assert answers.progress(one).startswith("Still running, or killed: 1 of 1 round, in")
    assert "1 reply was rejected; see the table of clients." in answers.did_it_work(one)


def test_large_odd_updates_are_written_as_numbers_without_an_exponent(
    records: RunRecords,
) -> None:
    rounds = [each | {"odd_updates": {"1": 456.7}} for each in records.run.rounds]
    told = answers.did_it_work(replace(records, run=replace(records.run, rounds=rounds)))[-1]
    assert told.endswith("these updates have 456.7 to 456.7 times the usual norm.")


def test_a_run_that_failed_says_why(records: RunRecords) -> None:
    failed = replace(records, summary={"status": "failed", "ended": "RuntimeError: no <b>."})
    assert answers.progress(failed) == (
        "Failed after 4 of 4 rounds, in 4.0 s. The reason: RuntimeError: no <b>."
    )


def test_the_answers_are_those_of_the_records(records: RunRecords) -> None:
    assert answers.progress(records) == ("Still running, or killed: 4 of 4 rounds, in 4.0 s.")
    found = answers.did_it_work(records)
    assert found[0] == (
        "The mean accuracy over the clients is 68.0% (round 4); before the first split it was "
        "44.0% (round 2). The mean accuracy of the worst tenth of the clients is 10.0%."
    )
    assert found[1] == (
        "2 communities after round 4, 1 client removed; agreement with the 2 planted groups: ARI "
        "0.50."
    )
    assert found[2].startswith("Detection of malicious clients: recall 100%, precision 50%.")
    assert "The server assumes as loyal: the largest community." in found[2]
    assert found[3].startswith(
        "2 replies failed and 3 replies were rejected, 2 of them in evaluations;"
    )
    assert found[4] == "Client 1 had up to 75% of the weight of its community."
    assert found[5] == (
        "Clients with odd updates in at least half of their rounds: 1, 3\N{EN DASH}4; these "
        "updates have 0.25 to 5.5 times the usual norm."
    )


def test_the_summary_tells_the_groups_of_clients_that_no_snapshot_has(
    records: RunRecords,
) -> None:
    assert community_rows(records)[0]["groups"] == "0: 1, 1: 2"
    told = {"clients": {"groups": {"0": 2, "1": 1, "2": 0, "3": 0, "4": 0}}}
    without = replace(records.run, snapshots=[], config={"population": {"groups": 3}})
    ended = replace(records, run=without, summary={"status": "completed"} | told)
    assert community_rows(ended)[0]["groups"] == "0: 2, 1: 1"
    table = client_table(ended)
    place = [column["key"] for column in table["columns"]].index("group")
    assert [row[place] for row in table["rows"]] == [2, 1, 0, 0, 0]


def test_the_page_tells_what_the_fallback_made_of_the_communities(records: RunRecords) -> None:
    told = {
        2: {"kind": "kept", "detail": "3 communities are better"},
        4: {"kind": "fell back", "detail": "3 of 9 clients fell back", "clients": [4, 5, 7]},
    }
    rounds = [
        each | {"events": [told[each["round"]]]} if each["round"] in told else each
        for each in records.run.rounds
    ]
    fallen = replace(records, run=replace(records.run, rounds=rounds))
    assert (
        "By the clients' validation in round 2, 3 communities are better. By the clients' "
        "validation in round 4, 3 of 9 clients fell back: 4\N{EN DASH}5, 7."
    ) in answers.did_it_work(fallen)
    assert not any("validation" in each for each in answers.did_it_work(records))
    marks = {trace["name"]: trace["text"] for trace in events.strip(rounds, axis="y2")[0]}
    assert marks["fell back"] == ["clients 4\N{EN DASH}5, 7: 3 of 9 clients fell back"]


def test_metrics_are_drawn_in_panels_above_the_events(records: RunRecords) -> None:
    told = {
        name: {"mean": 1.5, "std": 0.5, "clients": {"0": 1.0, "4": 2.0}} for name in ("mae", "r2")
    }
    rounds = [
        each | {"accuracy": None, "metrics": told if each["round"] in (2, 4) else None}
        for each in records.run.rounds
    ]
    found = metrics(replace(records, run=replace(records.run, rounds=rounds)))
    assert found is not None
    drawn = [t for t in found["data"] if t["name"] in ("every client", "mean over clients")]
    assert [(t["yaxis"], t["y"]) for t in drawn] == [
        ("y", [1.0, 1.0, None, 2.0, 2.0, None]), ("y", [1.5, 1.5]),
        ("y2", [1.0, 1.0, None, 2.0, 2.0, None]), ("y2", [1.5, 1.5]),
    ]  # fmt: skip
    assert {t["name"] for t in found["data"] if t["yaxis"] == "y3"} >= {"clustered", "removed"}
    assert not any(t["showlegend"] for t in found["data"] if t["yaxis"] == "y2")
    domains = [found["layout"][name]["domain"] for name in ("yaxis3", "yaxis2", "yaxis")]
    ends = [end for domain in domains for end in domain]
    assert ends == sorted(ends)
    beside = replace(records, run=replace(records.run, rounds=[
        each | {"metrics": told} for each in records.run.rounds
    ]))  # fmt: skip
    both = metrics(beside)
    assert both is not None
    assert "yaxis3" not in both["layout"]  # the events are below the accuracies
    assert metrics(records) is None


def test_a_run_that_has_not_ended_names_its_clients(folder: Path) -> None:
    (folder / "client_names.json").write_text('["ä", "b", "c", "d", "e"]')
    assert community_rows(read_records(folder))[1]["members"] == "0 (ä)"


def test_a_client_that_was_measured_once_is_a_dot(records: RunRecords) -> None:
    figure = accuracy(measured(records, r2={"0": 0.5, "1": 0.25}, r4={"0": 0.75, "3": 1.0}))
    assert figure is not None
    drawn = [trace for trace in figure["data"] if trace["name"] == "every client"]
    assert [(trace["mode"], trace["x"], trace["y"]) for trace in drawn] == [
        ("lines", [2, 4, None], [0.5, 0.75, None]), ("markers", [2, 4], [0.25, 1.0]),
    ]  # fmt: skip
    assert [trace["showlegend"] for trace in drawn] == [True, False]


def test_communities_that_are_right_but_for_a_newcomer_are_not_called_exact(
    records: RunRecords,
) -> None:
    for record in records.run.rounds:
        if record["communities"]:
            record["communities"] |= {"right": True, "ari": 1.0}
    assert "they are exactly the planted groups" in " ".join(answers.did_it_work(records))
    found = {"communities": {"ari": 0.44, "assignment": {"0": 0}}}
    ended = replace(records, summary={"clients": {"total": 5}, **found})
    assert any("planted groups: ARI 0.44." in each for each in answers.did_it_work(ended))


def measured(records: RunRecords, **of_round: dict[str, float] | None) -> RunRecords:
    """Return the records with these accuracies of clients in rounds r1, r2 and so on."""
    rounds = []
    for each in records.run.rounds:
        scores = of_round.get(f"r{each['round']}")
        mean = scores and {"mean": float(np.mean([*scores.values()])), "std": 0.0}
        rounds.append(each | {"accuracy": mean and mean | {"clients": scores}})
    return replace(records, run=replace(records.run, rounds=rounds))


def test_accuracies_are_those_of_the_rounds_that_are_named(records: RunRecords) -> None:
    some = measured(
        records,
        r1={"3": 0.9},
        r2={"0": 0.5, "1": 0.3, "3": 0.7},
        r4={"0": 0.6, "2": 0.8, "4": 1.0},
    )
    assert answers.did_it_work(some)[0] == (
        "The mean accuracy over the clients is 80.0% (round 4; 3 of 4 clients evaluated); over the "
        "1 client measured in both rounds it was 50.0% before the first split (round 2) and 60.0% "
        "in round 4. The mean accuracy of the worst tenth of the clients is 60.0%."
    )
    table = client_table(some)
    keys = [column["key"] for column in table["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in table["rows"]]
    shown = ("before", "after", "gain", "earlier", "seen")
    assert [tuple(row[key] for key in shown) for row in rows] == [
        (0.5, 0.6, pytest.approx(10), None, None),
        (0.3, None, None, 0.3, 2),
        (None, 0.8, None, None, None),
        (0.7, None, None, 0.7, 2),
        (None, 1.0, None, None, None),
    ]
    found = {row["name"]: row for row in community_rows(some)}
    told = ("clients", "left", "before", "after", "measured", "worst")
    assert [found["1"][key] for key in told] == [1, 0, 0.5, 0.6, 1, 0.6]
    assert [found["0"][key] for key in told] == [3, 1, None, 0.8, 1, 0.8]
    assert some.partial


def test_the_table_has_each_clients_metrics_before_and_after(records: RunRecords) -> None:
    told = {1: {"0": 0.5, "1": 2.0}, 3: {"0": 0.25}, 4: {"0": 0.125, "2": 3.0}}
    spread = {"mean": 1.0, "std": 0.0}
    rounds = [
        each | {"accuracy": None, "metrics": {"mae": spread | {"clients": told[each["round"]]}}}
        if each["round"] in told
        else each | {"accuracy": None}
        for each in records.run.rounds
    ]
    table = client_table(replace(records, run=replace(records.run, rounds=rounds)))
    labels = [column["label"] for column in table["columns"]]
    places = [labels.index("mae before (round 1)"), labels.index("mae after (round 4)")]
    values = [[row[place] for place in places] for row in table["rows"]]
    assert values[:3] == [[0.5, 0.125], [2.0, None], [None, 3.0]]
    assert not any("accuracy" in label for label in labels)
    once = replace(records, run=replace(records.run, rounds=rounds[3:]))
    assert "mae" in [column["label"] for column in client_table(once)["columns"]]


def test_k_means_with_one_start_has_no_curve_of_it_and_no_epochs(records: RunRecords) -> None:
    records.run.config.update(
        strategy={"_target_": "fl_app.strategies.central_kmeans.CentralKMeans"},
        network={"_target_": "fl_app.client.networks.centroids"},
        client={"epochs": 5},
    )
    assert "local epochs" not in dict(answers.what_was_run(records))
    for starts, panels in (((1, 1), 1), ((1, 2), 2)):
        rounds = [
            r | {"notes": {"movement": 0.1, "start": start}}
            for r, start in zip(records.run.rounds, starts, strict=False)
        ]
        drawn = FIGURES["notes"](replace(records, run=replace(records.run, rounds=rounds)))
        assert drawn is not None
        assert len(drawn["data"]) == panels


def test_a_single_score_or_distance_of_k_means_shows_nothing_that_cannot_be(
    records: RunRecords,
) -> None:
    told = {"movement": 0.1, "accuracy": 0.9, "v_measure": 1.0, "distance": 0.2, "other": -1.0}
    rounds = [{**records.run.rounds[0], "notes": told}]
    drawn = FIGURES["notes"](replace(records, run=replace(records.run, rounds=rounds)))
    assert drawn is not None
    axes = [drawn["layout"][f"yaxis{number}"] for number in ("", 2, 3, 4, 5)]
    assert [each.get("range") for each in axes] == [None, [-0.02, 1.04], [-0.02, 1.04], None, None]
    assert [each.get("rangemode") for each in axes] == ["tozero", None, None, "tozero", None]


def test_a_release_of_a_sketch_is_no_round_of_training(records: RunRecords) -> None:
    assert replies(records)[0][0] == 2  # rounds 1 and 3
    sketch = {"privacy": {"kind": "sketch", "released": {"0": {}}}}
    rounds = [r | sketch if r["round"] == 3 else r for r in records.run.rounds]
    found = replies(replace(records, run=replace(records.run, rounds=rounds)))[0]
    assert (found[0], found[1]) == (1, 2)


def test_planted_groups_that_masks_hide_are_not_denied(records: RunRecords) -> None:
    hidden = [r | {"communities": r["communities"] | {"ari": None}} for r in records.run.rounds]
    run = replace(records.run, rounds=hidden)
    found = answers.did_it_work(replace(records, run=run))
    assert any(each.endswith("agreement with the 2 planted groups is not known.") for each in found)
    config = {**run.config, "masking": {"_target_": "fl_app.masking.settings.SecAgg"}}
    found = answers.did_it_work(replace(records, run=replace(run, config=config)))
    assert any(
        each.endswith("masks hide the group of each client from the server.") for each in found
    )


def test_points_without_classes_are_judged_by_their_distance(records: RunRecords) -> None:
    rounds = [r | {"notes": {"distance": 0.25 / r["round"]}} for r in records.run.rounds]
    run = replace(records.run, rounds=[r | {"accuracy": None} for r in rounds])
    assert answers.did_it_work(replace(records, run=run))[0] == (
        "The mean squared distance of a point to the nearest centroid is 0.062 (round 4). "
        "There is no accuracy, which needs points with known classes."
    )


def test_one_community_is_no_split(records: RunRecords) -> None:
    alone = {"count": 1}
    rounds = [r | {"communities": r["communities"] | alone} for r in records.run.rounds]
    found = answers.did_it_work(replace(records, run=replace(records.run, rounds=rounds)))
    assert "; before the clustering it was " in found[0]


def test_what_hides_or_keeps_data_is_a_fact_unless_it_is_off(records: RunRecords) -> None:
    names = {"privacy", "personal", "masking"}
    off = {"privacy": "client.privacy.NoPrivacy", "personal": "client.personal.Shared",
           "masking": "masking.settings.Masking"}  # fmt: skip
    run = {key: {"_target_": f"fl_app.{path}"} for key, path in off.items()}
    records.run.config.update(run)
    assert not names & dict(answers.what_was_run(records)).keys()
    private = {"_target_": "fl_app.client.privacy.LocalDp", "epsilon": 2.0, "budget": "round"}
    run = {"privacy": private, "personal": {"_target_": "fl_app.client.personal.Ditto"},
           "masking": {"_target_": "fl_app.masking.settings.SecAgg"}}  # fmt: skip
    records.run.config.update(run)
    found = dict(answers.what_was_run(records))
    assert [found[name] for name in ("privacy", "personal", "masking")] == [
        "LocalDp, epsilon 2 for each round", "Ditto", "SecAgg",
    ]  # fmt: skip


def test_no_accuracy_is_compared_with_that_of_other_clients(records: RunRecords) -> None:
    other = measured(records, r1={"0": 0.2, "1": 0.3}, r4={"2": 0.5})
    text = answers.did_it_work(other)[0]
    assert "; none of these clients was measured before the first split (round 1)." in text
    assert FIGURES["gains"](other) is None


def test_nothing_is_rounded_to_all_or_nothing(records: RunRecords) -> None:
    last = records.run.rounds[-1]
    changed = {
        "attack": last["attack"] | {"recall": 299 / 300, "precision": 1.0},
        "communities": last["communities"] | {"ari": 0.996},
        "metrics": {"error": {"mean": 1.6e-4, "std": 0.0, "clients": {"0": 1.6e-4}}},
        "dominance": {"2": 0.504},
    }
    rounds = [*records.run.rounds[:1], last | changed]
    found = answers.did_it_work(replace(records, run=replace(records.run, rounds=rounds)))
    text = " ".join(found)
    assert "recall 99.7%, precision 100%." in text
    assert "ARI 0.996." in text
    assert "error 0.00016 ± 0.000 (1 client)" in text
    assert "Client 2 had up to 50.4% of the weight" in text
    marks, _ = events.strip(rounds, axis="y")
    (dominant,) = (each for each in marks if each["name"] == "dominant")
    assert dominant["text"] == ["client 2 has 50.4% of the weight of its community"]


def test_who_has_left_or_not_joined_yet_is_not_missed(records: RunRecords) -> None:
    joined = {"kind": "joined", "detail": "", "clients": [4], "right": None}
    rounds = [each | {"events": [*each["events"]]} for each in records.run.rounds]
    rounds[2]["events"].append(joined)
    run = replace(records, run=replace(records.run, rounds=rounds))
    assert [run.present(number) for number in (1, 2, 3, 4)] == [4, 4, 5, 4]
    planned = {"population": {"clients": 7}}
    unheard = replace(run, run=replace(run.run, config=planned))
    assert unheard.present(3) == 7


def test_rejected_replies_and_heavy_clients_are_marked(records: RunRecords) -> None:
    traces, kinds = events.strip(records.run.rounds, axis="y")
    found = {trace["name"]: dict(zip(trace["x"], trace["text"], strict=True)) for trace in traces}
    assert kinds[-2:] == ["rejected", "dominant"]
    assert found["rejected"][3].startswith("client 0: evaluation: accuracy")
    assert found["rejected"][3].endswith("node 77: introduction: no")
    assert found["dominant"] == {2: "client 1 has 75% of the weight of its community"}


def test_time_is_split_by_who_worked(records: RunRecords) -> None:
    # 0.9 s of clients within 0.6 s: two at a time, so 0.45 s of training and 0.15 s of engine
    parts = {name: seconds[0] for name, seconds in time_parts(records).items()}
    assert parts == pytest.approx(
        {"training": 0.45, "measuring": 0.3, "server": 0.1, "engine": 0.15}
    )


def test_time_is_not_split_where_clients_do_not_tell_how_long_they_train(
    records: RunRecords,
) -> None:
    rounds = [each | {"time": TIME | {"clients_s": 0.0}} for each in records.run.rounds]
    hidden = replace(records, run=replace(records.run, rounds=rounds))
    parts = {name: seconds[0] for name, seconds in time_parts(hidden).items()}
    assert parts == {"waiting for replies": 0.6, "measuring": 0.3, "server": 0.1}
    assert "waiting for replies 60%, measuring 30%" in answers.where_time_went(hidden)
    assert "not known" in how(hidden)
    assert "Training is" in how(records)


def test_rounds_that_trained_no_model_are_told_and_not_counted(records: RunRecords) -> None:
    *before, last = records.run.rounds
    skipped = last | {"events": [{"kind": "skipped", "detail": "round 4 has too few replies."}]}
    burnt = replace(records, run=replace(records.run, rounds=[*before, skipped]))
    told = answers.did_it_work(burnt)
    why = f"1 of {len(before) + 1} rounds trained no model, the last because: round 4 has too few"
    assert f"{why} replies." in told
    assert not any("trained no model" in each for each in answers.did_it_work(records))
    assert replies(records)[0] - replies(burnt)[0] == {3: 1}  # the reply that was valid


def test_what_was_released_without_noise_has_spent_no_finite_epsilon(records: RunRecords) -> None:
    nothing = {"privacy": {"epsilon": {"clients": {"0": None}}}}
    rounds = [*records.run.rounds[:-1], records.run.rounds[-1] | nothing]
    table = client_table(replace(records, run=replace(records.run, rounds=rounds)))
    place = [column["key"] for column in table["columns"]].index("epsilon")
    assert table["rows"][0][place] == "Infinity"


def test_plotly_accepts_every_figure(records: RunRecords) -> None:
    rounds = [
        each | {"metrics": {"f1": {"mean": 0.5, "clients": {"0": 0.5, "1": 0.25}}}}
        for each in records.run.rounds
    ]
    measured = replace(records, run=replace(records.run, rounds=rounds))
    made = {name: make(measured) for name, make in FIGURES.items()}
    assert all(made.values())
    shown = frames(records)
    assert [frame["round"] for frame in shown] == [1, 4]  # round 2 is like round 1
    for figure in [*made.values(), *(f[kind] for f in shown for kind in ("matrix", "graph"))]:
        assert figure is not None
        data = [{k: v for k, v in trace.items() if k != "packed"} for trace in figure["data"]]
        go.Figure({"data": data, "layout": figure["layout"]})


def test_the_page_needs_no_network_and_says_how_to_repeat_the_run(folder: Path) -> None:
    page = write_page(folder).read_text()
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "fl-app strategy=cfl &#39;data.root=a b&#39;" in page
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert set(json.loads(found[1])) == {"figures", "frames", "dark", "clients"}
    assert write_page(folder).read_text() == page


def test_a_task_without_accuracy_has_no_columns_for_it(folder: Path) -> None:
    head = '<th scope="col" class="number">accuracy before</th>'
    assert head in write_page(folder).read_text()
    path = folder / "rounds.jsonl"
    lines = [json.loads(line) | {"accuracy": None} for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    page = write_page(folder).read_text()
    assert "accuracy before" not in page
    assert "worst client" not in page


def test_a_run_that_only_began_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("rounds: 9\nstrategy: {_target_: a.Method}\n")
    page = write_page(tmp_path).read_text()
    assert "0 of 9 rounds" in page
    assert "Accuracy has not been measured yet." in page
    (tmp_path / "config.yaml").write_text(
        "rounds: 9\nstrategy: {_target_: a.Method}\nrecords: {evaluate_at_most: 0}\n"
    )
    page = write_page(tmp_path).read_text()
    assert "records.evaluate_at_most=0 lets no client evaluate" in page
    assert "not been measured yet" not in page


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("rounds: 9\n")  # somebody else's
    monkeypatch.setattr("sys.argv", ["fl-app", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "contains no run" in capsys.readouterr().err


def test_many_clients_are_drawn_together() -> None:
    n = 301
    draw = np.random.default_rng(0)
    similarity = draw.uniform(size=(n, n))
    similarity = (similarity + similarity.T) / 2
    groups = np.arange(n) % 2
    ranks = {client: client % 3 for client in range(n)}
    snapshot = Snapshot(1, np.arange(n), similarity.astype(np.float32), groups, groups)
    found = cells(snapshot, ranks, 1, planted=True)
    assert sorted(client for inside in found.members for client in inside) == list(range(n))
    assert len(found.members) <= 153
    for inside, rank in zip(found.members, found.ranks, strict=True):
        assert {ranks[client] for client in inside} == {rank}
    a, b = found.members[0], found.members[-1]
    assert found.similarity[0, -1] == pytest.approx(similarity[np.ix_(a, b)].mean(), rel=1e-5)
    within = [similarity[i, j] for i, j in combinations(a, 2)]
    assert found.similarity[0, 0] == pytest.approx(np.mean(within), rel=1e-5)


def test_many_clients_have_bands_and_counts(
    records: RunRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_records, "FULL_SCALE", 4)
    made = {name: FIGURES[name](records) for name in ("accuracy", "gains", "gain")}
    for each in made.values():
        go.Figure(each)
    bands = {each["name"]: each["y"] for each in made["accuracy"]["data"][:4]}
    assert bands["lowest"] == [0.2, 0.1]
    assert bands["all clients"] == [0.6, 0.9]
    assert bands["lowest tenth"] == [0.28, 0.34]
    (density, _) = made["gains"]["data"]
    assert sum(count or 0 for row in density["z"] for count in row) == 5
    (bars,) = made["gain"]["data"]
    # gains of 40, 30, 30, 30 and -10 points
    counts = {x: y for x, y in zip(bars["x"], bars["y"], strict=True) if y}
    assert counts == {-8.75: 1, 31.25: 3, 41.25: 1}


def test_ids_are_told_in_short() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0\N{EN DASH}2, 5, 7\N{EN DASH}8"
    assert ranges(range(0, 30, 2)).endswith("20, 22 and 3 more")
    assert ranges([]) == ""


def test_the_worst_tenth_of_twelve_clients_are_two_as_in_the_tables(records: RunRecords) -> None:
    scores = [client / 20 for client in range(12)]
    twelve = {"mean": 0.275, "std": 0.1, "clients": {str(c): v for c, v in enumerate(scores)}}
    rounds = [each | {"accuracy": each["accuracy"] and twelve} for each in records.run.rounds]
    many = replace(records, run=replace(records.run, rounds=rounds))
    drawn = accuracy(many)
    assert drawn is not None
    (worst,) = (trace for trace in drawn["data"] if trace["name"] == "worst tenth")
    assert worst_decile(scores) == 0.025
    assert worst["y"] == [0.025, 0.025]
    assert answers.did_it_work(many)[0].endswith("worst tenth of the clients is 2.5%.")


def test_kept_rounds_are_spread_over_the_run() -> None:
    assert spread(40, 4) == {1, 14, 27, 40}
    assert spread(3, 12) == {1, 2, 3}
    assert spread(40, 0) == set()
    assert spread(40, 1) == {40}


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2.2, in [1, 21]."""
    lights = sorted(float(_linear(each) @ (0.2126, 0.7152, 0.0722)) + 0.05 for each in (one, other))
    return lights[1] / lights[0]


@pytest.mark.parametrize("dark", [False, True])
def test_colours_stand_out_from_the_ground(dark: bool) -> None:
    shades = [DARK[c] for c in COMMUNITIES] if dark else list(COMMUNITIES)
    ground = DARK[GROUND] if dark else GROUND
    assert min(_contrast(shade, ground) for shade in shades) >= 3  # WCAG 2.2, 1.4.11


# Machado, Oliveira and Fernandes, IEEE TVCG 2009, severity 1.0.
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def _oklab(linear: np.ndarray) -> np.ndarray:
    """Return the colour in Ottosson's OKLab, in which distances are as the eye's."""
    cones = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                      [0.2119034982, 0.6806995451, 0.1073969566],
                      [0.0883024619, 0.2817188376, 0.6299787005]]) @ linear.clip(0, 1)  # fmt: skip
    return np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                     [1.9779984951, -2.4285922050, 0.4505937099],
                     [0.0259040371, 0.7827717662, -0.8086757660]]) @ np.cbrt(cones)  # fmt: skip


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("dark", [False, True])
def test_colour_blind_eyes_tell_the_communities_apart(kind: str, dark: bool) -> None:
    shades = [DARK[c] for c in COMMUNITIES] if dark else list(COMMUNITIES)
    seen = [_oklab(np.array(BLIND[kind]) @ _linear(shade)) for shade in shades]
    nearest = min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))
    assert nearest >= 0.1  # of OKLab, where black and white are 1 apart
