"""The whole state of a collective, as records and arrays: initial_state.py makes it, and the kernels work on it.

Words are uint32 in this machine's order, frames big-endian.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.stats import CollectiveStats
from p4reduce_contracts.wire.calls import Kind
from p4reduce_contracts.wire.numbers import MAX_BLOCKS
from p4reduce_runtime.records import Matrix, ReadOnly, Record, Table, Vector

COLUMN_DONE: Final = MAX_BLOCKS + 1
"""The last block of a column in which no further block may come."""

FLOAT32, FLOAT16, BFLOAT16 = range(3)


class Format(NamedTuple):
    """A format of floating-point numbers in memory."""

    name: str
    word_shift: int
    """The binary logarithm of how many of the numbers are in 32 bits."""
    largest: float
    """The largest number, or a little less."""


FORMATS: Final = (
    Format("float32", 0, 3.4028234663852886e38),
    Format("float16", 1, 65504.0),
    Format("bfloat16", 1, 3.4028234663852886e38),
)
"""The formats by FLOAT32, FLOAT16 and BFLOAT16."""
ROUNDS_A_SLOT: Final = 4
"""Rounds that a slot should carry: its opening frame then is a small part, and a few round trips suffice."""
SPLIT_ROUNDS: Final = 6
"""Rounds of full frames after which a slot splits: few of a known call, with ROUNDS_A_SLOT in the mean, need more."""
MOST_LANES: Final = 4
"""Most numbers in a word."""
UNTOUCHED: Final = 255
"""The agreed exponent of a block that no rank held: its sum is zero."""

Columns = Annotated[NDArray[np.int64], 8]
"""One number for each column of a frame."""
Words = Vector[np.uint32]


class Config(Record):
    """What a collective does not change. `sparse` and the opening words are of one, the rest of all alike."""

    columns: int
    block_words: int
    header_words: int
    growth_blocks: int
    """Number of blocks by which a RESULT may be longer than the frame that it answers."""
    encap_bytes: int
    job: int
    epoch: int
    switches: int
    together: int
    """Number of switches side by side, and of slots in a row at one of them."""
    ranks: int
    depth: int
    """Number of switches above this rank's own, up to the root."""
    full: int
    """The children of the root, as a bitmap."""
    stride: int
    """Columns times the slots opened at first: the stride of `keys`, and at first of each slot."""
    eager: bool
    """Whether a slot splits at once whose first keys are of adjacent blocks."""
    sparse: bool
    """Whether blocks are missing between those held, so that the processor does not fetch the next by itself."""
    shared: bool
    """Whether calls share places in slot 0's opening frame (wire/opening.py)."""
    opening_own: int
    opening_zeros: int
    """The columns of that frame with words of this rank, and those with nothing but zeros, as bitmaps."""
    opening_places: Annotated[NDArray[np.int64], 8]
    opening_words: Annotated[NDArray[np.int64], 8]
    """The words that this rank puts into that frame, and the places of them, counted in words; -1: none. The first four
    are its call's descriptor, the fifth is their digest."""


class State(Record):
    """The progress of a collective."""

    begins: bool
    """Whether `begin` (recovery.py) is still to be called."""
    slots: int
    """Slots that were opened."""
    open_slots: int
    """Number of these slots that do not have their last RESULT."""
    refused: bool
    """Whether a rank refused: opening rounds end, and no block is sent."""
    calls_compared: bool
    """Whether the calls in the RESULT at hand, of slot 0's opening round, are compared already."""
    next_window: int
    """Known after the opening round: the smallest window any rank proposed for the next collective."""
    received: int
    """Frames of the burst at hand."""
    next_received: int
    """The first of them that is not taken in yet."""
    first_switch: int
    """The switch whose frames are received first next time."""
    contributions: int
    """Slots whose next frame is to be made."""
    early_results: int
    """Opening RESULTs that are held back, since that of slot 0 has not come."""
    needed: int
    """The end of the blocks of the slots in `contributions`, as far as this host holds them."""
    published: int
    """Number of blocks that all ranks of this host had published at the last look."""
    longest_result: int
    """Bytes of the longest RESULT that came."""
    foreign_at_progress: int
    malformed_at_progress: int
    stale_at_progress: int
    """The counts of refused frames at the last RESULT or PENDING that was of use."""


class Path(Record):
    """The times measured on the path to a switch, in seconds; collectives of one lease share them (rtt.py)."""

    smoothed_rtt: float
    """The smoothed round-trip time; NaN before the first sample."""
    rttvar: float
    min_rtt: float
    result_interval: float
    """The smoothed interval between two RESULTs."""
    last_wait: float
    """The duration of the last wait for a datagram, of any switch: only in the first record."""


class Loss(Record):
    """Loss detection's state for the slots of a switch (recovery.py); times are seconds of the caller's clock."""

    largest_sent: int
    """The packet number of the frame sent last; the first one to a switch has 1."""
    largest_acked: int
    """The largest packet number that has its RESULT, of frames sent once; 0: none has."""
    largest_acked_any: int
    """The largest of all that have their RESULT, retransmitted frames included."""
    latest_rtt: float
    """The time from sending frame `largest_acked` to its RESULT."""
    last_result_at: float
    in_flight: int
    """Slots whose frame has no RESULT, a list in the order of packet numbers: `oldest` to `newest`, or -1."""
    oldest: int
    newest: int
    pto_count: int
    """Probe timeouts since the last RESULT."""
    pto: float
    """The probe timeout at present, and when it expires."""
    pto_at: float
    max_pto: float
    ambiguous_wait: float
    """The duration of the last probe for an ambiguous loss; 0 when a RESULT came since."""
    ambiguous_until: float
    timer_at: float
    """The time at which something may have to be sent again; infinity when nothing is in flight."""


