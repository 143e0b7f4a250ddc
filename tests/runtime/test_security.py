"""Who may listen where, and what is said of files that cannot be used."""

from __future__ import annotations

import datetime
import shutil
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from p4reduce_runtime import certificates, security
from p4reduce_runtime.security import Security
from p4reduce_runtime.settings import ConfigError
from rigs.certificates import Bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("certs"))


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("[::ffff:127.0.0.2]:1", True),
        ("[::ffff:10.0.0.1]:1", False),
        ("unix:/tmp/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("127.0.0.1.example:1", False),
        ("localhost.example:1", False),
        (":1", False),
    ],
)
def test_addresses_that_are_loopback(address: str, local: bool) -> None:
    assert security.is_loopback(address) is local


@pytest.mark.parametrize(
    ("address", "tls", "insecure", "listens"),
    [
        ("127.0.0.1:1", False, False, True),
        ("0.0.0.0:1", False, False, False),
        ("0.0.0.0:1", False, True, True),
        ("0.0.0.0:1", True, False, True),
    ],
)
def test_listening_beyond_loopback_needs_tls_or_insecure(
    bench: Bench, address: str, tls: bool, insecure: bool, listens: bool
) -> None:
    server, files = MagicMock(), bench.of("switch") if tls else None
    listen = partial(security.listen, server, address, files, insecure=insecure, advice="do this")
    if listens:
        assert listen() == 1, "the port that the server says"
        ((method, arguments, _),) = server.method_calls
        assert (method, arguments[0]) == ("add_secure_port" if tls else "add_insecure_port", address)
    else:
        with pytest.raises(ConfigError, match=r"whoever reaches 0\.0\.0\.0:1 could .*: do this .*, or say --insecure"):
            listen()
        assert server.method_calls == []


@pytest.mark.parametrize(
    ("address", "tls", "insecure", "dialled"),
    [
        ("127.0.0.1:1", False, False, True),
        ("10.9.8.7:1", False, False, False),
        ("controller.example:1", False, False, False),
        ("dns:///127.0.0.1:1", False, False, False),
        ("10.9.8.7:1", False, True, True),
        ("10.9.8.7:1", True, False, True),
    ],
)
def test_connecting_beyond_loopback_needs_tls_or_insecure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, address: str, tls: bool, insecure: bool, dialled: bool
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: [])
    files = bench.of("worker") if tls else None
    if dialled:
        security.check_dialling(address, files, insecure=insecure)
    else:
        with pytest.raises(ConfigError, match="P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY .* P4REDUCE_INSECURE=1"):
            security.check_dialling(address, files, insecure=insecure)


@pytest.mark.parametrize(
    "error", [socket.gaierror(socket.EAI_NONAME, "Name or service not known"), UnicodeError("idna")]
)
def test_a_name_that_does_not_resolve_is_no_matter_of_tls(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def resolve(host: str, port: None) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ConfigError, match=r"the name 'controler' .* does not resolve .*: correct the name"):
        security.check_dialling("controler:9600", None, insecure=False)


def test_an_address_without_a_port_is_an_error_that_says_so() -> None:
    for insecure in (False, True):
        with pytest.raises(ConfigError, match=r"P4REDUCE_CONTROLLER.* must be HOST:PORT like .*, not '127\.0\.0\.1'"):
            security.check_dialling("127.0.0.1", None, insecure=insecure)
    security.check_dialling("unix:/run/controller", None, insecure=False)


def test_generated_files_are_valid_and_keys_private(bench: Bench) -> None:
    for name in ("controller", "switch", "worker"):
        bench.of(name).check()
    for key in bench.folder.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_the_tls_variables_are_given_together_or_not_at_all(bench: Bench) -> None:
    assert security.from_environment({}) is None
    whole = bench.environment("worker")
    assert security.from_environment(whole) == bench.of("worker")
    for name in whole:
        with pytest.raises(ConfigError, match="P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY belong together"):
            security.from_environment({key: value for key, value in whole.items() if key != name})


def wrong_key(files: Security, folder: Path) -> Security:
    return Security(files.ca, files.certificate, files.key.with_name("switch.key"))


def no_file(files: Security, folder: Path) -> Security:
    return Security(files.ca, folder / "absent.pem", files.key)


def nonsense(which: str) -> Callable[[Security, Path], Security]:
    def spoil(files: Security, folder: Path) -> Security:
        file = folder / "nonsense.pem"
        file.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
        return Security(**{**vars(files), which: file})

    return spoil


def expired(files: Security, folder: Path, days: int = -1) -> Security:
    shutil.copytree(files.ca.parent, folder / "old", dirs_exist_ok=True)
    certificates.add_worker(folder / "old", "late", days=days)
    return Security(files.ca, folder / "old" / "late.pem", folder / "old" / "late.key")


def early(files: Security, folder: Path) -> Security:
    certificates._SLACK = datetime.timedelta(hours=-2)
    return expired(files, folder, days=1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (wrong_key, r"the key .*switch\.key does not belong to the certificate .*worker\.pem"),
        (no_file, r"cannot read .*absent\.pem: No such file"),
        (nonsense("ca"), "holds no certificate of an authority"),
        (nonsense("certificate"), "holds no certificate"),
        (nonsense("key"), "holds no private key without a password"),
        (expired, r"late\.pem is valid from .* to .*, and this machine's clock says .*; make others with"),
        (early, r"late\.pem is not valid yet: this machine's clock says .* UTC, and it begins at .*: set the clock"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Security, Path], Security],
    message: str,
) -> None:
    monkeypatch.setattr(certificates, "_SLACK", datetime.timedelta(days=3))  # so that one can have ended yesterday
    with pytest.raises(ConfigError, match=message):
        spoil(bench.of("worker"), tmp_path).check()


@pytest.mark.fault("jobs from many loopback addresses: they count for one owner")
@pytest.mark.parametrize(
    ("peer", "name", "owner", "local"),
    [
        ("ipv4:127.0.0.1:4000", "127.0.0.1", "127.0.0.1", True),
        ("ipv4:127.9.8.7:4000", "127.9.8.7", "127.0.0.1", True),
        ("ipv4:10.0.0.9:4000", "10.0.0.9", "10.0.0.9", False),
        ("ipv6:%5B::1%5D:4000", "::1", "127.0.0.1", True),
        ("ipv6:%5B::ffff:127.0.0.9%5D:4000", "::ffff:127.0.0.9", "127.0.0.1", True),
        ("ipv6:%5B::ffff:10.0.0.9%5D:4000", "::ffff:10.0.0.9", "10.0.0.9", False),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:4000", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", False),
        ("ipv6:%5Bfe80::1%25eth0%5D:4000", "fe80::1%eth0", "fe80::/64", False),
        ("unix:", "127.0.0.1", "127.0.0.1", True),
        ("unix-abstract:x", "127.0.0.1", "127.0.0.1", True),
    ],
)
def test_the_name_and_owner_of_a_peer_without_a_certificate(peer: str, name: str, owner: str, local: bool) -> None:
    context = SimpleNamespace(peer=lambda: peer, auth_context=dict)
    assert (security.peer_name(context), security.peer_owner(context)) == (name, owner)
    assert security.is_local_peer(context) is local


def test_the_name_and_roles_of_a_peer_are_those_of_its_certificate() -> None:
    said = {"x509_common_name": [b"alice"], "x509_subject_alternative_name": [b"worker.p4reduce", b"host.example"]}
    context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:4000", auth_context=lambda: said)
    assert (security.peer_name(context), security.peer_roles(context)) == ("alice", {security.WORKER})
    assert security.peer_owner(context) == "alice"
