"""The scripts of examples/ by themselves, as a newcomer runs them; the demo's tests run train.py over the switch."""

import importlib.util
import os
import re
import runpy
import sys
import time
from pathlib import Path

import pytest

from p4reduce_lab.training import find_script, load_script
from rigs.fork_server import TORCH, ForkServer, fork_server
from rigs.limits import LIMIT_S
from rigs.script_runs import environment
from rigs.system import System

MISSING = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]


def test_they_train(wide_system: System, tmp_path: Path) -> None:
    """train.py over gloo, and compressed over the backend; fsdp.py dense and compressed."""
    with fork_server(tmp_path, [*TORCH, "sklearn.datasets"]) as server:
        command = str(find_script()), "--epochs", "1", "--batch", "64"
        (output,) = server.launch(tmp_path, 1, *command, environment=os.environ, timeout_s=LIMIT_S)
        *steps, accuracy = output.splitlines()
        assert [line.partition(" loss ")[0] for line in steps] == ["step 10/22", "step 20/22", "step 22/22"]
        assert accuracy.startswith("test accuracy ") and accuracy.endswith(" %")
        command = *command, "--aggregation", "p4reduce", "--compressor", "adacomp"
        outputs = server.launch(tmp_path, 2, *command, environment=environment(wide_system), timeout_s=LIMIT_S)
        assert re.search(r"^test accuracy \d+\.\d+ %$", outputs[0], re.MULTILINE), outputs
        losses, gradient_bytes = zip(
            *(fsdp(wide_system, server, tmp_path, text) for text in ("", "quantize")), strict=True
        )
        assert 2 < losses[0] < 4 and losses[1] < 1.01 * losses[0] and losses[1] != losses[0]
        assert gradient_bytes[0] > 3.3 * gradient_bytes[1], "one step of 50 is dense"


def fsdp(system: System, server: ForkServer, folder: Path, compressor: str) -> tuple[float, int]:
    """Return the held-out loss and the bytes down of two ranks with FSDP2, whose sums none adds up on the host."""
    command = str(find_script().with_name("fsdp.py")), "--steps", "50", "--layers", "1", "--width", "64"
    variables = {**environment(system), "P4REDUCE_HOSTS": "off", "P4REDUCE_COMPRESSOR": compressor}
    outputs = server.launch(folder, 2, *command, environment=variables, timeout_s=LIMIT_S)
    found = re.search(r"held out (\S+), bytes of gradients up \d+ down (\d+)$", outputs[0].strip())
    assert found is not None, outputs
    return float(found[1]), int(found[2])


def test_tensor_parallel_inference_has_the_same_tokens_as_over_gloo(torch_server: ForkServer, tmp_path: Path) -> None:
    hashes = []
    for backend in ("gloo", "p4reduce"):
        command = str(find_script().with_name("tensor_parallel.py")), "--tokens", "8", "--backend", backend
        output, _ = torch_server.launch(tmp_path, 2, *command, environment=environment(None), timeout_s=LIMIT_S)
        hashes += re.findall(r"^\S+ tokens/s, tokens (\w{16})$", output, re.MULTILINE)
    assert len(hashes) == 2 and len(set(hashes)) == 1, hashes


def test_unknown_compressors_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for reason, options in {
        "--compressor needs --aggregation p4reduce": ["--compressor", "adacomp"],
        "unknown compressor 'nosuch'; known are adacomp, ": ["--aggregation", "p4reduce", "--compressor", "nosuch"],
    }.items():
        monkeypatch.setattr(sys, "argv", [str(find_script()), *options])
        with pytest.raises(SystemExit, match="2"):
            runpy.run_path(str(find_script()), run_name="__main__")
        assert reason in capsys.readouterr().err


def test_the_first_steps_of_the_demo_take_few_bytes_and_rounds_with_adacomp() -> None:
    """Over a switch in this process: a dense ring's bytes against those down, and blocks down a round."""
    import torch

    from p4reduce.communicator import Communicator
    from p4reduce.compressors import AdaComp
    from p4reduce.compressors.all_reduce import all_reduce_compressed
    from p4reduce.testing.local_group import LocalGroup
    from p4reduce_lab.study.train import gradients_of

    ranks, steps, batch, script = 4, 30, 16, load_script()
    (images, labels), _ = script.digits()
    torch.manual_seed(0)
    model, compressors = script.Net(), [AdaComp() for _ in range(ranks)]
    for compressor in compressors:
        compressor.bind(model)
    named = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)

    def step(comm: Communicator) -> dict[str, torch.Tensor]:
        return all_reduce_compressed(comm, compressors[comm.rank], gradients[comm.rank])[0].means

    with LocalGroup(ranks, clock=lambda: time.monotonic() / 1000) as group:  # slow: it sends no frame again
        for batches in torch.arange(steps * ranks * batch).view(steps, ranks, batch):
            given = [(images[mine], labels[mine]) for mine in batches % len(labels)]
            gradients, _ = gradients_of(model, named, given)
            for key, mean in group.run(step)[0].items():
                named[key].grad = mean
            optimizer.step()
        spent = group.comms[0].stats
    ring = 2 * (ranks - 1) / ranks * 4 * sum(value.numel() for value in model.parameters())
    assert ring * steps > 22 * spent.bytes_down and spent.blocks_down > 3 * spent.rounds
