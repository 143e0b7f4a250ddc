"""The whole state of a collective, as records and arrays: initial_state.py makes it, and the kernels work on it.

Words are uint32 in this machine's order, frames big-endian.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce_contracts.wire.numbers import MAX_BLOCKS
from p4reduce_runtime.records import Record, Table

COLUMN_DONE: Final = MAX_BLOCKS + 1
"""As the last block of a column: no further one may come."""

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
"""What a slot should carry: its opening frame then is a small part, and a few round trips suffice."""
MOST_LANES: Final = 4
"""Most numbers in a word."""

Columns = Annotated[NDArray[np.int64], 8]
"""One number for each column of a frame."""
Words = Annotated[NDArray[np.uint32], "uint32[::1]"]


class Config(Record):
    """What a collective is; it stays."""

    columns: int
    block_words: int
    header_words: int
    growth_blocks: int
    """By how many blocks a RESULT may be longer than the frame that it answers."""
    encap_bytes: int
    job: int
    epoch: int
    secret_high: int
    secret_low: int
    ranks: int
    depth: int
    """How many switches are above this rank's own, up to the root."""
    full: int
    """The children of the root, as a bitmap."""
    stride: int
    """Columns times the slots opened at first: the stride of `keys`, and at first of each slot."""
    sparse: bool
    """Whether blocks are missing between those held, so that the processor does not fetch the next by itself."""
    row_length: int
    """Of the places that calls share in slot 0's opening frame (wire/opening.py); 0: each rank has its own."""
    opening_own: int
    opening_zeros: int
    """The columns of that frame with words of this rank, and those with nothing but zeros, as bitmaps."""
    opening_places: Annotated[NDArray[np.int64], 8]
    opening_words: Annotated[NDArray[np.int64], 8]
    """What this rank puts into that frame, and where, counted in words; -1: nowhere. The first four are its call's
    descriptor, the fifth is their digest."""


class State(Record):
    """How far a collective is."""

    slots: int
    """Slots that were opened."""
    open_slots: int
    """Those of them that do not have their last RESULT."""
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
    contributions: int
    """Slots whose next frame is to be made."""
    early_results: int
    """Opening RESULTs that are held back, since that of slot 0 has not come."""
    needed: int
    """The end of the blocks of the slots in `contributions`, as far as this host holds them."""
    published: int
    """How many blocks all ranks of this host had published when that was looked at."""
    longest_result: int
    """Bytes of the longest RESULT that came."""
    foreign_at_progress: int
    malformed_at_progress: int
    stale_at_progress: int
    """The frames refused when the last answer came that was of use."""


class Stats(Record):
    """What kernels count, named as in `stats.CollectiveStats`."""

    rounds: int
    blocks_up: int
    blocks_down: int
    retransmissions: int
    losses: int
    pendings: int
    foreign: int
    malformed: int
    stale: int
    corrupt: int
    frames_up: int
    bytes_up: int
    frames_down: int
    bytes_down: int


class Path(Record):
    """What is known of the path to the switch, in seconds; collectives of one lease share it (rtt.py)."""

    smoothed_rtt: float
    """NaN before the first sample."""
    rttvar: float
    min_rtt: float
    result_interval: float
    """How long after one RESULT the next one comes, smoothed."""
    last_wait: float
    """How long the last wait for a datagram took."""


class Loss(Record):
    """Loss detection's state (recovery.py); times are seconds of the caller's clock."""

    largest_sent: int
    """The packet number of the frame sent last; the first one has 1."""
    largest_acked: int
    """The largest packet number that has its RESULT, of frames sent once; 0: none has."""
    largest_acked_any: int
    """The largest of all that have their RESULT, retransmitted frames included."""
    latest_rtt: float
    """How long frame `largest_acked` waited for its RESULT."""
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
    """How long the last probe for an ambiguous loss is waited for; 0 when a RESULT came since."""
    ambiguous_until: float
    timer_at: float
    """When something may have to be sent again; infinity when nothing is in flight."""


