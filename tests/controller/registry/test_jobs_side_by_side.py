"""Jobs over switches side by side: which they take, their grants, and what the loss of a switch changes."""

from __future__ import annotations

import pytest
from msgspec import structs

from p4reduce_contracts.jobs.answers import Count, SwitchAddress
from p4reduce_contracts.jobs.errors import InvalidRequestError, MemberResetError
from p4reduce_contracts.jobs.lease import MOST_SWITCHES, Level
from p4reduce_contracts.wire.hello import nonce_for
from p4reduce_contracts.wire.numbers import MAX_SLOTS
from p4reduce_controller.config import HostAddress, SwitchConfig
from p4reduce_controller.registry.hello import Address, Hello
from p4reduce_controller.registry.job import Job, Member
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.tree import Tree, TreeSwitch
from rigs.registry import hello as hello_at
from rigs.registry import install
from rigs.registry import make_registry as registry_of

A, B, C = (SwitchConfig(name=name, address=HostAddress(f"10.0.0.{n}")) for n, name in enumerate("abc", 1))
ROOT = SwitchConfig(name="root", address=HostAddress("10.0.1.1"))
LEAF = SwitchConfig(name="leaf", parent="root", uplink_port=9, address=HostAddress("10.0.1.2"))


def make_tree(*switches: SwitchConfig) -> Tree:
    return Tree(map(TreeSwitch, switches or (A, B, C)))


def make_registry(*switches: SwitchConfig, slots: int = 64) -> Registry:
    return registry_of(make_tree(*switches), slots=slots)


@pytest.fixture
def registry() -> Registry:
    return make_registry()


def place(rank: int, switch: str) -> Address:
    """Each rank has a socket for each switch."""
    return Address(1 + rank, 0x020000000000 + rank, 0x0A000A00 + rank, 4000 + ord(switch[0]))


def hello(registry: Registry, job: Job, member: Member, *switches: str) -> None:
    for switch in switches or registry.tree.side_by_side:
        hello_at(registry, job, member, switch, place(member.rank, switch))


def join(registry: Registry, name: str, *switches: str, target: str = "") -> list[Member]:
    """All ranks join and say HELLO at these switches, or all."""
    job = registry.get(name)
    members = [registry.join(name, rank, job.world_size, 0.0, target=target) for rank in range(job.world_size)]
    for member in members:
        hello(registry, job, member, *switches)
    return members


def form(registry: Registry, name: str, world_size: int = 2, **options: int) -> Job:
    job = registry.create(name, world_size, 4, **options)
    join(registry, name)
    return install(registry, job)


# ---- which switches


def test_a_job_over_several_switches_has_the_slots_of_one_at_each_and_over_one_more() -> None:
    registry = make_registry(slots=1024)
    assert [registry.create(f"job{switches}", 2, switches=switches).slots.count for switches in (0, 2, 1)] == [
        128,
        128,
        192,
    ]


@pytest.mark.parametrize(
    ("switches", "names"),
    [
        ((A, B, C), "abc"),
        ((A, structs.replace(A, name="b", udp_port=4000)), "ab"),
        ((ROOT, LEAF, A, B), "ab"),
        ((A,), ""),
        ((A, structs.replace(A, name="b")), ""),
        ((ROOT, LEAF), None),
        ((ROOT, LEAF, A), None),
        ((A, structs.replace(A, name="b"), C), None),
    ],
)
def test_ranks_that_name_no_switch_send_to_those_side_by_side(
    switches: tuple[SwitchConfig, ...], names: str | None
) -> None:
    """Or to the one address of all; without both they have to name one."""
    tree = make_tree(*switches)
    assert tree.side_by_side == tuple(names or "")
    if names is None:
        with pytest.raises(InvalidRequestError, match="P4REDUCE_SWITCH .* there are "):
            tree.addresses("")
    else:
        assert [address.name for address in tree.addresses("")] == list(names or [""])
    assert tree.addresses(switches[-1].name) == (tree.switches[switches[-1].name].address,)


def test_a_ticket_has_at_most_32_switches() -> None:
    many = [SwitchConfig(name=f"s{n}", address=HostAddress(f"10.0.0.{1 + n}")) for n in range(40)]
    tree = make_tree(*many)
    assert tree.addresses("") == tuple(SwitchAddress(f"s{n}", f"10.0.0.{1 + n}", 21072) for n in range(MOST_SWITCHES))
    assert tree.max_world_size == 32, "side by side, none takes ranks for another"


