"""How the ranks of a process group find each other in a store that has older keys."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from p4reduce.errors import JoinError
from p4reduce.launch import addresses, launch
from p4reduce.pytorch.backend import group
from p4reduce.pytorch.backend.rendezvous import Watched, meet, part

LIMIT_S = 60.0


def meet_all(store: Any, ranks: int) -> str:
    with ThreadPoolExecutor(ranks) as pool:
        (name,) = set(pool.map(lambda rank: meet(store, rank, ranks, LIMIT_S), range(ranks)))
    return name


def test_each_group_in_a_store_has_a_name_of_its_own() -> None:
    store = dist.HashStore()
    assert len({meet_all(store, ranks) for ranks in (3, 3, 2, 1, 3)}) == 5


def test_the_keys_of_a_rank_that_has_ended_and_begins_again_are_not_taken_for_its_own() -> None:
    store = dist.HashStore()
    before = meet_all(store, 2)
    for rank in (0, 1):  # which ends while the other one is not there yet
        with pytest.raises(dist.DistBackendError, match="timed out after 0.01 s"):
            meet(store, rank, 2, 0.01)
    assert meet_all(store, 2) != before


class Removed(dist.HashStore):
    """A store from which rank 0 removes the keys of the last group when another rank has seen them."""

    def check(self, keys: list[str]) -> bool:
        found = bool(super().check(keys))
        self.remove(keys[0])
        return found

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        found = bytes(super().compare_set(key, expected, desired))
        self.remove(key)
        return found

    def remove(self, seen: str) -> None:
        for key in (seen, "name") if seen.endswith("/all") else ():
            self.delete_key(key)


def test_keys_that_are_removed_after_a_look_are_not_waited_for() -> None:
    store = Removed()
    store.set_timeout(timedelta(seconds=2))
    store.set("name", "before")
    store.set("before/all", "[]")
    with pytest.raises(dist.DistBackendError, match="timed out after 0.1 s: not all"):
        meet(store, 1, 2, 0.1)


class Answered(dist.HashStore):
    """A store in which rank 2 answers at once."""

    def set(self, key: str, value: str) -> None:
        super().set(key, value)
        if "/" not in key:
            super().set(f"{value}/2", "")


def test_the_missing_ranks_are_named() -> None:
    with pytest.raises(dist.DistBackendError, match="rank 1, 3 did not make the process group that rank 0 makes"):
        meet(Answered(), 0, 4, 0.01)


class Recorded(dist.HashStore):
    """A store that keeps the order of what is set and found there."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[tuple[str, str]] = []

    def set(self, key: str, value: str) -> None:
        self.order.append(("set", key))
        super().set(key, value)

    def check(self, keys: list[str]) -> bool:
        found = bool(super().check(keys))
        self.order.extend(("found", key) for key in keys if found)
        return found


def test_rank_0_parts_after_the_others_have_used_the_store_for_the_last_time() -> None:
    store = Recorded()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda rank: part(store, rank, 3), range(3)))
    assert store.order[-2:] == [("found", "left/1"), ("found", "left/2")]
    assert store.order.index(("found", "waits/2")) < store.order.index(("set", "parted"))


def test_connecting_ends_with_the_group_s_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo waits five times as long for a rank that has ended after it gave its address."""
    connected, store = threading.Event(), dist.HashStore()
    dist.PrefixStore("name", dist.PrefixStore("p4reduce/", store)).set("all", '["number0 ", "number1 "]')
    monkeypatch.setattr(group, "meet", lambda *_: "name")
    monkeypatch.setattr(group, "CLOSE_S", 0.05)
    monkeypatch.setattr(launch, "_HEAR_S", 0.05)
    monkeypatch.setattr(dist, "ProcessGroupGloo", lambda *_: connected.wait(LIMIT_S))
    try:
        with pytest.raises(JoinError, match=r"p4reduce:connect timed out after 0.05 s; rank 1 did not begin"):
            group.ProcessGroupP4Reduce.over(store, 0, 2, timeout=timedelta(seconds=0.05))
    finally:
        connected.set()


def test_gloo_s_address_follows_from_the_store_below_a_watched_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.setattr(addresses, "route_to", lambda host, *_: f"the route to {host}")
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    watched = Watched(dist.PrefixStore("group", store), lambda: None)
    assert addresses.gloo_address(watched, 0, 1) == "the route to 127.0.0.1"
