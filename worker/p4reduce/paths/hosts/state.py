"""The memory that the ranks of a host share, and one rank's sum in it, as kernels.py sees them.

The control pages are numbers of 8 bytes. Each rank writes its own of them alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from p4reduce.protocol.state import PartLayout, Words
from p4reduce_runtime.records import Matrix, ReadOnly, Record, Table, Vector

DONE_AT: Final = 1024
"""Index in the control pages of the number of each rank's last sum of which it has done its part."""
FAILED_AT: Final = 2048
"""Index of the sum in which each rank failed."""
PUBLISHED_AT: Final = 3072
"""Index of the number, for each rank, of blocks of each shard that its data has in the memory."""
FINISHED_AT: Final = 4096
"""Index of the number of blocks of each rank's shard that are summed."""
CALLED_AT: Final = 5120
"""Index of the number of each rank's last call, where calls are compared here."""
CALLS_AT: Final = 6144
"""Index of the words of each rank's calls: of those with even numbers, then of the others."""
BEGINS_AT: Final = 7168
"""Index of the word of the memory where each rank's data begins, with IN_PLACE where its sum belongs there too."""
SLEEPS_AT: Final = 7680
"""Index of whether each rank sleeps until another one's number changes."""
CALL_WORDS: Final = 4
IN_PLACE: Final = 1 << 62
ALL_BLOCKS: Final = 1 << 32
"""The number of blocks that stands for all."""

DATA_WORDS: Final = 1 << 30
"""Words of data that one rank writes for a sum, and of the sums, at most."""
ONE_SHOT_WORDS: Final = 1 << 12
"""Words of data, times ranks, up to which each rank sums all shards itself, and waits for no sum of another: in one
shot (docs/hosts.md)."""
ONE_SHOT_BLOCKS: Final = 1 << 10
"""The same of blocks."""
BUFFER_WORDS: Final = ONE_SHOT_WORDS + 2 * ONE_SHOT_BLOCKS // 4
"""Words of one of the buffers after a rank's data: data, exponents, and which blocks the rank holds. The first and the
last are for sums in one shot, in turns, as other ranks may still read the last one's. That between them, which does not
begin on a page (`memory._SUMS_AT`), has this rank's sums."""
BUFFERS: Final = 3

YIELDS: Final = 400
"""Times that a rank yields, a quarter of a millisecond, before it sleeps: to be woken takes longer than its turn."""

PUBLISH, CALL, SUM, AWAIT_SUMS, END = range(5)
"""What a rank does next in a collective."""
DONE, WAITS, COMPARE = range(3)
"""Why a kernel returned: its work is done, others are waited for, or their calls differ from this rank's."""

ALL, OTHER_SHARDS, NOTHING = range(3)
"""What a rank copies: every block; those that it does not sum itself; none."""


class RunState(Record):
    """One rank's collective in the memory of its host, whose ranks are all ranks."""

    place: int
    ranks: int
    call_number: int
    """0: the ranks compare their calls elsewhere, between two calls of the kernel."""
    sum_number: int
    next_step: int
    yields: int
    """Times that the rank yields the processor before it sleeps; 0 once it has slept."""
    blocks: int
    input_words: int
    """Words from the memory of one rank to that of the next."""
    sums_begin: int
    """The word, counted as those of the data, where the sums begin."""
    begin: int
    """The word where this rank's data begins, with IN_PLACE."""
    one_shot: bool
    """Whether each rank sums all shards."""
    copies_in: int
    """What of its data the rank copies to its area, and what of the sums to its result: ALL, OTHER_SHARDS, NOTHING."""
    copies_out: int
    in_place: bool
    """Whether all ranks have their data in the memory, and get the sums there. Known with the sums."""


class Copied(Record):
    """The places of one part's data, and of its results."""

    values: int
    """The address of the data, and its length in words."""
    words: int
    per_block: int
    """Words of a block, and blocks of all senders between two of this one's."""
    step: int
    first: int
    """The first block of the part, and the number of its blocks."""
    blocks: int
    begin: int
    """The word of the rank's area where the data is copied to."""
    end: int
    """`end` of the part's layout where data is copied, and where it stays where the caller has it."""
    end_there: int
    sums_begin: int
    """The word of the sums where those of the first block that is kept begin."""
    sum_words: int
    """Words of the sum of a block."""
    kept_begin: int
    kept_end: int
    found_begin: int
    """The words of the results where those of this part begin, and end."""
    found_end: int


class Host(NamedTuple):
    """The memory of a host, and one rank's collective in it."""

    run: Table[RunState]
    control: Vector[np.uint64]
    exponents: Vector[np.uint8]
    nonzero: Vector[np.uint8]
    """Those of all ranks' blocks, and of the sums, as far apart as their memory."""
    elements: ReadOnly[np.uint32]
    data: Words
    """The data of all ranks; `elements` is the same, read-only."""
    call: Vector[np.uint64]
    """[CALL_WORDS]: what this rank calls."""
    own_exponents: Vector[np.uint8]
    own_nonzero: Vector[np.bool_]
    """[blocks]: those of this rank."""
    agreed: Vector[np.uint8]
    """[blocks]: the exponents of the sums."""
    parts: Table[PartLayout]
    own_parts: Table[PartLayout]
    copied: Table[Copied]
    scales: Matrix[np.float64]
    units: Matrix[np.float64]
    begins: Vector[np.int64]
    """[ranks + 1]: the word from which each one's words are counted, and that where the sums begin."""
    holders: Vector[np.uint64]
    words: Matrix[np.uint32]
    """[2, block_words]"""
    spare: Vector[np.float32]
