"""Flower's command lines for a federation; a test compares docker-compose.yml with them."""

from fl_app.engines.credentials import Credentials


def superlink(keys: Credentials, *, host: str, port: int, fleet_port: int, state: str) -> list[str]:
    """Return the SuperLink's command: TLS, node authentication, a database, apps isolated."""
    return [
        "flower-superlink",
        *("--host", host, "--port", str(port)),
        *("--fleet-api-address", f"{host}:{fleet_port}"),
        *("--ssl-ca-certfile", str(keys.authority)),
        *("--ssl-certfile", str(keys.certificate)),
        *("--ssl-keyfile", str(keys.key)),
        "--enable-supernode-auth",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(keys.secret)),
        *("--database", state),
        "--disable-runtime-dependency-installation",
    ]


def superexec(keys: Credentials, *, address: str) -> list[str]:
    """Return the command of the SuperExec that runs the ServerApp of each run."""
    return [
        "flower-superexec",
        *("--runtime-api-address", address),
        *("--root-certificates", str(keys.authority)),
        *("--superexec-auth-secret-file", str(keys.secret)),
    ]


def supernode(
    keys: Credentials,
    *,
    node: int,
    nodes: int,
    superlink: str,
    port: int,
    data_root: str | None,
    state_folder: str | None = None,
) -> list[str]:
    """Return the command of a SuperNode, which starts its own SuperExec for the ClientApp."""
    return [
        "flower-supernode",
        *("--superlink", superlink),
        *("--root-certificates", str(keys.authority)),
        *("--auth-supernode-private-key", str(keys.node_key(node))),
        *("--host", "127.0.0.1", "--port", str(port)),
        "--node-config",
        node_config(node=node, nodes=nodes, data_root=data_root, state_folder=state_folder),
    ]


def node_config(
    *, node: int, nodes: int, data_root: str | None, state_folder: str | None = None
) -> str:
    """Return the node config of a client: its partition, its data, and what stays with it.

    Raises ValueError for a folder name that Flower's parser cannot read.
    """
    found = f"partition-id={node} num-partitions={nodes}"
    for name, folder in (("data-root", data_root), ("state-folder", state_folder)):
        if folder is None:
            continue
        if any(sign in folder for sign in "'\n"):
            raise ValueError(
                f"{name.replace('-', ' ')} must not contain a quote or line break, got "
                f"{folder!r}; use a link to it"
            )
        found += f" {name}='{folder}'"
    return found
