"""Which link limits a dense sum: the arithmetic, and what `p4reduce doctor` measures for it."""

from __future__ import annotations

import json
import math
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from p4reduce.codecs import Int32
from p4reduce.communicator import Communicator
from p4reduce.errors import P4ReduceError
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_runtime import metrics
from p4reduce_runtime.underlay import ENCAP_BYTES

MOST_TURNS: Final = 8
"""Hosts of which a rank is measured alone, one after the other."""
_SUMS_S: Final = 0.25
"""Seconds of sums that are measured."""
_WARM_UP_SUMS: Final = 4
_ROUND_TRIPS: Final = 32
_MOST_SUMS: Final = 64
_NEAR: Final = 0.7
"""The share of a bound from which on the bound counts as reached."""


def host_tensors(hosts: int, switches: int, beside: int) -> float:
    """Return the tensors that a dense sum puts on a host's link each way, where `beside` of the switches are on it.

    To the other switches goes what is theirs of this host's tensor, to these what is theirs of the other hosts'.
    """
    return (switches - beside + beside * (hosts - 1)) / switches


def framed(geometry: Geometry) -> float:
    """Return the bytes on a link for a byte of a dense float32 tensor, with all headers."""
    return (geometry.max_frame_bytes + ENCAP_BYTES) / (4 * geometry.frame_words)


def ring_tensors(ranks: int) -> float:
    """Return the tensors that an all-reduce without help from the network puts on a link each way, at the least."""
    return 2 * (ranks - 1) / ranks


def switches_beside(lease: Lease) -> int:
    """Return how many of a job's switches have an address of this rank's own host."""
    return sum(_is_own(switch.host) for switch in lease.switches)


