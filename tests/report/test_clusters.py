"""Figures of federated k-means, from what runs leave behind."""

from pathlib import Path

import numpy as np

from fl_app.one_run import run
from fl_app.report.clusters import centroids, clustering, paths
from fl_app.report.figures import write_figures
from fl_app.report.run import read_run

BASE = ["strategy=kmeans", "network=centroids", "population=iid", "population.clients=4",
        "records.figures=false"]  # fmt: skip


def _names(folder: Path) -> set[str]:
    return {path.stem for path in write_figures(folder)}


def test_points_in_the_plane_with_the_ways_of_the_best_start(tmp_path: Path) -> None:
    given = ["data=blobs", "network.k=5", "data.samples=300", "rounds=12", "strategy.n_init=2"]
    run([*BASE, *given], tmp_path)
    found = read_run(tmp_path)
    assert found.clustered is not None
    assert found.clustered.points.shape == (400, 2)
    axes = paths(found).axes[0]
    ways = [
        line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 1
    ]
    assert [len(way.get_xdata()) for way in ways] == [6] * 5
    ends = np.array([way.get_xydata()[-1] for way in ways])
    np.testing.assert_allclose(ends, found.clustered.final, atol=1e-5)
    drawn = _names(tmp_path)
    assert {"paths", "clustering"} <= drawn
    assert "centroids" not in drawn


def test_pictures_of_the_centroids_of_images(tmp_path: Path) -> None:
    run([*BASE, "network.k=3", "rounds=3", "records.evaluate_every=1"], tmp_path)
    found = read_run(tmp_path)
    shown = [axes for axes in centroids(found).axes if axes.images]
    assert [axes.images[0].get_array().shape for axes in shown] == [(8, 8)] * 3
    assert [len(axes.lines) for axes in clustering(found).axes] == [1, 1, 4]
    assert paths(found) is None


def test_without_classes_only_distance_is_drawn(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(60, 2)))
    table = ["data=table", f"data.root={tmp_path}", "data.file=points.npy", "network.k=2"]
    folder = tmp_path / "run"
    run([*BASE, *table, "rounds=4"], folder)
    found = read_run(folder)
    assert found.rounds[-1]["accuracy"] is None
    assert found.rounds[-1]["notes"]["distance"] > 0
    assert len(clustering(found).axes) == 2


def test_a_run_that_clusters_no_points_has_none_of_them(tmp_path: Path) -> None:
    found = read_run(tmp_path)
    assert paths(found) is None
    assert centroids(found) is None
    assert clustering(found) is None
