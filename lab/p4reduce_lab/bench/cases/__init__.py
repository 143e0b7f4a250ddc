"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import (
    adacomp,
    bmv2_words,
    dense,
    density,
    flat,
    loss,
    memory,
    program,
    ring,
    scale,
    selection,
    switch_udp,
    switch_veth,
    training,
)

CASES: tuple[Case, ...] = (
    program.CASE,
    flat.CASE,
    switch_udp.CASE,
    switch_veth.CASE,
    dense.CASE,
    density.CASE,
    ring.CASE,
    scale.WORKERS_CASE,
    scale.SIZE_CASE,
    training.CASE,
    adacomp.CASE,
    selection.CASE,
    memory.CASE,
    loss.CASE,
    bmv2_words.CASE,
)
BY_NAME = {case.name: case for case in CASES}
