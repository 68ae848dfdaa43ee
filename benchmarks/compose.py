"""Runs docker-compose.yml on a real Docker engine, with faults; writes docs/results/compose.md.

    scripts/test-compose        installs what is missing, then runs this

It works on a copy of the checkout in a temporary folder and ends with `docker compose down`.
FL_APP_CPU_WHEELS is a folder with a wheel of torch for the CPU; without it that image is not built.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import certificates
import cpu_image
import scraped
from composed import ROUNDS, SUPERNODES, Composed
from container_faults import FAULTS, continued, lost_node
from table import REPO, arguments, header, machine, put_rows, row

from fl_app.engines.credentials import Credentials
from fl_app.engines.flower import COMPLETED

Scenario = Callable[[Composed], list[str]]
TABLE = REPO / "docs" / "results" / "compose.md"
OWNED = "files belong to the caller: "
LONG, FLEET = 12, 9092
"""Rounds of a run in which a certificate is renewed; the port for nodes."""
STRANGER = 2345
"""A user that is not root and has no name on this machine."""
WHEELS, OWN_BASE = "FL_APP_CPU_WHEELS", "python:3.12-slim"
_LEFT = "Not measured, since the command ended before: "


def without_keys(federation: Composed) -> list[str]:
    """Start without keys: it is refused, and no folder is made."""
    first = federation.compose("up", "--detach", must=False)
    federation.environment["FL_APP_USER"] = "0:0"
    second = federation.compose("up", "--detach", "--no-build", must=False)
    del federation.environment["FL_APP_USER"]
    federation.compose("down", must=False)
    made = (federation.checkout / "deployment").exists()
    said = [each.stderr.strip().splitlines()[-1] for each in (first, second)]
    outcome = f"refused: {first.returncode != 0 != second.returncode}; folder made: {made}"
    shown = [_short(each.replace(str(federation.checkout), "<checkout>")) for each in said]
    return [row("up without `scripts/deploy keys`", outcome, "; ".join(shown))]


def plain(federation: Composed) -> list[str]:
    """Run the demo without a fault, for comparison."""
    status = federation.ended(federation.submit("plain", rounds=ROUNDS))
    owner = (federation.checkout / "outputs" / "plain" / "rounds.jsonl").stat().st_uid
    return [row("a run", status, f"{_seen(federation, 'plain')}; {OWNED}{owner == os.getuid()}")]


def cold_nodes(federation: Composed) -> list[str]:
    """Run the demo on nodes without a warm process."""
    federation.keys("--no-warm")
    federation.up()
    status = federation.ended(federation.submit("cold", rounds=ROUNDS))
    what = _seen(federation, "cold")
    federation.keys("--warm")
    federation.up()
    return [row("a run after `scripts/deploy keys --no-warm`", status, what)]


def _seen(federation: Composed, name: str) -> str:
    """Return the rounds of a run, how its clients started, and the memory of the nodes after it."""
    rounds = federation.rounds(name)
    seconds = statistics.median(each["time"]["total_s"] for each in rounds)
    return (
        f"{len(rounds)} rounds of {seconds:.1f} s in the median; clients are forks of warm "
        f"processes: {_warm(federation)}; the nodes then take {_memory(federation)}"
    )


def _memory(federation: Composed) -> str:
    """Return the memory of the containers of the nodes, as Docker counts it."""
    found = federation.compose("ps", "--quiet", *SUPERNODES).stdout.split()
    words = ["docker", "stats", "--no-stream", "--format", "{{.MemUsage}}", *found]
    return ", ".join(each.split(" / ")[0] for each in federation.run(words).stdout.splitlines())


def _warm(federation: Composed) -> bool:
    """Whether each node has a warm process, and no client was started without it."""
    tops = [federation.compose("top", node).stdout for node in SUPERNODES]
    logs = federation.compose("logs", *SUPERNODES).stdout
    return all("warm_process.py" in each for each in tops) and "no warm process" not in logs


def renewed(federation: Composed) -> list[str]:
    """Renew the certificate of the SuperLink in mid-run, by the commands of docs/production.md."""
    commands = certificates.documented("Compose")
    keys = Credentials(federation.checkout / "deployment" / "keys")
    certificates.replace(keys, ends_in=certificates.SOON)
    federation.compose("restart", "superlink")
    federation.all_online()
    federation.ended(federation.submit("calm", rounds=LONG))
    federation.submit("renewed", rounds=LONG)
    federation.after("renewed", 2)
    former, before = certificates.served(FLEET), federation.started_again(SUPERNODES)
    for command in commands:
        federation.typed(command)
    federation.until("a new certificate", lambda: certificates.served(FLEET) not in (None, former))
    told = certificates.compared(former, certificates.served(FLEET))
    what = f"{', then '.join(f'`{each}`' for each in commands)}, in mid-run"
    line = continued(federation, "renewed", what, like="calm")
    again = federation.started_again(SUPERNODES) - before
    lost = [each["round"] for each in federation.rounds("renewed") if each["lost"]]
    return [f"{line[:-2]}; {told}; nodes started again: {again}; rounds without a node: {lost} |"]


def monitored(federation: Composed) -> list[str]:
    """Ask the Prometheus of the profile `monitoring` about a run; Grafana is not started."""
    base = os.environ.get("FL_APP_BASE")
    if base is not None:
        image = "fl-app-prometheus:debian"
        text = scraped.PROMETHEUS.format(base=base)
        federation.run(["docker", "build", "--tag", image, "-"], given=text)
        federation.environment["FL_APP_PROMETHEUS"] = image
    federation.compose("up", "--detach", "--no-build", "prometheus")
    run_id = federation.submit("seen", "metrics.port=9464", "metrics.host=0.0.0.0", rounds=ROUNDS)
    federation.until("Prometheus to know the run", lambda: scraped.measured("fl_app_round") != "")
    status = federation.ended(run_id)
    alerts = len(scraped.asked("rules")["groups"][0]["rules"])
    who = "Debian's Prometheus" if base is not None else "Prometheus"
    last = scraped.measured("max_over_time(fl_app_round[10m])")
    seen = f"{who} saw the run up to round {last} of {ROUNDS} and has {alerts} alert rules"
    federation.compose("rm", "--stop", "--force", "prometheus")
    return [row("the profile `monitoring` without Grafana, and a run", status, seen)]


def stranger(federation: Composed) -> list[str]:
    """Start anew as a user that is not root, who owns the folders, and run."""
    federation.compose("down", "--volumes")
    federation.belong(STRANGER)
    federation.up()
    status = federation.ended(federation.submit("stranger", rounds=2))
    owner = (federation.checkout / "outputs" / "stranger" / "rounds.jsonl").stat().st_uid
    users = {federation.user(service) for service in ("superlink", "serverapp", "supernode-0")}
    what = f"processes of user {', '.join(sorted(users))}; files belong to user {owner}"
    return [row(f"all started anew as user {STRANGER}, and a run", status, what)]


def on_cpu(federation: Composed) -> list[str]:
    """Build the image with torch for the CPU, start all anew with it, and run."""
    what, wheels = "the image with torch for the CPU, and a run", os.environ.get(WHEELS)
    if wheels is None:
        return [row(what, "not tried", f"{WHEELS} was not set")]
    federation.compose("down", "--volumes")
    size = cpu_image.build(federation, Path(wheels), os.environ.get("FL_APP_BASE", OWN_BASE))
    federation.up()
    status = federation.ended(federation.submit("cpu", rounds=2))
    told = f"{cpu_image.versions(federation)}; clients are forks of warm processes"
    return [row(what, status, f"{size:.2f} GB; {told}: {_warm(federation)}")]


def _short(text: str) -> str:
    return text.replace("|", "/")[:160]


SCENARIOS = (
    plain,
    cold_nodes,
    *FAULTS,
    renewed,
    monitored,
    lost_node,
    stranger,
    on_cpu,
)


ANEW = (stranger, on_cpu)
"""Scenarios that start the federation themselves."""


def image_of(federation: Composed) -> str:
    """Return the name of the base of the image and its size."""
    base = os.environ.get("FL_APP_BASE", "the Dockerfile's base")
    return f"{cpu_image.size(federation, 'fl-app:0.1.0'):.2f} GB on {base}"


def main() -> None:
    """Build the image, run all scenarios and write the table."""
    parser = arguments(__doc__)
    parser.add_argument("--no-build", action="store_true", help="use the image that exists")
    names = [each.__name__ for each in SCENARIOS]
    parser.add_argument(
        "--only", nargs="+", choices=names, help="run these and put their rows into the page"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fl-app-compose-") as top:
        federation = Composed(copied(Path(top)))
        if not options.no_build:
            federation.environment["FL_APP_USER"] = "0:0"
            federation.compose("build")
            del federation.environment["FL_APP_USER"]
        if options.only is None:
            every(federation)
        else:
            federation.keys()
            wanted = [each for each in SCENARIOS if each.__name__ in options.only]
            rows = list(played(federation, wanted))
            TABLE.write_text(_no_longer_left(TABLE.read_text(), options.only))
            put_rows(TABLE, rows)


def every(federation: Composed) -> None:
    """Run all scenarios and write the page, also of what was run before an error."""
    image, rows = image_of(federation), without_keys(federation)
    federation.keys()
    try:
        rows += played(federation, SCENARIOS)
    finally:
        write(rows, engine(federation), image)
    assert COMPLETED in rows[1], "the plain run must complete"


def played(federation: Composed, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Start the federation, yield the rows of scenarios, and take it down."""
    try:
        if scenarios[0] not in ANEW:
            federation.up()
        for scenario in scenarios:
            for each in scenario(federation):
                print(each, flush=True)
                yield each
    finally:
        print(federation.compose("logs", "--tail", "5", must=False).stdout[-3000:], flush=True)
        federation.compose("--profile", "monitoring", "down", "--volumes", must=False)


