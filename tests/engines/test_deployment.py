"""What a deployment says before it starts anything."""

from pathlib import Path

import pytest

from fl_app.engines.deployment import Order, run_deployment


def test_a_folder_for_the_federation_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    order = Order(
        app=tmp_path,
        overrides="",
        composed=str,
        folder=tmp_path / "run",
        restarts=0,
        log=tmp_path / "run" / "flower.log",
        on_tick=lambda: None,
    )
    with pytest.raises(ValueError, match=r"^engine[.]folder must be one into which files can"):
        run_deployment(order, nodes=1, warm=False, folder=tmp_path / "file" / "federation")
