"""Lightning's Trainer, which starts its ranks itself."""

from __future__ import annotations

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from problem import dataset, network, write
from torch.utils.data import DataLoader

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        loss = torch.nn.functional.mse_loss(self.net(inputs), labels)
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main() -> None:
    strategy = DDPStrategy(process_group_backend="p4reduce")
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=2, **QUIET)
    model = Regression()
    trainer.fit(model, DataLoader(dataset(), batch_size=8))
    assert torch.distributed.get_backend() == "p4reduce"
    write(model.net, trainer.global_rank)


if __name__ == "__main__":
    main()
