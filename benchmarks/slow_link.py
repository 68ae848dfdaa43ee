"""A link of limited rate with delay and loss between this machine and a network namespace.

Two TUN devices and a relay between them in this process: it works where the kernel has no netem.
Needs Linux and root.
"""

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wired import ip

_TUNSETIFF, _IFF_TUN_PLAIN = 0x400454CA, 0x1001
_CLONE_NEWNET = 0x40000000
_QUEUE_S = 1.0
"""Packets that would wait longer for the link are dropped, as by a router."""
_LARGEST = 65536


@dataclass(frozen=True)
class Quality:
    """A link: bits per second, seconds of delay in each direction, and the share that is lost."""

    rate: float
    delay_s: float
    loss: float


def _tun(name: str, space: str | None = None) -> int:
    """Return the open device `name`, made in a network namespace or in this one."""
    made: list[int] = []

    def make() -> None:
        if space is not None:  # of this thread alone, which ends
            with open(f"/run/netns/{space}") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter the namespace {space}")
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_PLAIN))
        made.append(device)

    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    if not made:
        raise OSError(f"no TUN device {name} in {space or 'this namespace'}")
    return made[0]


class _Direction:
    """One direction of the link: a thread takes packets, another one delivers them."""

    def __init__(self, source: int, target: int, quality: Quality, seed: int) -> None:
        self.source, self.target, self.quality = source, target, quality
        self.draw = random.Random(seed)
        self.free, self.numbers = 0.0, itertools.count()
        self.waiting: list[tuple[float, int, bytes]] = []
        self.changed = threading.Condition()
        for work in (self._take, self._deliver):
            threading.Thread(target=work, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                packet = os.read(self.source, _LARGEST)
            except OSError:
                return  # the device is deleted
            now = time.monotonic()
            full = self.free - now > _QUEUE_S
            if full or self.draw.random() < self.quality.loss:
                continue
            self.free = max(now, self.free) + 8 * len(packet) / self.quality.rate
            with self.changed:
                due = self.free + self.quality.delay_s
                heapq.heappush(self.waiting, (due, next(self.numbers), packet))
                self.changed.notify()

    def _deliver(self) -> None:
        while True:
            with self.changed:
                while not self.waiting or self.waiting[0][0] > time.monotonic():
                    left = self.waiting[0][0] - time.monotonic() if self.waiting else None
                    self.changed.wait(left)
                packet = heapq.heappop(self.waiting)[2]
            try:
                os.write(self.target, packet)
            except OSError:
                return


@contextmanager
def slow_link(space: str, here: str, there: str, quality: Quality) -> Iterator[None]:
    """Make a slow link the way out of a namespace; `here` and `there` are its two addresses."""
    outer, inner = _tun("fl-slow"), _tun("fl-slow", space)
    try:
        ip(f"addr add {here} peer {there} dev fl-slow")
        ip("link set fl-slow up")
        ip(f"-n {space} link set eth0 down")
        ip(f"-n {space} addr add {there} peer {here} dev fl-slow")
        ip(f"-n {space} link set fl-slow up")
        ip(f"-n {space} route add default dev fl-slow")
        _Direction(outer, inner, quality, seed=1)
        _Direction(inner, outer, quality, seed=2)
        yield
    finally:  # a closed device stays while a thread reads it
        ip("link del fl-slow")
        ip(f"-n {space} link del fl-slow")
        os.close(inner)
        os.close(outer)
