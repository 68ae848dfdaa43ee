"""The image of docker-compose.yml with torch for the CPU, built from wheels of this machine."""

import functools
import http.server
import ipaddress
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from composed import Composed

IMAGE, BASE = "fl-app:cpu", "fl-app-base:cpu"
PYTHON = """FROM {base}
COPY . /usr/local
RUN ldconfig
ENV PIP_TRUSTED_HOST={host}
"""
"""The Python that runs this, for which the wheels are; pip accepts no index without TLS unasked."""
_UNUSED = shutil.ignore_patterns("site-packages", "test", "__pycache__", "*.a")


def build(federation: Composed, wheels: Path, base: str) -> float:
    """Build the image as `FL_APP_TORCH_INDEX` does it; return its size in GB.

    `wheels` is a folder with a wheel of torch for the CPU and for this Python.
    """
    top = federation.checkout.with_name(f"{federation.checkout.name}-cpu")
    try:
        host = _gateway(federation)
        _base(federation, top / "python", PYTHON.format(base=base, host=host))
        constraints = federation.checkout / "constraints.txt"
        usual = constraints.read_text()
        constraints.write_text("\n".join(_without_torch(usual)))
        _download(constraints, wheels, top / "index")
        given = {"FL_APP_BASE": BASE, "FL_APP_IMAGE": IMAGE}
        with _served(top / "index", host) as index:
            federation.environment |= {**given, "FL_APP_TORCH_INDEX": index}
            federation.compose("build")
        constraints.write_text(usual)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    return size(federation, IMAGE)


def size(federation: Composed, image: str) -> float:
    """Return the size of an image in GB."""
    shown = federation.run(["docker", "image", "inspect", image]).stdout
    return float(json.loads(shown)[0]["Size"]) / 1e9


def versions(federation: Composed) -> str:
    """Return the versions of torch and torchvision in the image."""
    program = "from importlib.metadata import version as v; print(v('torch'), v('torchvision'))"
    words = ["docker", "run", "--rm", IMAGE, "python", "-c", program]
    torch, vision = federation.run(words).stdout.split()
    return f"torch {torch}, torchvision {vision}"


def _gateway(federation: Composed) -> str:
    """Return the address of this machine for containers that are built."""
    shown = federation.run(["docker", "network", "inspect", "bridge"]).stdout
    (network, *_) = json.loads(shown)[0]["IPAM"]["Config"]
    return str(next(ipaddress.ip_network(network["Subnet"]).hosts()))  # `Gateway` may be absent


def _base(federation: Composed, context: Path, text: str) -> None:
    shutil.copytree(sys.base_prefix, context, symlinks=True, ignore=_UNUSED)
    file = context.with_name("Dockerfile")
    file.write_text(text)
    federation.run(["docker", "build", "--tag", BASE, "--file", str(file), str(context)])


def _without_torch(constraints: str) -> list[str]:
    """Return the constraints without the versions that have no wheel for the CPU here."""
    torch = ("torch==", "torchvision==")
    return [line for line in constraints.splitlines() if not line.startswith(torch)]


def _download(constraints: Path, wheels: Path, index: Path) -> None:
    """Make an index like PyTorch's own: torch, torchvision and what they need."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--find-links", str(wheels)]
    wheel = next(wheels.glob("torch-*+cpu-*.whl"))
    wanted = [f"torch=={wheel.name.split('-')[1]}", "torchvision"]
    words += ["--constraint", str(constraints), "--dest", str(index / "all"), *wanted]
    subprocess.run(words, check=True)
    for file in sorted((index / "all").iterdir()):
        package = file.name.split("-", maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")
        (index / package).mkdir(exist_ok=True)
        file.rename(index / package / file.name)


@contextmanager
def _served(folder: Path, host: str) -> Iterator[str]:
    """Serve a folder as a package index: its listings are pages of links."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((host, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{host}:{server.server_port}/"
        server.shutdown()