class Slot(Record):
    """The round that a slot is in."""

    round_number: int
    opening: bool
    done: bool
    """Whether it has its last RESULT; a slot that is not opened has no frame and is done too."""
    stride: int
    """From one block of a column to the next; those of slot i begin at block i · columns."""
    agreed: int
    """Blocks that the ranks have agreed on; after so many as a slot should carry it splits (receive.py)."""
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
    """Its neighbours in the list of frames in flight."""
    retransmits: int
    """How often this round's frame was sent again."""
    renumbered: bool
    """Whether it has a new packet number since."""
    corrupt_results: int
    """How many sends of this round's frame were answered with the same RESULT that cannot be right."""
    corrupt_retransmits: int
    """`retransmits` when that came last."""
    keys: Columns
    """The look-ahead keys that this rank sent in this round."""
    last_blocks: Columns
    """The last block of each column that the ranks agreed on; -1: none."""
    blocks: Columns
    exponents: Columns
    """The blocks summed in this round, and their exponents, of the columns in `expected`."""


class PartLayout(Record):
    """Where a part of a collective lies (blocks.py)."""

    first_block: int
    begin: int
    end: int
    """The span of its numbers in `elements`, counted in numbers of its form."""
    step: int
    """Blocks of other senders between two of it, plus one."""
    lanes: int
    """Numbers in a word; 0: the elements are the words."""
    form: int
    """The format of its numbers in memory (FORMATS)."""
    word_shift: int
    """The format's."""
    levels: int
    """The largest absolute value of a lane that a rank sends, where a word has several."""
    decodes: bool
    """Whether its sums are stored as numbers of its form."""
    largest_sum: int
    """No summed word has a larger absolute value."""
    sums_begin: int
    """The first word in `sums` that is its; where that of its first block would be, of blocks that are not kept too."""
    kept_begin: int
    kept_end: int
    """The span of its blocks, counted from its first one, whose sums are stored."""
    input_words: int
    """Words in `elements` from a number of one rank of this host to the same number of the next; 0: the data is of one
    rank."""


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
    """Its first word in the data."""
    length: int
    """Bytes."""
    type: int
    """The frame's type; IGNORED: no frame for this rank."""


class Engine(NamedTuple):
    """The state of one collective. The first five are tables of one record."""

    config: Table[Config]
    state: Table[State]
    stats: Table[Stats]
    loss: Table[Loss]
    path: Table[Path]
    slots: Table[Slot]
    """All that may be opened."""
    parts: Table[PartLayout]
    contributions: Table[NextFrame]
    """[slots]: those in `state.contributions`; also where those to be sent again are put."""
    scales: Annotated[NDArray[np.float64], "float64[:, ::1]"]
    units: Annotated[NDArray[np.float64], "float64[:, ::1]"]
    """[parts, 256], by exponent: what a number is multiplied by to become a word, and back."""
    weights: Words
    """The check word's weights of a block's words, and then its columns'."""
    frame_weights: Annotated[NDArray[np.uint32], "Array(uint32, 1, 'C', True)"]
    """Those of the words of a frame that has all columns: products of the two."""
    keys: Words
    """[blocks + stride at least]: the key of the first held block at or after each, a multiple of `stride` from it."""
    elements: Annotated[NDArray[np.uint32], "Array(uint32, 1, 'C', True)"]
    holders: Annotated[NDArray[np.uint64], "uint64[::1]"]
    """[blocks]: which ranks of this host hold each block, as a bitmap, where the data is that of several."""
    published: Annotated[NDArray[np.uint64], "uint64[::1]"]
    """Of these ranks: how many blocks of each rank's data are there, which other processes change."""
    sums: Words
    agreed: Annotated[NDArray[np.uint8], "uint8[::1]"]
    """[blocks]: the exponent agreed for each, UNTOUCHED where no rank held it."""
    frames: Annotated[NDArray[np.uint32], "uint32[:, ::1]"]
    """[slots, words]: what each slot sent last, as it is on the wire."""
    spare: Annotated[NDArray[np.float32], "float32[::1]"]
    """Memory for the numbers of a block, and its words; what is in it means nothing."""


REFUSED: Final = 6
"""The kind of the call of a rank that cannot take part (protocol/call.py)."""
IGNORED: Final = 0
"""As the type of what was received: no frame for this rank."""

# why `receive` stopped: all frames are taken in, or Python has to see to frame `next_received`, or the one before it
END, COMPARE_CALLS, HOLD_BACK, CORRUPT_RESULT = range(4)
