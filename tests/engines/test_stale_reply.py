"""A SuperNode whose replies are one behind is known by its log."""

from pathlib import Path

import pytest

from fl_app.engines import log_files
from fl_app.engines.stale_reply import NodeLog

COLOURED = "\x1b[92mINFO \x1b[0m:      "


def received(run: int, what: str = "Received successfully") -> list[str]:
    return ["", f"[RUN {run}, ROUND 1]", "Receiving: train message (ID: ab12)", what]


def sent(run: int, what: str = "Sent successfully") -> list[str]:
    return ["", f"[RUN {run}, ROUND 1]", "Sending: train message (ID: cd34)", what]


def over(run: int, what: str) -> str:
    return f"Run ID {run} is not in `RUNNING` status. Ignoring {what} ab12."


START = ["Start `flwr-clientapp` process"]
ANSWERED = [*received(4), *START, *sent(4)]
IGNORED = received(4, over(4, "message"))


@pytest.mark.parametrize(
    ("lines", "behind"),
    [
        ([*ANSWERED, *ANSWERED], False),
        ([*IGNORED, *received(5), *START, *sent(5)], False),  # it ended before its task was noted
        ([*received(4), *START, *sent(4, over(4, "reply message")), *ANSWERED], False),
        ([*received(4), *START, *START, *sent(4)], False),  # the client was killed
        (["", "[RUN 4]", "Receiving: train message (ID: 1)", "Received successfully",
          "", "[RUN 4]", "Sending: train message (ID: 2)"], False),
        ([*received(4)[:-1], *START, over(4, "message")], True),  # the common order
        ([*IGNORED, *START], True),
        ([*IGNORED, *received(5), *sent(4)], True),  # its client started late
        ([*received(5), "", "[RUN 4]", "Sending: train message (ID: 2)"], True),
    ],
)  # fmt: skip
def test_the_sign_is_certain(tmp_path: Path, lines: list[str], behind: bool) -> None:
    path = tmp_path / "supernode-0.log"
    former = b"Start `flwr-clientapp` process\n"
    path.write_bytes(former + "".join(f"{COLOURED}{line}\n" for line in lines).encode())
    log = NodeLog(path, len(former))
    assert log.behind() is behind
    assert not log.behind()


REFUSED = "<_InactiveRpcError of RPC that terminated with:"
ERROR = "\x1b[91mERROR \x1b[0m:     "


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (f"{ERROR}{REFUSED}", True),
        (f"ERROR :     {REFUSED}", True),  # without colours
        (f"{ERROR}Failed to send message 58eb: {REFUSED}", False),
        (f"{ERROR}Failed to receive message a039: {REFUSED}", False),
        (f"{COLOURED}{REFUSED}", False),
    ],
)
def test_a_supernode_that_has_left_is_known(tmp_path: Path, line: str, left: bool) -> None:
    path = tmp_path / "supernode-0.log"
    path.write_text(f"{line}\n\tstatus = StatusCode.INTERNAL\n")
    log = NodeLog(path, 0)
    assert not log.behind()
    assert log.left is left


def test_lines_are_read_once_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "supernode-0.log"
    log = NodeLog(path, 0)
    assert not log.behind()
    text = "\n".join([*IGNORED, *START]) + "\n"
    found = []
    for at in range(0, len(text), 7):
        with path.open("a") as file:
            file.write(text[at : at + 7])
        found.append(log.behind())
    assert found == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("kept", [True, False])
def test_a_log_that_was_emptied_is_read_from_its_former_file_and_its_beginning(
    tmp_path: Path, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "MOST_BYTES", 0)
    path = tmp_path / "supernode-0.log"
    path.write_text("\n".join(ANSWERED) + "\n")
    log = NodeLog(path, 0)
    assert not log.behind()
    with path.open("a") as file:
        file.write("\n".join(IGNORED) + "\n")
    log_files.limit(path)
    if not kept:
        log_files.former(path).unlink()
    path.write_text("\n".join(START) + "\n")
    assert log.behind() is kept
    with path.open("a") as file:
        file.write("\n".join([*IGNORED, *START]) + "\n")
    assert log.behind()
