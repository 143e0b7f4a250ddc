"""Lightning's Trainer with the hook, AdaComp and checkpoints; with RESUMED set it goes on from that one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from problem import dataset, network, write
from torch.utils.data import DataLoader

import p4reduce
from p4reduce.pytorch import checkpoint


class Compressed(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.saved = network(), None

    def on_train_start(self) -> None:
        self.hook = p4reduce.DDPState(dist.group.WORLD, p4reduce.AdaComp(), module=self.trainer.model)
        self.trainer.model.register_comm_hook(self.hook, p4reduce.ddp_hook)
        if self.saved is not None:
            checkpoint.load_gathered(self.hook, self.saved)

    def on_save_checkpoint(self, saved: dict[str, Any]) -> None:
        saved["hook"] = checkpoint.gather(self.hook)

    def on_load_checkpoint(self, saved: dict[str, Any]) -> None:
        self.saved = saved["hook"]

    def on_train_end(self) -> None:
        self.hook.close()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        return torch.nn.functional.mse_loss(self.net(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main() -> None:
    folder = Path(sys.argv[1]).parent
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="p4reduce"),
        max_epochs=2,
        callbacks=[ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Compressed()
    resumed = os.environ.get("RESUMED")
    trainer.fit(model, DataLoader(dataset(), batch_size=8), ckpt_path=resumed)
    assert (trainer.fit_loop.epoch_progress.current.completed, model.saved is None) == (2, resumed is None)
    write(model.net, trainer.global_rank)


if __name__ == "__main__":
    main()
