"""Permutations of ranks that leave a job as it is, and the images of its states and frames under them.

Nothing here knows what a state or a frame contains: an image is what the code reaches. The image of a rank's first
state is the first state of the rank in its place. The image of what a step reaches is what the code reaches by the
images of the state and the frame. So the code takes every step for all permutations, and a state or a frame that gets
two images, or an image that differs in what the properties read of it, is an error: the job has no such symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Numbers = tuple[int, ...]
"""A permutation: for each rank the rank in whose place it comes. Or the images of a number, by permutation."""


class NotSymmetricError(AssertionError):
    """The job is not as its permutations say."""


class Group:
    """Permutations that contain the inverse of each and the product of any two; the first is the identity."""

    def __init__(self, permutations: Sequence[Numbers]) -> None:
        self.permutations = sorted(permutations)
        places = {permutation: place for place, permutation in enumerate(self.permutations)}
        self.products = [
            [places[tuple(first[rank] for rank in second)] for second in self.permutations]
            for first in self.permutations
        ]
        """The place of one permutation after another one, by their places."""
        self.inverses = [products.index(0) for products in self.products]

    def __len__(self) -> int:
        return len(self.permutations)


class Images:
    """The images of numbers of one kind: the states of all ranks, the states of a switch, or frames.

    Each is known by its owner (a rank; 0 for what has no owner) and its number. `owners`: by permutation, of an owner.
    `read`: what the properties read of a number, equal for all its images.
    """

    def __init__(
        self, group: Group, owners: Callable[[int], Numbers], read: Callable[[int, int], object] = lambda *_: None
    ) -> None:
        self._group, self._owners, self._read = group, owners, read
        self._found: dict[tuple[int, int], Numbers] = {}

    def of(self, owner: int, number: int) -> Numbers:
        """Return a number's images, by permutation."""
        return (number,) if len(self._group) == 1 else self._found[owner, number]

    def put(self, owner: int, images: Numbers) -> None:
        """Take in what the code reached, by permutation. Raises NotSymmetricError."""
        if len(self._group) == 1:
            return
        owners = self._owners(owner)
        read = self._read(owner, images[0])
        for second, (image_owner, image) in enumerate(zip(owners, images, strict=True)):
            further = tuple(images[products[second]] for products in self._group.products)
            if self._found.setdefault((image_owner, image), further) != further:
                raise NotSymmetricError(f"number {image} of {image_owner} has two images")
            if self._read(image_owner, image) != read:
                raise NotSymmetricError(f"number {image} of {image_owner} differs from its image")
