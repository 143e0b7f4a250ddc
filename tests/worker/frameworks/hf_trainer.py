"""Transformers' Trainer with a small random model, started by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from problem import write
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(64, (12,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


def main() -> None:
    dist.init_process_group("p4reduce")
    folder = str(Path(sys.argv[1]).parent)
    arguments = TrainingArguments(folder, use_cpu=True, max_steps=4, save_strategy="no", report_to=[])
    torch.manual_seed(5)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens())
    trainer.train()
    assert isinstance(trainer.model_wrapped, torch.nn.parallel.DistributedDataParallel)
    assert dist.get_backend() == "p4reduce"
    write(trainer.model, arguments.process_index)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