def test_each_switch_has_a_grant_for_all_ranks_with_secrets_of_its_own(registry: Registry) -> None:
    job = form(registry, "train")
    assert list(job.grants) == ["b", "c", "a"]
    flat = ((0,), (1,))
    assert job.tree == (Level("b", flat), Level("c", flat), Level("a", flat))
    for name, grant in job.grants.items():
        assert [child.address for child in grant.children] == [place(0, name), place(1, name)]
    assert len({(grant.epoch, grant.first_round, grant.slots) for grant in job.grants.values()}) == 1
    paths = job.paths(1)
    assert [levels for _, levels in paths] == [[level] for level in job.tree]
    assert [secret for secret, _ in paths] == [grant.children[1].secret for grant in job.grants.values()]
    secrets = [child.secret for grant in job.grants.values() for child in grant.children]
    assert len(set(secrets)) == 6


@pytest.mark.fault(
    "a rank reaches one of the switches side by side not: `join` names the switch, its address and the ranks"
)
def test_a_job_waits_for_each_hello_and_says_which_switch_has_none(registry: Registry) -> None:
    job = registry.create("train", 3)
    first, second, _ = join(registry, "train", "a")
    hello(registry, job, first, "c")
    assert not job.grants
    b, c = "10.0.0.2:21072", "10.0.0.3:21072"
    assert registry.missing(job) == (
        f"no HELLO of ranks 0 to 2 came through switch b, expected at {b}; "
        f"no HELLO of ranks 1, 2 came through switch c, expected at {c}"
    )
    registry.hello(Hello(job.id, nonce_for(second.nonce, 2), place(0, "c")), 0.0, "c")
    assert registry.missing(job).endswith("the HELLO of rank 1 came from rank 0's address 10.0.10.0:4099")
    assert not registry.hello(Hello(job.id, nonce_for(first.nonce, 2), place(2, "c")), 0.0, "c"), (
        "the first address stays"
    )
    assert first.addresses["c"] == place(0, "c")


@pytest.mark.fault("the ports of two switches are exchanged in the configuration: `join` names both")
def test_a_hello_at_another_switch_than_it_was_sent_to_is_told(registry: Registry) -> None:
    job = registry.create("train", 1)
    (member,) = join(registry, "train", "a")
    for sent_to, arrives in ((1, "c"), (2, "b"), (3, "b")):
        assert not registry.hello(Hello(job.id, nonce_for(member.nonce, sent_to), place(0, arrives)), 0.0, arrives)
    assert registry.missing(job).startswith(
        "the HELLO of rank 0 to switch c at 10.0.0.3:21072 came through switch b: are"
    )
    assert registry.heartbeat(member.nonce, 0.0) is None


@pytest.mark.parametrize("targets", [("a", ""), ("", "a")])
def test_ranks_that_name_a_switch_and_others_are_told_at_once(registry: Registry, targets: tuple[str, str]) -> None:
    registry.create("train", 2)
    first = registry.join("train", 0, 2, 0.0, target=targets[0])
    told = rf"a switch was named \(P4REDUCE_SWITCH.* for rank {targets.index('a')} of job train, and .* for none"
    with pytest.raises(InvalidRequestError, match=told):
        registry.join("train", 1, 2, 0.0, target=targets[1])
    with pytest.raises(MemberResetError, match=told):
        registry.lease(first.nonce)


def test_a_rank_that_has_gone_and_named_a_switch_does_not_count(registry: Registry) -> None:
    job = registry.create("train", 2)
    gone = registry.join("train", 0, 2, 0.0, target="a")
    registry.wait_started(gone.nonce)
    registry.wait_ended(gone.nonce, 1.0, caller_disconnected=True)
    registry.join("train", 1, 2, 1.0)
    registry.sweep(3.0)
    assert [member.target for member in job.members.values()] == [""]


def test_ranks_that_all_name_one_switch_have_that_alone(registry: Registry) -> None:
    job = registry.create("train", 2)
    join(registry, "train", "c", target="c")
    assert list(job.grants) == ["c"]


def test_a_copy_of_a_hello_at_another_switch_counts_for_no_rank_that_named_one(registry: Registry) -> None:
    registry.create("train", 2)
    member = registry.join("train", 0, 2, 0.0, target="c")
    hello(registry, registry.get("train"), member, "c", "a")
    assert list(member.addresses) == ["c"]


def test_hellos_at_a_switch_of_a_tree_count_for_no_job_side_by_side() -> None:
    registry = make_registry(ROOT, LEAF, A, B)
    registry.create("train", 1)
    (member,) = join(registry, "train", "a", "leaf")
    assert list(member.addresses) == ["a"]


# ---- how many


def test_jobs_of_fewer_switches_share_all_of_them(registry: Registry) -> None:
    taken = [list(form(registry, f"job{n}", switches=2).grants) for n in range(3)]
    assert taken == [["b", "c"], ["c", "a"], ["a", "b"]]


