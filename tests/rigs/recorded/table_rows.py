"""truth_table.toml for real switches: each row in slots of its own, and frames after it that show the registers."""

from __future__ import annotations

from conformance.case import Arrive, Case, Step, Write, insert
from rigs.pipeline import EPOCH, SLOT_COUNT
from rigs.recorded.network import SLOT_BASE, Network
from rigs.truth_table import RANKS, SWITCHES, Row, preparation, probes, rows_of, sent, with_version


def cases() -> list[Case]:
    return [_network(switch).case(name(switch), [step for step, _ in walk(switch)]) for switch in SWITCHES]


def name(switch: str) -> str:
    return f"p4reduce_default_table_{switch}"


def walk(switch: str) -> list[tuple[Step, Row | None]]:
    """Each step with the row that says what comes out; None: it is not looked at."""
    network, slot_base = _network(switch), SLOT_BASE
    admissions = (network.admission(rank) for rank in range(RANKS))
    found: list[tuple[Step, Row | None]] = [(insert(*network.switching(), *network.job(), *admissions), None)]
    for original in rows_of(switch):
        for version in (0, 1):
            row = with_version(original, version)
            dead, frames = preparation(row, version)
            found.append((_lease(network, EPOCH - 1, slot_base), None))
            found += [(Arrive(*sent(network.geometry, frame)), None) for frame in dead]
            found.append((_lease(network, EPOCH, slot_base), None))
            found += [(Arrive(*sent(network.geometry, frame)), None) for frame in frames]
            found += [(Arrive(*sent(network.geometry, one["frame"])), one) for one in (row, *probes(row))]
            slot_base += SLOT_COUNT
    return found


def _network(switch: str) -> Network:
    return Network("default", RANKS, leaf=switch == "leaf")


def _lease(network: Network, epoch: int, slot_base: int) -> Write:
    entries = [network.admission(rank, epoch, slot_base) for rank in range(RANKS)]
    if network.leaf:
        entries.append(network.parent_admission(epoch))
    return Write(tuple(("modify", entry) for entry in entries))
