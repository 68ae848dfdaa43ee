"""One self-contained page per run, made only from its folder: records, figures, template."""

from fl_app.report.page.write import write_page

__all__ = ["write_page"]
