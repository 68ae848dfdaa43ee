"""The `fl-app` command: it answers signals before it imports what takes seconds."""

from fl_app.engines import signals


def main() -> None:
    """Run `fl_app.main`."""
    signals.answer()
    from fl_app.main import main as run

    run()


if __name__ == "__main__":
    main()
