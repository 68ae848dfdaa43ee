"""The Prometheus of docker-compose.yml: an image of Debian's, and what it knows of a run."""

import json
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

PROMETHEUS = """FROM {base}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus wget \\
    && install -d -o nobody /prometheus
USER nobody
ENTRYPOINT ["prometheus", "--config.file=/etc/prometheus/prometheus.yml", \\
    "--storage.tsdb.path=/prometheus"]
"""
"""Debian's Prometheus for a machine that reaches no registry."""


def measured(query: str) -> str:
    """Return the value of a query with one result, empty without a result."""
    found = asked(f"query?{urlencode({'query': query})}")["result"]
    return ", ".join(each["value"][1] for each in found)


def asked(path: str) -> dict[str, Any]:
    """Return the data of an answer of its API; no results while it starts."""
    try:
        with urlopen(f"http://127.0.0.1:9090/api/v1/{path}") as answer:
            return json.loads(answer.read())["data"]
    except OSError:  # it starts
        return {"result": [], "groups": []}
