"""One self-contained page per run: outcome -> figures -> template, from its folder alone."""

from fl_app.report.page.write import FILE, write_page

__all__ = ["FILE", "write_page"]
