"""What a rank counts and measures, by the names of the metrics."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from p4reduce.errors import UnderflowError
from p4reduce.membership.summary import log_summary
from p4reduce.pytorch.settle import settle
from p4reduce.testing.local_group import LocalGroup
from p4reduce_runtime import metrics


def test_a_rank_shows_every_metric_of_a_worker() -> None:
    with LocalGroup(2) as group:
        before = group.comms[0].metrics()
        group.run(lambda comm: comm.all_reduce(np.ones(1000, np.float32)))
        # it has had none if every frame had to be sent again
        group.comms[0].path.round_trip.table[0] = 0.05, 0.01, 0.05, 0.001, 0.0
        after = group.comms[0].metrics()
    declared = {metric.name for metric in metrics.declared() if metric.name.startswith("p4reduce_worker_")}
    assert set(after) == declared
    assert before["p4reduce_worker_round_trip_seconds"] == 0
    assert 0 < after["p4reduce_worker_round_trip_seconds"] <= after["p4reduce_worker_timeout_seconds"]
    assert after["p4reduce_worker_rounds_total"] > 0


def test_rank_0_says_at_the_end_what_was_sent_and_saved(caplog: pytest.LogCaptureFixture) -> None:
    """Dense are the tensors that a rank sends, in their own types: those of sums whole, of a broadcast the root's."""
    caplog.set_level("INFO", "p4reduce")
    numbers, told = np.zeros(30_000, np.float32), np.ones(500, np.float32)
    numbers[:100] = 1
    membership = Mock(failure=lambda: None)
    with LocalGroup(2) as group:
        first, second = group.comms
        for comm in (first, second):
            comm.at_close.append(log_summary)
        first.failure.membership, first.count_over_gloo = membership, lambda: 7
        for _ in range(2):
            group.run(lambda comm: settle(comm, UnderflowError("found by its exponents")))
        group.run(lambda comm: comm.all_reduce(numbers))
        group.run(lambda comm: comm.all_reduce(numbers.astype(np.float16)))
        group.run(lambda comm: comm.broadcast(told, root=0))
        assert (first.stats.dense_bytes, second.stats.dense_bytes) == (182_000, 180_000)
        group.run(lambda comm: comm.close())
    (line,) = (record for record in caplog.records if record.getMessage() == "job summary")
    (said,) = (record for record in caplog.records if record.getMessage() != "job summary")
    assert said.getMessage() == "sum underflows", "once, and no line of each collective that was refused for it"
    fields = line.__dict__["p4reduce_fields"]
    counts = [fields[name] for name in ("over_p4reduce", "over_gloo", "underflows")]
    assert counts == [6, 7, 2], "with the last one, of close()"
    assert (fields["sent_bytes"], fields["saved_bytes"]) == (first.stats.bytes_up, 182_000 - first.stats.bytes_up)
    assert 0 < first.stats.bytes_up < 50_000 and fields["collective_s"] > 0
    membership.leave.assert_called_once_with(finished=True)
