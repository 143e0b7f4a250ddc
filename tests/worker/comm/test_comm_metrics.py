"""What a rank counts and measures, by the names of the metrics."""

from __future__ import annotations

import dataclasses

import numpy as np

from p4reduce.stats import CollectiveStats
from p4reduce.testing.local_group import LocalGroup
from p4reduce_runtime import metrics


def test_every_count_is_a_metric_of_its_own() -> None:
    fields = dataclasses.fields(CollectiveStats)
    numbers = {field.name: number for number, field in enumerate(fields, 100)}
    shown = CollectiveStats(**numbers).as_metrics()
    assert sorted(shown.values()) == sorted(numbers.values())


def test_a_rank_shows_every_metric_of_a_worker() -> None:
    with LocalGroup(2) as group:
        before = group.comms[0].metrics()
        group.run(lambda comm: comm.all_reduce(np.ones(1000, np.float32)))
        # it has had none if every frame had to be sent again
        group.comms[0]._connection.round_trip.table[0] = 0.05, 0.01, 0.05, 0.001
        after = group.comms[0].metrics()
    declared = {metric.name for metric in metrics.declared() if metric.name.startswith("p4reduce_worker_")}
    assert set(after) == declared
    assert before["p4reduce_worker_round_trip_seconds"] == 0
    assert 0 < after["p4reduce_worker_round_trip_seconds"] <= after["p4reduce_worker_timeout_seconds"]
    assert after["p4reduce_worker_rounds_total"] > 0
