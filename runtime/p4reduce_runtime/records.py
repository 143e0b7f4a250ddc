"""Records: rows of structured numpy arrays with named fields, each declared once, as a class.

    class Slot(Record):
        round_number: int
        kind: Annotated[int, np.uint16]
        keys: Annotated[NDArray[np.int64], 8]

    slots = zeros(Slot, 4)

Kernels read and write the fields of `slots[2]` as attributes (kernels.py): `slots[2].round_number += 1`. Other Python
code does as always with structured arrays: `slots["round_number"]`, `slots[2]["round_number"]`. A field must not have
the name of an attribute of numpy's scalars, such as `round` or `size`.

Kernels' arguments are annotated with `Table`, `Vector`, `Matrix`, `ReadOnly` and `ReadOnlyMatrix`, all C-contiguous.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol, TypeVar, get_args, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
Vector = Annotated[NDArray[Scalar], (1, "C")]
Matrix = Annotated[NDArray[Scalar], (2, "C")]
ReadOnly = Annotated[NDArray[Scalar], (1, "C", True)]
ReadOnlyMatrix = Annotated[NDArray[Scalar], (2, "C", True)]
"""Arrays of numbers, as a kernel sees them: dimensions and layout of numba's `Array`, and whether it is read-only."""


class Record:
    """The base of declarations.

    Fields: int (int64), float (float64), bool, an int Annotated with its numpy type, or an array with its length.
    """


R_co = TypeVar("R_co", bound=Record, covariant=True)


class Table(Protocol[R_co]):
    """A one-dimensional array of records, as a kernel sees it."""

    @overload
    def __getitem__(self, index: int, /) -> R_co: ...

    @overload
    def __getitem__(self, index: slice, /) -> Table[R_co]: ...

    def __len__(self) -> int: ...


_dtypes: dict[type[Record], np.dtype[np.void]] = {}


def dtype_of(record: type[Record]) -> np.dtype[np.void]:
    """Return the structured data type of a record, aligned as C aligns it."""
    known = _dtypes.get(record)
    if known is None:
        known = _dtypes[record] = _declared(record)
    return known


def _declared(record: type[Record]) -> np.dtype[np.void]:
    fields: list[tuple[object, ...]] = []
    for name, kind in get_type_hints(record, include_extras=True).items():
        if kind in (int, float, bool):
            fields.append((name, np.dtype(kind)))
        elif (arguments := get_args(kind))[0] is int:
            fields.append((name, np.dtype(arguments[1])))
        else:
            array, length = arguments
            fields.append((name, element_type(array), length))
    return np.dtype(fields, align=True)


def element_type(array: Any) -> Any:
    """Return the scalar type of `NDArray[...]`."""
    of_array = get_args(array)[-1]  # from numpy 2.5 on the scalar type, before it dtype[of it]
    return (get_args(of_array) or (of_array,))[0]


def zeros(record: type[Record], count: int = 1) -> Any:
    """Return a structured array of `count` records whose fields are all 0."""
    return np.zeros(count, dtype_of(record))


def offset_of(record: type[Record], field: str) -> int:
    """Return at which byte of a record a field begins."""
    fields = dtype_of(record).fields
    assert fields is not None
    offset: int = fields[field][1]
    return offset
