"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import (
    backend,
    bmv2_words,
    compression,
    dense,
    density,
    flat,
    jumbo,
    loss,
    memory,
    program,
    racks,
    racks_simulated,
    ring,
    scale,
    switch_udp,
    switch_veth,
    training,
    transformer,
    wire,
)

CASES: tuple[Case, ...] = (
    program.CASE,
    flat.CASE,
    switch_udp.CASE,
    switch_veth.CASE,
    dense.CASE,
    racks.CASE,
    density.CASE,
    jumbo.CASE,
    ring.CASE,
    scale.WORKERS_CASE,
    scale.SIZE_CASE,
    racks_simulated.CASE,
    training.CASE,
    transformer.CASE,
    backend.CASE,
    wire.CASE,
    compression.ADACOMP_CASE,
    compression.SELECTION_CASE,
    memory.CASE,
    loss.CASE,
    bmv2_words.CASE,
)
BY_NAME = {case.name: case for case in CASES}