def _is_own(host: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


class Answer(NamedTuple):
    """What was found, and what to change: "" where nothing is wrong."""

    found: str
    advice: str = ""


@dataclass(frozen=True)
class Rates:
    """What dense sums carried each way, in bits a second with all headers."""

    hosts: tuple[tuple[int, ...], ...]
    """The ranks of each host; a large tensor leaves a host once."""
    switches: int
    beside: tuple[int, ...]
    """Number of switches on each host."""
    alone: tuple[float, ...]
    """Rates of the first rank of the first hosts, each while all others wait."""
    together: float
    """Rate of the slowest rank when all ranks sum, each sending for itself."""
    round_trip_s: float = 0.0
    """Smoothed seconds to an answer of the slowest switch, without load."""

    def links(self) -> tuple[float, ...]:
        """Return the rates of these hosts' links; that of a host on which all switches are is not known: the least."""
        rates = [
            rate * (self.switches - beside) / self.switches
            for rate, beside in zip(self.alone, self.beside, strict=False)
        ]
        least = min(filter(None, rates), default=0.0)
        return tuple(rate or least for rate in rates)


def limit_of_links(rates: Rates) -> Answer:
    """Say whose link limits a dense sum, and how long it takes beside a ring."""
    ranks, hosts, links = sum(map(len, rates.hosts)), len(rates.hosts), rates.links()
    low, high = show_rate(min(rates.alone)), show_rate(max(rates.alone))
    text = (
        f"one rank alone {low if low == high else f'{low} to {high}'}, all {ranks} at once {show_rate(rates.together)}"
    )
    if hosts == 1 or not any(links):
        return Answer(f"{text} each way; all ranks are on one host")
    share = rates.together * ranks / hosts
    bounds = [
        link / host_tensors(hosts, rates.switches, beside) for link, beside in zip(links, rates.beside, strict=False)
    ]
    slower = share * ring_tensors(ranks)
    times = min(links) / slower
    advice = "" if times < 1 / 0.9 else _faster(hosts, rates.switches)
    if share < _NEAR * min(bounds):
        inside = sum(rates.beside) >= rates.switches
        who = "the hosts' processors limit" if inside else "a switch's link or processor limits"
        if inside and advice:
            advice = "leave a processor core of each host to its switch, or give it more `--threads`"
    elif min(bounds) < _NEAR * statistics.median(bounds):
        slow = name_ranks(rates.hosts[bounds.index(min(bounds))])
        who = f"the link of {slow} limits"
        advice = advice or f"see why the link of {slow} is slower than others (`ethtool`)"
    else:
        who = "the hosts' links limit"
    ring = f"a ring over the hosts' links, with {ring_tensors(ranks):.3g} x the tensor on each"
    return Answer(f"{text} each way: {who} a dense sum, which takes {times:.2g} x as long as {ring}", advice)


def _faster(hosts: int, switches: int) -> str:
    return (
        f"give each switch a link {hosts / switches:.2g} times as fast as a host's, use a P4 switch, or have a switch "
        "on each host, side by side (docs/deploy.md)"
    )


def limit_of_slots(lease: Lease, round_trip_s: float, rate: float) -> Answer | None:
    """Say that a job's slots allow less than the `rate` of one rank alone, in bits a second; None if they do not."""
    frame_bytes, switches = lease.geometry.max_frame_bytes + ENCAP_BYTES, len(lease.switches)
    if round_trip_s * rate <= 8 * frame_bytes * lease.slot_count:
        return None
    needed = math.ceil(rate * round_trip_s / (8 * frame_bytes * switches))
    limit = show_rate(8 * frame_bytes * lease.slot_count / round_trip_s)
    found = f"{lease.slot_count} slots of {frame_bytes:,} B are {limit} at a round trip of {round_trip_s * 1000:.2g} ms"
    advice = f"`p4reduce job create --slots {needed}`, or Options(slots={needed}) in the backend"
    return Answer(f"{found}, one rank alone has {show_rate(rate)}", advice)


def dense_rate(comm: Communicator, sums: int = 0) -> float:
    """Return the bits a second that this rank receives in so many dense sums, 0: in as many as take a while."""
    ones = np.ones(4 * comm.lease.slot_count * comm.lease.columns * comm.lease.block_words, np.int32)
    for _ in range(_WARM_UP_SUMS):
        comm.all_reduce(ones)
    before, begun, done = comm.stats.bytes_down, time.monotonic(), 0
    while done < sums if sums else time.monotonic() - begun < _SUMS_S:
        comm.all_reduce(ones)
        done += 1
    return 8 * (comm.stats.bytes_down - before) / (time.monotonic() - begun)


def measure(
    comm: Communicator,
    hosts: tuple[tuple[int, ...], ...],
    alone: Callable[[], AbstractContextManager[Communicator]],
    wait_s: float,
) -> Rates | str:
    """Measure ranks alone, one after the other, then all at once; all ranks call it and return the same.

    `alone` joins a job of this rank alone; where that fails on any rank, return why. `wait_s` bounds a turn. Raises
    CollectiveError.
    """
    path_s, mine, problem = _round_trip_s(comm), 0.0, ""
    turns = [ranks[0] for ranks in hosts[:MOST_TURNS]]
    for rank in turns:
        if rank == comm.rank:
            try:
                with alone() as single:
                    mine = dense_rate(single)
            except (JobServiceError, P4ReduceError) as error:
                problem = f"rank {rank} alone: {error}"
        comm.barrier(timeout_s=wait_s)
    told = _gather(comm, mine, switches_beside(comm.lease), problem)
    if problem := next((row[2] for row in told if row[2]), ""):
        return str(problem)
    rates = [told[rank][0] for rank in turns]
    bits = 4 * 32 * comm.lease.slot_count * comm.lease.columns * comm.lease.block_words
    sums = min(_MOST_SUMS, max(2, int(_SUMS_S * min(rates) / bits)))
    together = min(rate for (rate,) in _gather(comm, dense_rate(comm, sums)))
    beside = tuple(int(told[ranks[0]][1]) for ranks in hosts)
    return Rates(hosts, len(comm.lease.switches), beside, tuple(rates), together, path_s)


def _round_trip_s(comm: Communicator) -> float:
    """Sum few full frames at each switch again and again, until little of what was measured under load is left."""
    lease = comm.lease
    count = len(lease.switches) * lease.slots_together
    frames = np.ones(count * lease.columns * lease.block_words, np.int32)
    for _ in range(_ROUND_TRIPS):
        comm.all_reduce_segments([Int32(frames)], dense=True)
    return comm.metrics()[metrics.WORKER_ROUND_TRIP.name]


def _gather(comm: Communicator, *mine: object) -> list[list[Any]]:
    return [json.loads(row) for row in comm.all_gather_bytes(json.dumps(mine).encode())]


def show_rate(bits: float) -> str:
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
