"""The tests find the modules and the options of the project."""

from pathlib import Path

from fl_app import own

own.use(Path(__file__).resolve().parent.parent)