def engine(federation: Composed) -> str:
    """Return the version of the Docker engine."""
    return federation.run(["docker", "version", "--format", "{{.Server.Version}}"]).stdout.strip()


def copied(top: Path) -> Path:
    """Copy what git would commit of this checkout, without its history."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPO, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        if (REPO / name).is_file():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, top / name)
    return top


def write(rows: list[str], version: str, image: str) -> None:
    """Write the page, also of what was run before an error."""
    left = [each.__name__ for each in SCENARIOS[max(0, len(rows) - 1) :]]
    ended = f"{_LEFT}{', '.join(left)}.\n" if left else ""
    intro = (
        "# Compose\n\n"
        "Written by `benchmarks/compose.py`, which `scripts/test-compose` runs,\n"
        f"on {machine()}, Docker {version}:\n"
        f"`docker-compose.yml` with three nodes, an image of {image}. A container\n"
        "that is killed is started again by Docker. Ended: the run's status in Flower. Other\n"
        f"work ran on the same cores. A row may be of a later session (`--only`).\n{ended}\n"
    )
    lines = [*header("what was done", "ended", "seen"), *rows]
    TABLE.write_text(intro + "\n".join(lines) + "\n")


def _no_longer_left(page: str, measured: Sequence[str]) -> str:
    """Return the page, whose line of what was not measured is without these scenarios."""
    lines = page.splitlines()
    for at, line in enumerate(lines):
        if line.startswith(_LEFT):
            names = line.removeprefix(_LEFT).rstrip(".").split(", ")
            left = [name for name in names if name not in measured]
            lines[at : at + 1] = [f"{_LEFT}{', '.join(left)}."] if left else []
            break
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
