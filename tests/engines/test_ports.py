"""A port that is in use is told with its user, and free ones are found."""

import os
import socket

import pytest

from fl_app.engines import ports
from fl_app.engines.ports import free_ports, problem
from fl_app.engines.processes import ProcessError


@pytest.fixture
def taken():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_free_ports_differ_and_lie_below_the_ephemeral_ones():
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(20_000 <= port < 32_000 for port in found)


def test_a_machine_without_free_ports_is_told(taken, monkeypatch):
    monkeypatch.setattr(ports, "PORTS", range(taken, taken + 1))
    with pytest.raises(ProcessError, match=f"in {taken}..{taken} must be free, got 0; see with ss"):
        free_ports(1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_port_that_is_taken_is_told_with_the_process_that_uses_it(host, taken):
    told = problem("metrics", host, taken)
    assert f"metrics.port must be free on {host}, got {taken}, which" in told
    assert f"(process {os.getpid()}) uses; end that process, or choose another" in told


def test_the_process_of_another_user_is_looked_for_with_ss(taken, monkeypatch, tmp_path):
    monkeypatch.setattr(ports, "_PROC", tmp_path)
    assert "which another process (sudo ss -ltnp tells which) uses" in problem("m", "::", taken)


def test_a_free_port_is_no_problem_also_just_after_its_use(taken):
    with socket.create_connection(("127.0.0.1", taken)), socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert problem("metrics", "127.0.0.1", free) is None
    assert problem("metrics", "0.0.0.0", free) is None


@pytest.mark.parametrize("host", ["192.0.2.7", "no.such.host.invalid"])
def test_an_address_that_this_machine_has_not_is_told(host):
    told = problem("metrics", host, free_ports(1)[0])
    assert f"metrics.host must be an address of this machine, got '{host}'; use 127.0.0.1" in told
