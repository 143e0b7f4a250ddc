"""The state of interfaces that the native loop and Python share."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.datagrams import MsgHdr, PollFd
from p4reduce_runtime.records import Record, Table
from p4reduce_switch.datapath import Numbers

MAX_SEGMENTS: Final = 64


class Interface(Record):
    """An interface, and its counters: see InterfaceCounters."""

    descriptor: int
    port: int
    gso_allowed: int
    """0: no GSO; 1: GSO once a super-frame was received; 2: always."""
    gso_seen: int
    max_frame: int
    """Bytes of the longest frame that the interface accepts."""
    waits: int
    """Whether a frame for which the socket has no room is to be sent again, not lost."""
    full: int
    """Whether a frame found no room in the socket since Python cleared this."""
    frames_in: int
    bytes_in: int
    frames_out: int
    bytes_out: int
    send_errors: int


class PacketIo(MsgHdr):
    """Memory for the structures of recvmsg and sendmsg on AF_PACKET sockets."""

    sll_family: Annotated[int, np.uint16]
    """The first of the seven fields of a struct sockaddr_ll."""
    sll_protocol: Annotated[int, np.uint16]
    sll_ifindex: Annotated[int, np.int32]
    sll_hatype: Annotated[int, np.uint16]
    sll_pkttype: Annotated[int, np.uint8]
    sll_halen: Annotated[int, np.uint8]
    sll_addr: Annotated[NDArray[np.uint8], 8]
    virtio_flags: Annotated[int, np.uint8]
    """The first of the six fields of a struct virtio_net_hdr."""
    virtio_gso_type: Annotated[int, np.uint8]
    virtio_hdr_len: Annotated[int, np.uint16]
    virtio_gso_size: Annotated[int, np.uint16]
    virtio_csum_start: Annotated[int, np.uint16]
    virtio_csum_offset: Annotated[int, np.uint16]
    headers: Annotated[NDArray[np.uint8], 48]
    """Headers of a super-frame."""
    iovec: Annotated[NDArray[np.int64], 2 * (MAX_SEGMENTS + 2)]
    """struct iovec[MAX_SEGMENTS + 2]: address and length of each."""


class Interfaces(NamedTuple):
    """The interfaces of one loop; `io` has one record."""

    io: Table[PacketIo]
    interfaces: Table[Interface]
    rows: Numbers
    """The row of each port in `interfaces`, or -1."""
    polled: Table[PollFd]
    """The interfaces' sockets, and then the descriptor that ends a wait."""
