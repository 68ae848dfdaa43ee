"""The search for garbage is off during imports, and afterwards as it was."""

import gc

import pytest

from fl_app.uncollected import uncollected


@pytest.fixture(autouse=True)
def _searching():
    gc.enable()
    yield
    gc.enable()


@pytest.mark.parametrize("searches", [True, False])
def test_it_is_off_in_the_block_and_as_before_after_it(searches):
    if not searches:
        gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled() is searches


def test_a_failed_import_leaves_it_on():
    with pytest.raises(ImportError), uncollected():
        import fl_app.no_such_module  # noqa: F401
    assert gc.isenabled()
