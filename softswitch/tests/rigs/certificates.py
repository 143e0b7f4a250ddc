"""Certificates for tests, made once for all of them."""

from __future__ import annotations

from pathlib import Path

from p4reduce_runtime.certificates import add_worker, make_all
from p4reduce_runtime.security import Security


class Bench:
    """An authority in a folder, with certificates for "controller", "switch", "worker" and others that are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_all(folder, days=2)

    def of(self, name: str) -> Security:
        return Security(self.folder / "ca.pem", self.folder / f"{name}.pem", self.folder / f"{name}.key")

    def add(self, name: str) -> Security:
        add_worker(self.folder, name, days=2)
        return self.of(name)

    def environment(self, name: str) -> dict[str, str]:
        files = self.of(name)
        return {"P4REDUCE_CA": str(files.ca), "P4REDUCE_CERT": str(files.certificate), "P4REDUCE_KEY": str(files.key)}

    def toml(self, name: str) -> str:
        files = self.of(name)
        return f"[security]\nca = '{files.ca}'\ncertificate = '{files.certificate}'\nkey = '{files.key}'\n"
