"""Memory of a worker beyond its tensors, and of the switch: the kernel's peak values."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.cases.dense import FLOAT_BYTES, MEGABYTE
from p4reduce_lab.bench.cluster import running_cluster
from p4reduce_lab.bench.links import LOOPBACK
from p4reduce_lab.bench.worker import peak_memory

WORKERS = 4
_MEGABYTES, _QUICK_MEGABYTES = 25, 4
_TIMES = 3
_WORKER_EXTRA = 128 * MEGABYTE
_SWITCH_BYTES = 512 * MEGABYTE
WORKER = Threshold("memory of a worker beyond the tensors: 2x the tensor + 128 MB / used", 1)
SWITCH = Threshold("memory of the switch: 512 MB / used", 1)


def measure(run: Run) -> None:
    """Sum a dense tensor a few times, without torch in the workers, and read the peaks."""
    megabytes = _QUICK_MEGABYTES if run.quick else _MEGABYTES
    tensor = megabytes * MEGABYTE
    with running_cluster(run, LOOPBACK, WORKERS, gloo=False) as cluster:
        for _ in range(_TIMES):
            cluster.all_reduce("p4reduce", tensor // FLOAT_BYTES)
        replies = cluster.workers.ask("memory")
        switch = float(peak_memory(cluster.system.switches[0].pid))
    tensors = 2 * tensor  # what goes in, and what comes out
    beyond = [reply["peak"] - reply["before"] - tensors for reply in replies]
    whole = [reply["peak"] / MEGABYTE for reply in replies]
    what = f"dense float32, {megabytes} MB, {WORKERS} workers, peak"
    run.add(Series(f"{what}, whole process", "worker", str(LOOPBACK), "MB", whole))
    run.add(Series(f"{what}, beyond the tensors", "worker", str(LOOPBACK), "MB", [b / MEGABYTE for b in beyond]))
    run.add(Series(f"{what}, whole process", "switch", str(LOOPBACK), "MB", [switch / MEGABYTE]))
    run.ratio(WORKER.name, [2.0 * tensor + _WORKER_EXTRA], [max(MEGABYTE, *beyond)])
    run.ratio(SWITCH.name, [float(_SWITCH_BYTES)], [switch])
    run.note("Beyond the tensors: the peak less what goes in and comes out, and less Python with numpy before joining.")


CASE = Case(
    "memory", "peak memory of a worker beyond its tensors, and of the switch", measure, thresholds=(WORKER, SWITCH)
)
