"""How the compiled pump sends: what belongs together leaves together."""

from __future__ import annotations

import select
import socket
from typing import Any

import numpy as np
import pytest

from p4reduce.protocol.collective import load_kernels, make_channel
from p4reduce_contracts import datagrams
from p4reduce_contracts.wire import ENCAP_BYTES

COLUMNS, BLOCK_WORDS, HEADER_WORDS = 8, 32, 16


def test_frames_of_one_length_leave_as_a_run() -> None:
    k: Any = load_kernels()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
    ):
        there.bind(("127.0.0.1", 0))
        here.connect(there.getsockname())
        datagrams.accept_runs(there)
        channel = make_channel(here.fileno(), plain=False)
        if k is None or channel is None:
            pytest.skip("needs numba and 64-bit Linux")
        blocks = [3, 8, 0, 3, 8, 8, 0, 3, 1]
        count = len(blocks)
        channel.make_room(count)
        head = np.zeros(k.HEAD, np.int64)
        head[k.COLUMNS], head[k.BLOCK_WORDS], head[k.HEADER_WORDS] = COLUMNS, BLOCK_WORDS, HEADER_WORDS
        head[k.ENCAP] = ENCAP_BYTES
        slots = np.zeros((count, k.FIELDS), np.int64)
        sizes = [4 * (HEADER_WORDS + block * BLOCK_WORDS) for block in blocks]
        slots[:, k.FRAME_BYTES] = sizes
        frames = np.repeat(np.arange(count, dtype=np.uint32)[:, None], HEADER_WORDS + COLUMNS * BLOCK_WORDS, axis=1)
        answers = np.zeros((3, count), np.int64)
        answers[0] = range(count)[::-1]
        send: Any = channel.pump.send_frames
        send(channel.io, channel.to, channel.polled[1], channel.vector, head, slots, frames, answers, count)
        runs = []
        while select.select([there], [], [], 0 if runs else 10)[0]:
            runs.append(np.frombuffer(there.recv(1 << 16), np.uint32))
        # the longest first, slots in the order of the answers; the run's last frame may be a shorter one
        sent = [int(slot) for run in runs for slot in run[np.r_[True, run[1:] != run[:-1]]]]
        assert sent == [5, 4, 1, 7, 3, 0, 8, 6, 2]
        assert len(runs) < 5
        assert (head[k.FRAMES_UP], head[k.BYTES_UP]) == (count, sum(sizes) + count * ENCAP_BYTES)
        channel.close()
