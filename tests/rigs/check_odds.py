"""How often two flipped bits of a frame go unseen: counts for docs/protocol.md and docs/decisions/12.

python tests/rigs/check_odds.py                     all tables, from one seed

Counted over full frames of the default geometry. An error goes unseen when the check word of the changed words is the
changed check word, and no summed word is larger than the ranks' words can add up to (`Elements.largest_sum`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Floats, Gathered, Int32, Lanes, Segment
from p4reduce.protocol.source import ANY_SUM, FlatSource
from p4reduce_contracts.wire import DEFAULT, MAX_BLOCK_WORDS, MAX_COLUMNS
from p4reduce_contracts.wire.check import weights

Ints = NDArray[np.int64]

FRAMES: Final = 500
"""Full frames of random numbers, of which the flipped ones are drawn."""
WEIGHTS: Final = weights((1 << DEFAULT.columns) - 1, DEFAULT.block_words).astype(np.int64)

Make = Callable[[np.random.Generator, int, int, int], Segment]


def _normal(rng: np.random.Generator, size: int) -> NDArray[np.float32]:
    return rng.standard_normal(size).astype(np.float32)


FORMATS: Final[dict[str, Make]] = {
    "float32": lambda rng, words, _, __: Floats(_normal(rng, words)),
    "floats in lanes of 16": lambda rng, words, _, __: Floats(_normal(rng, 2 * words), 16),
    "floats in lanes of 8": lambda rng, words, _, __: Floats(_normal(rng, 4 * words), 8),
    "lanes of 8, -1 to 1, bound 1": lambda rng, words, _, __: Lanes(rng.integers(-1, 2, 4 * words), 8, bound=1),
    "lanes of 4, -1 to 1, bound 1": lambda rng, words, _, __: Lanes(rng.integers(-1, 2, 8 * words), 4, bound=1),
    "lanes of 4, -1 to 1, no bound": lambda rng, words, _, __: Lanes(rng.integers(-1, 2, 8 * words), 4),
    "int32": lambda rng, words, _, __: Int32(rng.integers(-(2**31), 2**31, words).astype(np.int32)),
    "bytes": lambda rng, words, rank, ranks: Gathered(
        rng.integers(1, 256, 4 * words // ranks).astype(np.uint8), 4 * words // ranks, rank
    ),
}
"""From random numbers, the words of the sum, the rank and the ranks: what a rank contributes."""


class Words(NamedTuple):
    """[frames, words] of an undisturbed collective, and the largest value that a sum may have."""

    own: Ints
    """What one rank sends, each as an unsigned number."""
    sums: Ints
    largest: int


def words_of(make: Make, ranks: int, seed: int) -> Words:
    """Return what ranks with random numbers send and get; the flips are in what rank 0 sends."""
    rng = np.random.default_rng(seed)
    count = FRAMES * DEFAULT.frame_words
    sources: list[FlatSource] = []
    for rank in range(ranks):
        bound = make(rng, count, rank, ranks).bind(ranks, DEFAULT.block_words, True)
        assert isinstance(bound.nonzero, np.ndarray)
        sources.append(bound)  # type: ignore[arg-type]
    exponents = np.max([source.exponents for source in sources], axis=0)
    sent = []
    for source in sources:
        words = np.zeros((source.n_blocks, DEFAULT.block_words), np.int64)
        held = np.flatnonzero(source.nonzero)
        words[held] = source.encode(held, exponents[held]).view(">u4")
        sent.append(words)
    held = np.flatnonzero(sources[0].nonzero)  # for bytes a part of all blocks
    whole = len(held) // DEFAULT.columns * DEFAULT.columns
    shape = -1, DEFAULT.frame_words
    total = np.sum(sent, axis=0)[held[:whole]] % 2**32
    return Words(sent[0][held[:whole]].reshape(shape), total.reshape(shape), sources[0].elements.largest_sum)


@dataclass(frozen=True)
class Unseen:
    """Of `tried` errors, so many that the check word does not see, and that the largest sum does not either."""

    tried: int
    by_check: int
    by_both: int


def flip(words: Words, places: Ints, bits: Ints, frames: Ints, *, up: bool) -> Unseen:
    """Flip bits, [errors, flips] each, at these places of these frames, [errors]: of what is sent, or of the sums."""
    before = words.own if up else words.sums
    rows = frames[:, None]
    change = np.where(before[rows, places] >> bits & 1, -1, 1) << bits
    hidden = (change * WEIGHTS[places]).sum(axis=1) % 2**32 == 0
    # Flips of one word add up, whichever of them is looked at.
    same = places[:, :, None] == places[:, None, :]
    after = (words.sums[rows, places] + (same * change[:, None, :]).sum(axis=2) + 2**31) % 2**32 - 2**31
    beyond = (np.abs(after) > words.largest).any(axis=1)
    return Unseen(len(places), int(hidden.sum()), int((hidden & ~beyond).sum()))


def two_of_a_bit(words: Words, bit: int, tries: int, seed: int, *, up: bool) -> Unseen:
    """Flip this bit of two random words."""
    rng = np.random.default_rng(seed)
    places, frames = _two_places(rng, tries), rng.integers(0, len(words.sums), tries)
    return flip(words, places, np.full_like(places, bit), frames, up=up)


def two_random_bits(words: Words, tries: int, seed: int, *, up: bool) -> Unseen:
    """Flip any two bits of a frame's blocks."""
    rng = np.random.default_rng(seed)
    all_bits = 32 * DEFAULT.frame_words
    first, apart = rng.integers(0, all_bits, tries), rng.integers(1, all_bits, tries)
    bits = np.stack([first, (first + apart) % all_bits], axis=1)
    return flip(words, bits // 32, bits % 32, rng.integers(0, len(words.sums), tries), up=up)


def _two_places(rng: np.random.Generator, tries: int) -> Ints:
    first, apart = rng.integers(0, DEFAULT.frame_words, tries), rng.integers(1, DEFAULT.frame_words, tries)
    return np.stack([first, (first + apart) % DEFAULT.frame_words], axis=1)


def unseen_pairs(bit: int) -> tuple[int, int]:
    """Return how many pairs of words hide a flip of this bit in both from the check word, and of how many pairs."""
    hidden = 0
    for first, second in combinations(WEIGHTS.tolist(), 2):
        hidden += sum((change << bit) % 2**32 == 0 for change in (first + second, first - second))
    return hidden, 2 * comb(len(WEIGHTS), 2)  # flipped the same way, and the opposite way


def fewest_unseen_pairs(check_words: int, words: int) -> int:
    """Return how many pairs of `words` words hide a flip of their highest bits at least, from so many check words."""
    values = 2**check_words - 1
    each, more = divmod(words, values)
    return more * comb(each + 1, 2) + (values - more) * comb(each, 2)


# An odd modulus: the check word of wire version 3, as docs/decisions/12 describes it.


def errors_of_a_bit() -> list[int]:
    """What a flipped bit changes a signed word by, up to the sign: also where the sum then leaves 32 bits."""
    return [1 << bit for bit in range(32)] + [(1 << 32) - (1 << bit) for bit in range(31)]


def errors_of_two_bits() -> Iterator[int]:
    """What two flipped bits of one word change it by, up to the sign."""
    for low, high in combinations(range(32), 2):
        for error in ((1 << high) + (1 << low), (1 << high) - (1 << low)):
            yield from (error, error - (1 << 32), error + (1 << 32))


def is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def modulus(headroom_bits: int) -> int:
    """Return the largest prime that no error of two bits of a word is a multiple of, below 2^(32 - headroom_bits).

    2^headroom_bits numbers below it add up to less than 2^32.
    """
    number = (1 << 32 - headroom_bits) - 1
    while not is_prime(number) or any(error % number == 0 for error in errors_of_two_bits()):
        number -= 2
    return number


def odd_weights(prime: int, count: int) -> list[int]:
    """Return so many weights with which no error of one or two bits is a multiple of `prime`.

    Of the powers of 0x9E3779B1 modulo the prime, each that fits those before it. The first is 1, the check word's own.
    """
    errors = errors_of_a_bit()
    taken: set[int] = set()
    found: list[int] = []
    candidate = 1
    while len(found) < count:
        changes = {min(change, prime - change) for change in (error * candidate % prime for error in errors)}
        if 0 not in changes and not changes & taken:
            taken |= changes
            found.append(candidate)
        candidate = candidate * 0x9E3779B1 % prime
    return found


def unseen_by(prime: int, chosen: list[int]) -> int:
    """Return how many errors of one or two bits a check word modulo `prime` does not see; all are tried."""
    per_word = np.array(errors_of_a_bit(), object)
    changes = np.array([[int(change) for change in per_word * value % prime] for value in chosen], np.int64)
    changes = np.minimum(changes, prime - changes)
    unseen = int((changes == 0).sum()) + sum(error % prime == 0 for error in errors_of_two_bits())
    # A pair of words is unseen where a change of one is one of the other's, up to the sign.
    values, words = changes.reshape(-1), np.repeat(np.arange(len(chosen)), len(per_word))
    order = np.argsort(values, kind="stable")
    values, words = values[order], words[order]
    _, starts, counts = np.unique(values, return_index=True, return_counts=True)
    for start, count in zip(starts[counts > 1], counts[counts > 1], strict=True):
        here = words[start : start + count]
        unseen += comb(int(count), 2) - sum(comb(int(n), 2) for n in np.unique(here, return_counts=True)[1])
    return unseen


def three_bits_unseen(prime: int, chosen: list[int], tries: int, seed: int) -> int:
    """Flip three random bits of three words; return how many such errors a check word modulo `prime` does not see."""
    rng = np.random.default_rng(seed)
    unseen = 0
    weights_ = np.array(chosen, np.int64)
    for start in range(0, tries, 1 << 20):
        size = min(1 << 20, tries - start)
        places = np.stack([rng.integers(0, len(chosen) // 3, size) * 3 + i for i in range(3)], axis=1)
        bits, signs = rng.integers(0, 31, (size, 3)), rng.choice([-1, 1], (size, 3))
        changes = (weights_[places] * (np.int64(1) << bits)) % prime * signs  # below 2^32 · 2^31
        unseen += int((changes.sum(axis=1) % prime == 0).sum())
    return unseen


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the errors of two bits that go unseen.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tries", type=int, default=2_000_000, help="of two random bits (default: 2000000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    print("the same bit of two words, check word alone, every pair of words:")
    for bit in range(31, 23, -1):
        hidden, tried = unseen_pairs(bit)
        print(f"  bit {bit}: {hidden} of {tried}  {hidden / tried:.3%}")

    print("\nany linear check of words modulo 2^32, bit 31 of two of 256 words: unseen pairs at least")
    for count in range(1, 10):
        fewest = fewest_unseen_pairs(count, 256)
        print(f"  {count} check words: {fewest} of {comb(256, 2)}  {fewest / comb(256, 2):.2%}")

    for up in (True, False):
        print(f"\n{options.ranks} ranks, flipped in {'what rank 0 sends' if up else 'a RESULT'}; unseen: check, both")
        print(f"  {'':30}" + "".join(f"{f'bit {bit}':>18}" for bit in range(31, 26, -1)) + f"{'two random bits':>20}")
        for name, make in FORMATS.items():
            words = words_of(make, options.ranks, options.seed)
            found = [two_of_a_bit(words, bit, 200_000, options.seed, up=up) for bit in range(31, 26, -1)]
            cells = [f"{n.by_check / n.tried:8.3%} {n.by_both / n.tried:7.3%}" for n in found]
            two = two_random_bits(words, options.tries, options.seed, up=up)
            room = "-" if words.largest == ANY_SUM else hex(words.largest)
            cells.append(f"{two.by_check / two.tried:8.4%} {two.by_both / two.tried:8.4%}")
            print(f"  {name:30}" + "".join(f"{cell:>18}" for cell in cells) + f"  largest sum {room}")

    print("\na check word modulo an odd prime, 512 words and itself, every error of one or two bits:")
    count = MAX_COLUMNS * MAX_BLOCK_WORDS + 1
    for bits in (0, 1, 2, 3, 4, 5, 10):
        prime = modulus(bits)
        chosen = odd_weights(prime, count)
        print(f"  up to {1 << bits} ranks: modulo {prime} = 2^{32 - bits} - {2 ** (32 - bits) - prime}, ", end="")
        print(f"{unseen_by(prime, chosen)} unseen; three bits: {three_bits_unseen(prime, chosen, 1 << 24, 1)} of 2^24")
    return 0


if __name__ == "__main__":
    sys.exit(main())
