"""Who may do what with a job: tokens, and what is shown to whom."""

from __future__ import annotations

import pytest

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ForbiddenError
from p4reduce_controller.config import Config
from p4reduce_controller.registry import tokens
from p4reduce_controller.service import servicer
from rigs.fake_switch_client import FakeSwitchClient, Running, form, serving


def test_a_hash_matches_its_token_only() -> None:
    drawn = tokens.draw()
    assert drawn.owner != drawn.member != tokens.draw().member
    owner, member = tokens.lock(drawn.owner), tokens.lock(drawn.member)
    assert tokens.opens(drawn.owner, owner) and tokens.opens(drawn.owner, member, owner)
    for wrong in ("", drawn.member, owner, "ü"):
        assert not tokens.opens(wrong, owner)
    assert tokens.opens("", ""), "there is nothing to open"


@pytest.mark.fault("joining or removing a private job without its token: refused; the job continues")
def test_joining_and_removing_a_private_job_need_a_token(running: Running, client: JobClient) -> None:
    made = client.create_job("train", 2, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, _ = form(running, member, "train", 2)
        with pytest.raises(ForbiddenError, match="to remove it takes its owner's token"):
            member.remove_job("train")
    for other, end in (
        (client, r"\)$"),
        (JobClient(running.address, token="guess"), ", and the token given is not that$"),
    ):
        with pytest.raises(ForbiddenError, match=f"job train is private: to join it takes its token .*{end}"):
            other.join("train", 0, 2)
        with pytest.raises(ForbiddenError):
            other.remove_job("train")
        other.close()
    with JobClient(running.address, token=made.owner_token) as owner:
        assert owner.heartbeat(tickets[0].nonce) is None, "the member was not disturbed"
        owner.join("train", 0, 2, former=tickets[0].nonce)
        owner.remove_job("train")


def test_tokens_stay_valid_over_a_restart_and_are_not_in_the_file(config: Config) -> None:
    switch = FakeSwitchClient()
    with serving(config, switch) as running, JobClient(running.address) as client:
        made = client.create_job("train", 1, private=True)
    content = b"".join(file.read_bytes() for file in config.controller.state_path.iterdir())
    assert b"train" in content
    assert made.owner_token.encode() not in content and made.member_token.encode() not in content
    with serving(config, switch) as running, JobClient(running.address, token=made.owner_token) as client:
        assert client.get_job("train").private
        client.remove_job("train")


@pytest.mark.fault("reading what is needed to forge frames: hidden")
@pytest.mark.parametrize("local", [True, False])
def test_epoch_and_addresses_are_not_shown_without_a_token(
    running: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr(servicer, "is_local_peer", lambda context: local)
    client.create_job("open", 1, 4)
    private = client.create_job("private", 1, 4, private=True)
    missing = "rank 0 did not join"
    assert [client.get_job(name).missing for name in ("open", "private")] == [missing, ""]
    form(running, client, "open", 1)
    with JobClient(running.address, token=private.member_token) as member:
        assert member.get_job("private").missing == missing
        form(running, member, "private", 1)
        assert member.get_job("private").epoch == 2
    jobs = [client.get_job("open"), client.get_job("private"), *client.list_jobs().jobs]
    for job, shown in zip(jobs, (local, False) * 2, strict=True):
        (member_info,) = job.members
        assert job.state == "ACTIVE"
        assert job.hidden is not shown
        if shown:
            (at,) = member_info.addresses
            assert (job.epoch, at.host, at.port) == (1, "10.0.0.10", 4000)
        else:
            assert (job.epoch, member_info.addresses) == (0, ())
