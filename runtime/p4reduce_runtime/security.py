"""Mutual TLS between controller, switch and workers.

Each program has a certificate by one authority (`p4reduce certs init` makes all of them), and the certificate names its
role as a DNS name: a client checks the role of the server that it dials, so a worker's certificate is not accepted for
a controller, whatever its address is. A server without TLS listens on the loopback interface only, unless `insecure`,
and a client of the job service dials no other without TLS, unless P4REDUCE_INSECURE allows it.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote

import grpc

from p4reduce_runtime import forks
from p4reduce_runtime.environment import P4REDUCE_CA, P4REDUCE_CERT, P4REDUCE_INSECURE, P4REDUCE_KEY
from p4reduce_runtime.settings import ConfigError, host_port

CONTROLLER: Final = "controller.p4reduce"
SWITCH: Final = "switch.p4reduce"
WORKER: Final = "worker.p4reduce"
ROLES: Final = (CONTROLLER, SWITCH, WORKER)

_LOOPBACK: Final = "127.0.0.1"
_UNIX: Final = ("unix:", "unix-abstract:")

Options = Sequence[tuple[str, object]]


class CallContext(Protocol):
    """The part of a gRPC server's call context used here, of `grpc` and of `grpc.aio`."""

    def auth_context(self) -> Mapping[str, Iterable[Any]]: ...

    def peer(self) -> str: ...


@dataclass(frozen=True)
class Security:
    """A program's credentials for mutual TLS, as PEM files: the authority, its certificate and its private key."""

    ca: Path
    certificate: Path
    key: Path

    def check(self) -> None:
        """Raise ConfigError, which names the file, unless the three are there, belong together and are valid now."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        try:
            authorities = x509.load_pem_x509_certificates(_read(self.ca))
        except ValueError as error:
            raise ConfigError(f"{self.ca} holds no certificate of an authority: {error}") from None
        try:
            certificate = x509.load_pem_x509_certificate(_read(self.certificate))
        except ValueError as error:
            raise ConfigError(f"{self.certificate} holds no certificate: {error}") from None
        try:
            key = serialization.load_pem_private_key(_read(self.key), None)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{self.key} holds no private key without a password: {error}") from None
        if key.public_key() != certificate.public_key():
            raise ConfigError(f"the key {self.key} does not belong to the certificate {self.certificate}")
        now = datetime.datetime.now(datetime.UTC)
        for file, each in ((self.certificate, certificate), *((self.ca, authority) for authority in authorities)):
            if now < each.not_valid_before_utc:
                raise ConfigError(
                    f"the certificate in {file} is not valid yet: this machine's clock says {now:%Y-%m-%d %H:%M} UTC, "
                    f"and it begins at {each.not_valid_before_utc:%Y-%m-%d %H:%M}: set the clock of this machine, or "
                    "of the one that made it"
                )
            if now > each.not_valid_after_utc:
                raise ConfigError(
                    f"the certificate in {file} is valid from {each.not_valid_before_utc:%Y-%m-%d} to "
                    f"{each.not_valid_after_utc:%Y-%m-%d}, and this machine's clock says {now:%Y-%m-%d}; make others "
                    "with `p4reduce certs init`"
                )

    def client_credentials(self) -> grpc.ChannelCredentials:
        """gRPC's credentials for dialling."""
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.certificate))

    def server_credentials(self) -> grpc.ServerCredentials:
        """gRPC's credentials for listening: clients without a certificate of the authority are turned away."""
        pair = (_read(self.key), _read(self.certificate))
        return grpc.ssl_server_credentials([pair], _read(self.ca), require_client_auth=True)


def given(ca: str | Path | None, certificate: str | Path | None, key: str | Path | None, where: str) -> Security | None:
    """Return the validated Security of three settings; None if none of them is given. Raises ConfigError.

    `where` names the settings in an error.
    """
    if not (ca or certificate or key):
        return None
    if not (ca and certificate and key):
        raise ConfigError(f"{where} belong together: give all three, or none for no TLS")
    security = Security(Path(ca).expanduser(), Path(certificate).expanduser(), Path(key).expanduser())
    security.check()
    return security


def from_environment(environment: Mapping[str, str]) -> Security | None:
    """Return the Security of P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY. Raises ConfigError."""
    ca, certificate, key = (each.read(environment) for each in (P4REDUCE_CA, P4REDUCE_CERT, P4REDUCE_KEY))
    return given(ca, certificate, key, f"{P4REDUCE_CA}, {P4REDUCE_CERT} and {P4REDUCE_KEY}")


