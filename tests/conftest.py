"""Shapes are checked at run time in every test: jaxtyping with beartype."""

from jaxtyping import install_import_hook

install_import_hook(
    ["fl_app.graph", "fl_app.aggregation", "fl_app.evaluation", "fl_app.params"],
    "beartype.beartype",
)
