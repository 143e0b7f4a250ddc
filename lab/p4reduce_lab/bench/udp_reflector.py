"""Sends every datagram back to where it came from: the upper bound for a switch over UDP with the same batching.

    python -m p4reduce_lab.bench.udp_reflector HOST:PORT [--runs]

With --runs it takes runs of datagrams from the kernel as one (GRO) and gives them back as one (GSO), without it one at
a time. It prints a line when it is ready.
"""

from __future__ import annotations

import argparse
import signal
import socket
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_BUFFER_BYTES = 65536
_SOCKET_BUFFER_BYTES = 8 << 20
_IDLE_MS = 100
# words of the structures that the system calls take; see compile_turn
_MESSAGE, _NAME, _VECTOR, _CONTROL, _POLL, _WORDS = 0, 7, 9, 11, 19, 20


def compiled_turn() -> Callable[[int, NDArray[np.uint8], NDArray[np.int64]], int]:
    """Compile `turn(descriptor, buffer, words)`: wait, and send back what came; return how many runs.

    The structures lie in `words` (int64): msghdr at _MESSAGE, sockaddr_in at _NAME, iovec at _VECTOR, the control
    message at _CONTROL and pollfd at _POLL, as Linux lays them out on 64-bit little-endian processors.
    """
    types: Any = numba.types
    poll = types.ExternalFunction("poll", types.int32(types.uintp, types.uint64, types.int32))
    receive = types.ExternalFunction("recvmsg", types.int64(types.int32, types.uintp, types.int32))
    send = types.ExternalFunction("sendmsg", types.int64(types.int32, types.uintp, types.int32))
    gro, segment = _SOL_UDP | _UDP_GRO << 32, _SOL_UDP | _UDP_SEGMENT << 32

    def turn(descriptor: int, buffer: NDArray[np.uint8], words: NDArray[np.int64]) -> int:
        base, runs = np.int64(words.ctypes.data), 0
        words[_POLL] = descriptor | 1 << 32
        if poll(base + 8 * _POLL, 1, _IDLE_MS) <= 0:
            return 0
        while runs < 4096:
            words[_MESSAGE], words[_MESSAGE + 1] = base + 8 * _NAME, 16
            words[_MESSAGE + 2], words[_MESSAGE + 3] = base + 8 * _VECTOR, 1
            words[_MESSAGE + 4], words[_MESSAGE + 5], words[_MESSAGE + 6] = base + 8 * _CONTROL, 64, 0
            words[_VECTOR], words[_VECTOR + 1] = np.int64(buffer.ctypes.data), len(buffer)
            words[_CONTROL + 1] = 0
            got = receive(descriptor, base, 0x40)  # MSG_DONTWAIT
            if got < 0:
                break
            length = words[_CONTROL + 2] & 0xFFFFFFFF
            has_length = words[_MESSAGE + 5] >= 20 and words[_CONTROL + 1] == gro
            words[_VECTOR + 1] = got
            words[_MESSAGE + 4], words[_MESSAGE + 5], words[_MESSAGE + 6] = 0, 0, 0
            if has_length and length < got:
                words[_CONTROL], words[_CONTROL + 1], words[_CONTROL + 2] = 18, segment, length
                words[_MESSAGE + 4], words[_MESSAGE + 5] = base + 8 * _CONTROL, 24
            send(descriptor, base, 0)
            runs += 1
        return runs

    compiled = numba.njit("int64(int64, uint8[::1], int64[::1])", nogil=True)(turn)
    return lambda descriptor, buffer, words: int(compiled(descriptor, buffer, words))


def main() -> None:
    """Reflect until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("listen", help="HOST:PORT")
    parser.add_argument("--runs", action="store_true", help="take and give runs of datagrams as one")
    args = parser.parse_args()
    host, _, port = args.listen.rpartition(":")
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            opened.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        if args.runs:
            opened.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        turn = compiled_turn()
        opened.bind((host, int(port)))
        print("reflector ready: compiled by numba", flush=True)
        buffer, words = np.zeros(_BUFFER_BYTES, np.uint8), np.zeros(_WORDS, np.int64)
        while not stopped:
            turn(opened.fileno(), buffer, words)


if __name__ == "__main__":
    main()
