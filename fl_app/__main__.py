"""The `fl-app` command: it handles signals before the imports, which take seconds."""

from fl_app.engines import signals


def main() -> None:
    """Run `fl_app.main`."""
    signals.answer()
    from fl_app.main import main as run

    run()


if __name__ == "__main__":
    main()
