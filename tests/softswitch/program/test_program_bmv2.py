"""The little programs against BMv2 itself: the same random frames in, the same frames out.

BMv2 reads and writes packet files (--use-files), so this needs neither interfaces nor a control plane.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from p4reduce_switch.program import ExecutionError, Program

SWITCH = shutil.which("simple_switch_grpc")
PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_S = 20.0
FRAMES = 60  # BMv2's queue to a port holds 64, and it drops what comes faster than it works
SPACING_US = 1000
EDGES = (0, 1, 2, 7, 127, 128, 129, 255)

Generator = Callable[[random.Random], bytes]


def some(source: random.Random, length: int) -> bytes:
    return bytes(source.choice((*EDGES, source.randrange(256))) for _ in range(length))


def arithmetic(source: random.Random) -> bytes:
    return some(source, 11 + source.randrange(3))


def stack(source: random.Random) -> bytes:
    count = source.randrange(1, 5)  # operations 3 and 6 would read elements that are not there
    frame = bytes([source.choice((0, 1, 2, 5, 7, 9)), 0, 0, 0])
    for index in range(count):
        frame += bytes([source.randrange(128) << 1 | (index == count - 1), source.choice((0, 64, 64, 64))])
    return frame + some(source, source.randrange(3))


def tables(source: random.Random) -> bytes:
    a, b = (
        source.choice((1, 2, 3, 0x10, 0x12, 0x13)),
        source.choice((1, 2, 3, 5, 100, 150, 200, 201, 300, 301)),
    )
    c = source.choice((0x0A0B0C0D, 0x0A0B0101, 0x0A010101, source.getrandbits(32)))
    return struct.pack(">BBHIH", source.randrange(8), a, b, c, 0)


def varbit(source: random.Random) -> bytes:
    words = source.choice((5, 6, 7, 15))
    frame = bytes([0x40 | words, source.randrange(5)]) + some(source, words * 4 - 2 + 4 + source.randrange(4))
    return frame[: source.choice((len(frame), source.randrange(1, len(frame))))]


def unions(source: random.Random) -> bytes:
    kind = source.randrange(4)
    return bytes([kind, source.randrange(4)]) + some(source, 4 + source.randrange(4))


def checksums(source: random.Random) -> bytes:
    return bytes([source.randrange(2), 0]) + some(source, 16 + source.randrange(20))


def wide(source: random.Random) -> bytes:
    return struct.pack(">H", source.randrange(4)) + source.randbytes(128)


def loops(source: random.Random) -> bytes:
    return some(source, 6)


def write_pcap(path: Path, frames: list[bytes]) -> None:
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for index, frame in enumerate(frames):
            seconds, micros = divmod(index * SPACING_US, 1_000_000)
            file.write(struct.pack("<IIII", seconds, micros, len(frame), len(frame)) + frame)


def read_pcap(path: Path) -> list[bytes]:
    data, offset, frames = path.read_bytes() if path.exists() else b"", 24, []
    while offset + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, offset + 8)
        if offset + 16 + length > len(data):
            break
        frames.append(data[offset + 16 : offset + 16 + length])
        offset += 16 + length
    return frames


def run_bmv2(folder: Path, program: str, frames: list[bytes], expected: int) -> list[bytes]:
    """Frames that BMv2 sends at port 1; waits until there are `expected` of them."""
    write_pcap(folder / "port1_in.pcap", frames)
    command = [str(SWITCH), "--use-files", "1", "-i", "1@port1", str(PROGRAMS / f"{program}.json"), "--"]
    command += ["--grpc-server-addr", f"unix:{folder}/grpc.sock"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(read_pcap(folder / "port1_out.pcap")) < expected and time.monotonic() < deadline:
            try:
                process.wait(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                continue
        return read_pcap(folder / "port1_out.pcap")
    finally:
        process.kill()
        process.wait()


@pytest.mark.bmv2
@pytest.mark.slow
@pytest.mark.skipif(SWITCH is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize(
    "generator", [arithmetic, stack, tables, varbit, unions, checksums, wide, loops], ids=lambda g: g.__name__
)
def test_same_frames_as_bmv2(load: Callable[[str], Program], tmp_path: Path, generator: Generator) -> None:
    name = generator.__name__
    program, source = load(name), random.Random(name)
    frames, expected = [], []
    while len(frames) < FRAMES:
        frame = generator(source)
        try:
            expected += [data for _, data in program.process(1, frame)]
        except ExecutionError:
            continue  # undefined: BMv2 would abort
        frames.append(frame)
    sent = run_bmv2(tmp_path, name, frames, len(expected))
    assert [f.hex() for f in sent] == [f.hex() for f in expected]