class Slot(Record):
    """The round that a slot is in."""

    switch: int
    number: int
    """The switch that has the slot, and the slot's number there."""
    round_number: int
    opening: bool
    done: bool
    """Whether it has its last RESULT; a slot that is not opened has no frame and is done too."""
    stride: int
    """Number of blocks from one of a column to the next; those of slot i begin at block i · columns."""
    agreed: int
    """Blocks that the ranks have agreed on; after more than SPLIT_ROUNDS rounds of them it splits (receive.py)."""
    expected: int
    """The columns that the RESULT of this round has, as a bitmap."""
    frame_bytes: int
    """Length of this round's frame; 0: none is sent, or it was answered."""
    seen: int
    seen_level: int
    """The children that had contributed to the switch so many levels above this rank's own, as the last PENDING of this
    round said; -1: none came."""
    sent_at: float
    packet_number: int
    in_flight: bool
    previous: int
    next: int
    """The neighbouring slots in the list of frames in flight."""
    retransmits: int
    """Number of retransmissions of this round's frame."""
    renumbered: bool
    """Whether the frame has a new packet number since."""
    corrupt_results: int
    """Number of sends of this round's frame that were answered with the same RESULT, which cannot be right."""
    corrupt_retransmits: int
    """The value of `retransmits` when that RESULT came last."""
    keys: Columns
    """The look-ahead keys that this rank sent in this round."""
    last_blocks: Columns
    """The last block of each column that the ranks agreed on; -1: none."""
    blocks: Columns
    exponents: Columns
    """The blocks summed in this round, and their exponents, of the columns in `expected`."""


class PartLayout(Record):
    """The places of a part's data and sums (blocks.py)."""

    first_block: int
    begin: int
    end: int
    """The first number of the part in `elements` and the end, counted in numbers of its form."""
    step: int
    """Blocks of other senders between two of it, plus one."""
    lanes: int
    """Numbers in a word; 0: the elements are the words."""
    form: int
    """The format of its numbers in memory (FORMATS)."""
    word_shift: int
    """`word_shift` of the format."""
    levels: int
    """The largest absolute value of a lane that a rank sends, where a word has several."""
    decodes: bool
    """Whether its sums are stored as numbers of its form."""
    largest_sum: int
    """No summed word has a larger absolute value."""
    sums_begin: int
    """The word of `sums` with the sum of block 0; before the part's own words if the first blocks are not kept."""
    kept_begin: int
    kept_end: int
    """The first block and the end of those whose sums are stored, counted from the part's first block."""
    input_words: int
    """Words from the memory of one rank of this host to that of the next; 0: the data is of one rank."""


class NextFrame(Record):
    """A slot whose next frame is to be made."""

    slot: int
    own: int
    """The columns with blocks that this rank holds, as a bitmap."""
    zeros: int
    """The columns that it fills with zeros."""


class Received(Record):
    """A datagram of the burst at hand."""

    start: int
    """The index of its first word in the receive buffer."""
    length: int
    """Bytes."""
    type: int
    """The frame's type; IGNORED: no frame for this rank."""
    switch: int
    """The switch that it came from."""


class Engine(NamedTuple):
    """The state of one collective. The first three are tables of one record.

    Those up to `spare` serve all collectives alike, one after the other (initial_state.py), the others those of the
    same blocks; `elements` and `sums` are of one.
    """

    config: Table[Config]
    state: Table[State]
    stats: Table[CollectiveStats]
    loss: Table[Loss]
    path: Table[Path]
    """[switches], as `loss`."""
    secrets: Matrix[np.uint32]
    """[switches, 2]: the high and the low half of this rank's secret at each."""
    rounds: Vector[np.int64]
    """[slots of the lease]: the first round of each slot in the next collective."""
    slots: Table[Slot]
    """All that may be opened."""
    contributions: Table[NextFrame]
    """[slots]: the slots in `state.contributions`; also the slots whose frames are to be sent again."""
    weights: Words
    """The check word's weights of a block's words, and then its columns'."""
    frame_weights: ReadOnly[np.uint32]
    """The weights of the words of a frame that has all columns: products of the two."""
    keys: Words
    """[blocks + stride at least]: the key of the first held block at or after each, a multiple of `stride` from it."""
    frames: Matrix[np.uint32]
    """[slots, words]: each slot's last frame, as it is on the wire."""
    spare: Vector[np.float32]
    """Memory for the numbers of a block, and for its words; nothing in it is kept from block to block."""
    parts: Table[PartLayout]
    scales: Matrix[np.float64]
    units: Matrix[np.float64]
    """[parts, 256], by exponent: the factors that make a word of a number, and back."""
    nonzero: Vector[np.bool_]
    """[blocks]: those that this rank holds."""
    exponents: Vector[np.uint8]
    """[blocks]: the exponent that each of these needs."""
    elements: ReadOnly[np.uint32]
    holders: Vector[np.uint64]
    """[blocks]: a bitmap of the ranks of this host that hold the block, where the data is that of several."""
    published: Vector[np.uint64]
    """[ranks of this host]: how many blocks of its data each has published; other processes change it."""
    begins: Vector[np.int64]
    """[ranks of this host]: the word of `elements` from which each rank's words of a part are counted."""
    sums: Words
    agreed: Vector[np.uint8]
    """[blocks]: the exponent agreed for each, UNTOUCHED where no rank held it."""


REFUSED: Final = int(Kind.REFUSED)
"""The kind of the call of a rank that cannot take part."""
IGNORED: Final = 0
"""The type of a received datagram that is no frame for this rank."""

# why `receive` stopped: all frames are taken in, or Python has to handle frame `next_received`, or the one before it
END, COMPARE_CALLS, HOLD_BACK, CORRUPT_RESULT = range(4)
