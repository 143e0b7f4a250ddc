"""One member of the campaign of tests/system/members.py; needs torch 2.14.

    member.py PORT NUMBER BACKEND PACE_S

It trains a model whose gradients are small whole numbers, so that every right sum has the same bits. After a change of
the members they go on from the state of the one that has made the most steps.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

WEIGHTS: Final = 20_000
LIMIT_S: Final = 60.0
GROUP_S: Final = 10.0
"""The group's time limit: with gloo a member may wait for so long for one that was killed."""
JOINS, ENDS = 1, 1000
"""What members hear of: that others join, and that the step is the last one."""


def gradient(step: int, number: int) -> torch.Tensor:
    """Return the gradient of member `number` in a step: whole numbers from -8 to 8."""
    generator = torch.Generator().manual_seed(1_000_003 * step + number)
    return torch.randint(-8, 9, (WEIGHTS,), generator=generator).float()


def stepped(weights: torch.Tensor, total: torch.Tensor, members: int) -> torch.Tensor:
    """Return the weights after a step with this sum of so many members' gradients."""
    return weights - 0.01 * total / members


class Member:
    def __init__(self, port: int, number: int, backend: str, pace_s: float) -> None:
        self.number, self.backend, self.pace_s = number, backend, pace_s
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=LIMIT_S))
        whose = {"store": self.store, "rank": number, "world_size": number + 1}
        dist.init_process_group(backend, **whose, timeout=timedelta(seconds=GROUP_S), enable_reconfigure=True)
        self.weights = torch.zeros(WEIGHTS)
        self.history: list[int] = []
        """The generation of the members in each step."""
        self.numbers: dict[int, list[int]] = {}
        self.wrong = 0

    def run(self) -> None:
        generation, why, last = 0, "join", time.monotonic()
        self.store.set(f"handle/{generation}/{self.number}", dist._get_reconfigure_handle())
        while True:
            self.store.wait([f"members/{self.number}/{generation}"], timedelta(hours=1))  # a spare one
            told = json.loads(self.store.get(f"members/{self.number}/{generation}"))
            begun = time.monotonic()
            generation = told["generation"]
            dist._reconfigure(told["generation"], told["handles"], timeout=timedelta(seconds=LIMIT_S)).wait()
            reconfigured_s = time.monotonic() - begun
            self.numbers[generation] = told["numbers"]
            first = True
            try:
                self.go_on_from_the_most_steps()
                while True:
                    changes = self.step(generation)
                    if first and why != "join":
                        self.store.append("pauses", json.dumps([time.monotonic() - last, reconfigured_s, why]) + "\n")
                    first, last = False, time.monotonic()
                    if changes >= ENDS:
                        return
                    if changes:
                        why = "grow"
                        break
                    time.sleep(self.pace_s)
            except RuntimeError as error:
                why = "shrink"
                if self.backend == "gloo":  # else those of the others that wait for this one do so until their limit
                    dist.get_backend_impl(dist.group.WORLD, torch.device("cpu")).abort()
                print(f"{generation}: {str(error)[:200]}", flush=True)
            self.store.set(f"handle/{generation}/{self.number}", dist._get_reconfigure_handle())

    def go_on_from_the_most_steps(self) -> None:
        """Take over the state of the member with the most steps, of which there may be one more than others have."""
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, (len(self.history), self.history[-2:]))
        most = max(range(len(states)), key=lambda rank: states[rank][0])
        if any(state != states[most] for state in states):
            box = [(self.history, self.numbers)]
            dist.broadcast_object_list(box, src=most)
            dist.broadcast(self.weights, src=most)
            self.history = list(box[0][0])
            self.numbers = {**box[0][1], **self.numbers}

    def step(self, generation: int) -> float:
        """Make a step; return 0, or what members have heard: less than ENDS that others join, else that this is all."""
        step, numbers = len(self.history), self.numbers[generation]
        mine = torch.cat([gradient(step, self.number), torch.zeros(1)])
        if self.store.check([key := f"change/{generation}"]):
            mine[-1] = float(self.store.get(key))
        dist.all_reduce(mine)
        wanted = torch.stack([gradient(step, number) for number in numbers]).sum(0)
        self.wrong += not torch.equal(mine[:-1], wanted)
        self.weights = stepped(self.weights, mine[:-1], len(numbers))
        self.history.append(generation)
        if dist.get_rank() == 0:
            self.store.set("at", json.dumps([generation, len(self.history)]))
        return float(mine[-1])


def main() -> None:
    port, number, backend, pace_s = sys.argv[1:]
    member = Member(int(port), int(number), backend, float(pace_s))
    try:
        member.run()
    except BaseException:
        member.store.set(f"failed/{number}", traceback.format_exc())
        raise
    found = {
        "history": member.history,
        "numbers": member.numbers,
        "weights": member.weights.view(torch.int32).tolist(),
        "wrong": member.wrong,
    }
    member.store.set(f"result/{number}", json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
