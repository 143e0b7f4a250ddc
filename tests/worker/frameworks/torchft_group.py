"""torchft's reconfigurable process group, over two quorums: of all ranks, then of all but the last; by torchrun."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from problem import dataset, network, write
from torchft.process_group import ProcessGroupGloo, ProcessGroupWrapper

from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce


class Reconfigurable(ProcessGroupWrapper):
    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        return ProcessGroupP4Reduce.over(store, rank, world_size)


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
    launch = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))  # torchrun's own
    if store is not None:
        launch.set("quorums", str(store.port))
    port = int(launch.get("quorums"))
    group = {"p4reduce": Reconfigurable, "gloo": ProcessGroupGloo}["p4reduce"](timeout=timedelta(seconds=60))
    model = network()
    inputs, labels = dataset().tensors
    for quorum, ranks in enumerate((size, size - 1)):
        if rank >= ranks:
            break
        group.configure(f"127.0.0.1:{port}/quorum/{quorum}", f"replica{rank}", rank, ranks, quorum)
        for step in range(3):
            model.zero_grad()
            rows = slice(8 * (step * ranks + rank), 8 * (step * ranks + rank) + 8)
            torch.nn.functional.mse_loss(model(inputs[rows]), labels[rows]).backward()
            with torch.no_grad():
                for weight in model.parameters():
                    group.allreduce([weight.grad], dist.ReduceOp.SUM).wait()
                    weight -= 0.05 / ranks * weight.grad
    group.shutdown()
    write(model, rank)
    launch.set(f"{rank} has ended", "")
    if store is not None:  # rank 0 serves the store of the quorums
        launch.wait([f"{each} has ended" for each in range(size)])


if __name__ == "__main__":
    main()