def check_dialling(address: str, security: Security | None, *, insecure: bool) -> None:
    """Raise ConfigError for a job service beyond loopback, or at an unknown name, without TLS, unless `insecure`.

    And for an address that is not HOST:PORT or unix:PATH.
    """
    if not address.startswith(_UNIX):
        host_port("the controller's address (P4REDUCE_CONTROLLER)", address)
    if security is None and not insecure and not is_loopback(address):
        _check_name(address)
        raise ConfigError(
            f"the controller at {address} is beyond loopback, and all that is sent there, a token too, would be in the "
            f"clear: set {P4REDUCE_CA}, {P4REDUCE_CERT} and {P4REDUCE_KEY} (`p4reduce certs init` makes the "
            f"files), or set {P4REDUCE_INSECURE}=1 on a network where every host is trusted"
        )


def _check_name(address: str) -> None:
    """Raise ConfigError for HOST:PORT where HOST is a name that does not resolve."""
    host = _host(address)
    if "/" in host or _ip_address(host) is not None:
        return
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:  # UnicodeError: it is no host name at all
        raise ConfigError(
            f"the name {host!r} of the controller at {address} does not resolve ({error}): correct the name"
        ) from None


def dial(address: str, security: Security | None, *, role: str, options: Options = ()) -> Any:
    """Open a gRPC channel to the server with `role` at HOST:PORT; in the clear without `security`.

    Raises ConfigError in a forked child of a process that uses gRPC.
    """
    try:
        forks.use_grpc()
    except RuntimeError as error:
        raise ConfigError(str(error)) from None
    if security is None:
        return grpc.insecure_channel(address, options=list(options))
    named = [*options, ("grpc.ssl_target_name_override", role)]
    return grpc.secure_channel(address, security.client_credentials(), options=named)


def answers_without_tls(address: str, security: Security, timeout_s: float = 1.0) -> bool:
    """Return whether a server at HOST:PORT answers a TLS handshake with other bytes: it has no TLS.

    gRPC itself would try again and again, with a line on stderr each time, and not say why.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent; gRPC verifies the server
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(security.certificate, security.key)
    try:
        with socket.create_connection((_host(address), int(address.rpartition(":")[2])), timeout_s) as connection:
            context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")  # by the version of OpenSSL
    except (OSError, ValueError):
        pass
    return False


def listen(
    server: grpc.Server | grpc.aio.Server, address: str, security: Security | None, *, insecure: bool, advice: str
) -> int:
    """Let a gRPC server listen at HOST:PORT; return the port.

    Raises ConfigError for an address beyond loopback without TLS, unless `insecure`; `advice` is how to configure TLS.
    Raises RuntimeError if the address cannot be bound.
    """
    if security is not None:
        return int(server.add_secure_port(address, security.server_credentials()))
    if not insecure and not is_loopback(address):
        raise ConfigError(
            f"whoever reaches {address} could give orders there: {advice} (`p4reduce certs init` makes certificates), "
            "listen on 127.0.0.1, or say --insecure"
        )
    return int(server.add_insecure_port(address))


def is_loopback(address: str) -> bool:
    """Return whether HOST:PORT (or unix:PATH) is reachable from this machine only."""
    if address.startswith(_UNIX):
        return True
    host = _host(address)
    ip = _ip_address(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def peer_roles(context: CallContext) -> frozenset[str]:
    """Return the roles in the caller's certificate; none without TLS."""
    names = context.auth_context().get("x509_subject_alternative_name", ())
    return frozenset(ROLES) & {bytes(name).decode("utf-8", "replace") for name in names}


def peer_name(context: CallContext) -> str:
    """Return the caller's name: the common name of the certificate, or without TLS the IP address ("127.0.0.1")."""
    return _common_name(context) or _peer_host(context)


def peer_owner(context: CallContext) -> str:
    """Return the owner to whose quotas a call counts: the certificate's common name, or without TLS the caller's host.

    All loopback addresses and unix sockets are one owner, "127.0.0.1". An IPv6 host chooses its interface identifier
    freely (RFC 8981), so the /64 prefix is the owner; of a link-local address it is fe80::/64 on every link.
    """
    if name := _common_name(context):
        return name
    host = _peer_host(context)
    ip = _ip_address(host)
    if ip is None:
        return host
    if ip.is_loopback:
        return _LOOPBACK
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(ip), 64), strict=False))
    return str(ip)


def is_local_peer(context: CallContext) -> bool:
    """Return whether the caller is on this machine."""
    return is_loopback(f"{_peer_host(context)}:0")


def _common_name(context: CallContext) -> str:
    for name in context.auth_context().get("x509_common_name", ()):
        return bytes(name).decode("utf-8", "replace")
    return ""


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _peer_host(context: CallContext) -> str:
    """Return the address in gRPC's "ipv4:127.0.0.1:4000", "ipv6:[::1]:4000" (with escapes as in a URI), "unix:..."."""
    kind, _, rest = str(context.peer()).partition(":")
    if kind.startswith("unix"):
        return _LOOPBACK
    return _host(unquote(rest))


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in `host`, an IPv4-mapped one (RFC 4291, 2.5.5.2) as IPv4; None for a name."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return ip if mapped is None else mapped


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
