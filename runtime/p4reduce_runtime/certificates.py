"""Certificates for tests and small deployments: an authority, and one certificate for each program.

Certificates of any authority are accepted if they name the role as a DNS name (`security.ROLES`).
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from p4reduce_runtime import security
from p4reduce_runtime.settings import ConfigError

CA_CERTIFICATE, CA_KEY = "ca.pem", "ca.key"
_SLACK = datetime.timedelta(minutes=5)  # of the clocks

Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


class CertificatesError(ConfigError):
    """Certificates cannot be made; the message says what to do."""


def make_all(folder: Path, days: int) -> list[Path]:
    """Make an authority and certificates for the controller, the switch and a worker, valid for `days`.

    Returns the files. Raises CertificatesError if there is an authority already, or the folder cannot be written.
    """
    if (folder / CA_CERTIFICATE).exists() or (folder / CA_KEY).exists():
        raise CertificatesError(
            f"{folder} holds an authority already: its certificates would be void; choose another folder, or add a "
            "worker with `p4reduce certs add`"
        )
    return _write(folder, make_texts(days))


def make_texts(days: int) -> dict[str, str]:
    """Return the files of `make_all`, texts by name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("p4reduce authority")
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _begun(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    texts = _texts(CA_CERTIFICATE, CA_KEY, (certificate, key))
    for each, role in (("controller", security.CONTROLLER), ("switch", security.SWITCH), ("worker", security.WORKER)):
        texts |= _issue((certificate, key), each, role, days)
    return texts


def add_worker(folder: Path, name: str, days: int) -> list[Path]:
    """Make a certificate with that name for another worker or job owner. Raises CertificatesError."""
    if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 63:
        raise CertificatesError(f"{name!r} is no name for a file: use up to 63 letters, digits, - and _")
    if (folder / f"{name}.pem").exists():
        raise CertificatesError(f"{folder / name}.pem is there already; choose another name")
    try:
        certificate = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError) as error:
        raise CertificatesError(f"{folder} holds no authority: {error}; make one with `p4reduce certs init`") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificatesError(f"{folder / CA_KEY} was not made by `p4reduce certs init`")
    return _write(folder, _issue((certificate, key), name, security.WORKER, days))


def _issue(authority: Pair, name: str, role: str, days: int) -> dict[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    both_ways = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        _begun(_name(name), authority[0].subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(role)]), critical=False)
        .add_extension(both_ways, critical=False)
        .sign(authority[1], hashes.SHA256())
    )
    return _texts(f"{name}.pem", f"{name}.key", (certificate, key))


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _texts(certificate_file: str, key_file: str, pair: Pair) -> dict[str, str]:
    certificate, key = pair
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {certificate_file: certificate.public_bytes(pem).decode(), key_file: private.decode()}


def _write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path, mode = folder / name, 0o600 if name.endswith(".key") else 0o644
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
                file.write(text)
            files.append(path)
    except OSError as error:
        raise CertificatesError(f"cannot write to {folder}: {error}") from error
    return files
