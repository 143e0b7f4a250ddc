"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import (
    backend,
    dense,
    density,
    first_run,
    hosts,
    loss,
    one_host,
    placement,
    switch_trace,
    switch_udp,
    switch_veth,
    time_to_accuracy,
    training,
    wire,
)

CASES: tuple[Case, ...] = (
    *(
        module.CASE
        for module in (
            switch_udp,
            switch_trace,
            switch_veth,
            dense,
            hosts,
            one_host,
            placement,
            density,
            training,
            backend,
            first_run,
            wire,
            loss,
        )
    ),
    *time_to_accuracy.CASES,
)
BY_NAME = {case.name: case for case in CASES}
