"""The names that users import, and the old ones that stay for a release."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import p4reduce
from p4reduce import errors


def resolve(target: str) -> object:
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)


def test_the_public_names() -> None:
    assert p4reduce.__all__ == [
        "AdaComp",
        "BlockTopK",
        "CollectiveError",
        "Communicator",
        "DDPState",
        "NoCompression",
        "P4ReduceError",
        "ScaleCom",
        "__version__",
        "ddp_hook",
        "join",
    ]
    for name in p4reduce.__all__:
        assert getattr(p4reduce, name) is not None


@pytest.mark.parametrize("name", sorted(p4reduce.MOVED))
def test_a_moved_name_is_still_available_with_a_warning(name: str) -> None:
    assert name not in p4reduce.__all__
    target = p4reduce.MOVED[name]
    with pytest.warns(DeprecationWarning, match=f"^p4reduce.{name} is deprecated: use {target}$") as caught:
        old = getattr(p4reduce, name)
    assert old is resolve(target) and caught[0].filename == __file__


@pytest.mark.parametrize("name", sorted(errors.RENAMED))
def test_an_old_error_name_is_still_available_with_a_warning(name: str) -> None:
    with pytest.warns(
        DeprecationWarning, match=rf"^p4reduce.errors.{name} is deprecated: use p4reduce.errors.\w+Error$"
    ):
        old = getattr(errors, name)
    assert old is resolve(errors.RENAMED[name])


@pytest.mark.parametrize("module", ["p4reduce_contracts.jobs.client", "p4reduce_controller.p4rt"])
def test_the_errors_of_the_clients_have_their_old_names_too(module: str) -> None:
    client = import_module(module)
    old_names = {
        "p4reduce_contracts.jobs.client": ("UnknownJob", "NotNow"),
        "p4reduce_controller.p4rt": ("NotPrimary",),
    }
    for name in old_names[module]:
        with pytest.warns(DeprecationWarning, match=f"^{module}.{name} is deprecated: use {module}."):
            assert issubclass(getattr(client, name), Exception)


def test_a_warning_names_the_line_that_uses_the_old_name() -> None:
    with pytest.warns(DeprecationWarning) as caught:
        from p4reduce.errors import JobReset  # type: ignore[attr-defined]  # noqa: F401
    assert {warning.filename for warning in caught} == {__file__}


def test_an_unknown_name_is_an_attribute_error() -> None:
    for module in (p4reduce, errors):
        with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
            _ = module.NoSuchName


@pytest.mark.processes
def test_importing_p4reduce_imports_no_torch_and_nothing_of_the_command_line() -> None:
    unwanted = {"torch", "click", "rich", "cryptography", "prometheus_client", "grpc", "numba", "llvmlite"}
    code = f"import sys, p4reduce; print(sorted({unwanted!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"