def test_a_job_can_ask_for_no_more_switches_than_there_are(registry: Registry) -> None:
    with pytest.raises(InvalidRequestError, match="at most 3 switches side by side of this controller, not 4"):
        registry.create("train", 2, switches=4)
    with pytest.raises(InvalidRequestError, match="at most 1 switch of this controller, not 2"):
        make_registry(A).create("train", 2, switches=2)


def test_a_shard_takes_as_many_switches_as_its_job(registry: Registry) -> None:
    registry.create("train", 2, 4, switches=2)
    assert form(registry, "shard", part_of="train").grants.keys() == {"c", "a"}  # type: ignore[arg-type]


def test_all_slots_of_a_job_fit_the_descriptions_of_its_calls() -> None:
    registry = make_registry(slots=MAX_SLOTS)
    job = registry.create("train", 1, MAX_SLOTS // 2)
    join(registry, "train")
    assert list(job.grants) == ["b", "c"]


def test_switches_that_take_too_few_ranks_are_left_out() -> None:
    registry = make_registry()
    registry.tree.switches["b"] = TreeSwitch(B, max_children=2)
    assert list(form(registry, "train", 3).grants) == ["c", "a"]
    for name, switch in (("a", A), ("c", C)):
        registry.tree.switches[name] = TreeSwitch(switch, max_children=2)
    registry.create("wide", 3, 4)
    join(registry, "wide")
    assert registry.missing(registry.get("wide")) == "3 ranks are more than any of the switches a, b, c takes"


# ---- a lost switch


@pytest.mark.fault(
    "one of several switches side by side is lost: the jobs with slots there are reset, others are not; their next "
    "epoch goes on over the remaining switches, and a later one takes the lost one back"
)
def test_the_next_epoch_goes_on_over_the_remaining_switches(registry: Registry) -> None:
    job, other = form(registry, "train"), form(registry, "other", switches=1)
    assert list(other.grants) == ["c"]
    for grant in job.grants.values():
        registry.count_from(grant, {"results": Count(1, 2)})
    before = job.epoch
    registry.switch_lost("lost", switch="b")
    registry.can_use("b", usable=False)
    assert not job.active and job.last_reset == "lost"
    assert other.active and job.counted_from.keys() == {"a", "c"}
    join(registry, "train", "a", "c")
    assert list(job.grants) == ["c", "a"] and registry.grants("b") == {}
    install(registry, job)
    assert job.epoch > before
    registry.can_use("b", usable=True)
    assert job.active and list(job.grants) == ["c", "a"], "it is taken in the next epoch"
    registry.leave(job.members[0].nonce)
    join(registry, "train")
    assert list(job.grants) == ["b", "c", "a"]


@pytest.mark.parametrize("granted", [False, True])
def test_a_switch_that_is_lost_while_ranks_join_is_left_out(registry: Registry, granted: bool) -> None:
    job = registry.create("train", 2, 4)
    join(registry, "train", *("abc" if granted else "ac"))
    assert bool(job.grants) is granted
    registry.switch_lost("lost", switch="b")
    registry.can_use("b", usable=False)
    assert list(job.grants) == ["c", "a"]
    install(registry, job)


def test_another_primary_controller_at_a_switch_takes_back_grants_that_no_rank_has(registry: Registry) -> None:
    job, running = registry.create("train", 2, 4), form(registry, "running")
    join(registry, "train")
    registry.can_use("a", usable=False)
    assert list(job.grants) == ["c", "b"] and list(running.grants) == ["c", "a", "b"] and running.active


def test_a_lost_switch_that_a_job_does_not_use_changes_nothing_of_it(registry: Registry) -> None:
    job = registry.create("train", 2, 4, switches=1)
    join(registry, "train")
    grants = dict(job.grants)
    registry.switch_lost("lost", switch="a")
    registry.can_use("a", usable=False)
    assert job.grants == grants and list(grants) == ["b"]


def test_without_any_switch_a_job_waits_until_one_is_back(registry: Registry) -> None:
    job = form(registry, "train")
    for switch in "abc":
        registry.switch_lost("lost", switch=switch)
        registry.can_use(switch, usable=False)
    members = join(registry, "train", "a")
    for member in members:
        member.addresses.clear()
    registry.sweep(1.0)
    assert not job.grants
    assert registry.missing(job) == "none of the switches a, b, c can be used now"
    registry.can_use("b", usable=True)
    assert "came through switch b, expected at 10.0.0.2:21072" in registry.missing(job)
    for member in members:
        hello(registry, job, member, "b")
    assert list(job.grants) == ["b"]
