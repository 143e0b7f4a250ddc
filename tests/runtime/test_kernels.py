"""Compiled kernels: one process compiles, what it made is used again, and what it cannot compile is an error."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import time
from importlib import metadata
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any

import numpy as np
import pytest
from click.testing import CliRunner

from p4reduce_runtime import kernels
from p4reduce_runtime.records import Record, dtype_of
from p4reduce_runtime.warm import warm
from rigs.doubling import COMPILED, LOADED, MODULE, USE, Use, forget, kept
from rigs.fork_server import program_server
from rigs.limits import LIMIT_S


@pytest.mark.processes
def test_one_of_several_processes_that_start_together_compiles(environment: dict[str, str], tmp_path: Path) -> None:
    script, logs = tmp_path / "use.py", [tmp_path / f"{number}.log" for number in range(3)]
    script.write_text(USE, encoding="utf-8")
    for process in [program_server().start(log, str(script), environment=environment) for log in logs]:
        assert process.wait(LIMIT_S) == 0
    assert sorted(log.read_text().splitlines()[-1].split() for log in logs) == [LOADED, LOADED, COMPILED]


def test_files_not_used_for_long_are_removed(environment: dict[str, str], use: Use) -> None:
    """test_cache.py says which: a folder is added here, and then used."""
    cache, long_ago = Path(environment["P4REDUCE_CACHE_DIR"]), time.time() - 15 * 86400
    (cache / "kernels-old").mkdir()
    os.utime(cache / "kernels-old", (long_ago, long_ago))
    use()
    (own,) = (path for path in cache.iterdir() if path.is_dir())
    os.utime(own, (long_ago, long_ago))
    use()
    assert time.time() - own.stat().st_mtime < 3600, "it was used"


VIEWS = '''
import numpy as np
from p4reduce_runtime import kernels, records


@kernels.kernel()
def total(rows: records.Matrix[np.int64]) -> int:
    """Return the sum of all numbers."""
    found = 0
    for index in range(len(rows)):
        row = rows[index]
        part = row[1:]
        for number in part:
            found += number
        found += row[0]
    return found


@kernels.kernel(allocates=True)
def counted(number: int) -> int:
    """Return the number of numbers."""
    return len(np.empty(number, np.int64))
'''


@pytest.mark.usefixtures("environment")
def test_kernels_do_not_count_references_unless_they_allocate(tmp_path: Path) -> None:
    """Each count is an atomic operation, several a frame."""
    (tmp_path / "views.py").write_text(VIEWS, encoding="utf-8")
    module: Any = importlib.import_module("views")
    assert (module.total(np.ones((5, 3), np.int64)), module.counted(7)) == (15, 7)
    (total,), (counted,) = module.total.inspect_llvm().values(), module.counted.inspect_llvm().values()
    assert ("NRT_" in total, "NRT_" in counted) == (False, True)


LARGE = """
import numpy as np
from p4reduce_runtime import kernels, records


@kernels.kernel({option})
def large(numbers: records.Vector[np.float32], kind: int) -> None:
    if kind == 0:
        for i in range(len(numbers)):
            numbers[i] = np.rint(numbers[i] * 3.0)
    elif kind == 1:
        for i in range(len(numbers)):
            numbers[i] = np.floor(numbers[i] * 5.0)
    else:
        for i in range(len(numbers)):
            numbers[i] = np.sqrt(numbers[i] * 7.0)


@kernels.kernel()
def caller(numbers: records.Vector[np.float32], kind: int) -> None:
    large(numbers, kind)
    large(numbers, kind + 1)
"""


@pytest.mark.usefixtures("environment")
def test_an_inline_kernel_is_compiled_into_those_that_call_it(tmp_path: Path) -> None:
    for name, option in (("called", ""), ("included", "inline=True"), ("apart", "separate=True")):
        (tmp_path / f"{name}.py").write_text(LARGE.format(option=option), encoding="utf-8")
        module: Any = importlib.import_module(name)
        (code,) = module.caller.inspect_asm().values()
        symbol = f"_ZN{len(name)}{name}5large"
        assert (symbol in code) == (name != "included")
        assert bool(re.search(rf"^{symbol}\w*:", code, re.MULTILINE)) == (name == "called")


def test_a_kernel_is_compiled_with_one_that_was_loaded(environment: dict[str, str], tmp_path: Path) -> None:
    """Whose bitcode is parsed only then."""
    (tmp_path / "called.py").write_text(LARGE.format(option=""), encoding="utf-8")
    importlib.import_module("called")
    (file,) = (file for file in kept(environment) if ".caller-" in file.name)
    file.unlink()
    forget()
    module: Any = importlib.import_module("called")
    assert [sum(each.stats.cache_hits.values()) for each in (module.large, module.caller)] == [1, 0]
    numbers = np.ones(4, np.float32)
    module.caller(numbers, 1)
    assert numbers.tolist() == pytest.approx([35**0.5] * 4)


CALL = """
import numba, numpy
numba.njit("int64(int64)")(lambda number: number)  # numba numbers a process's functions: `large` has another name then
import called
numbers = numpy.ones(4, "float32")
called.caller(numbers, 1)
print(*(sum(each.stats.cache_hits.values()) for each in (called.large, called.caller)), round(float(numbers[3])))
"""


@pytest.mark.fault("the file of a kernel that others call is damaged: it is compiled again, and they with it")
@pytest.mark.processes
def test_a_kernel_is_compiled_again_with_a_separate_one(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "called.py").write_text(LARGE.format(option="separate=True"), encoding="utf-8")
    importlib.import_module("called")
    script, log = tmp_path / "call.py", tmp_path / "call.log"
    script.write_text(CALL, encoding="utf-8")
    for hits in ("1 1", "0 0", "1 1"):
        if hits == "0 0":
            (file,) = (file for file in kept(environment) if ".large-" in file.name)
            file.write_bytes(b"")
        with program_server().start(log, str(script), environment=environment) as process:
            assert process.wait(LIMIT_S) == 0, log.read_text()
        assert log.read_text().splitlines()[-1] == f"{hits} 6"


@pytest.mark.processes
def test_kernels_are_compiled_ahead_in_processes_of_their_own(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the imports of their package, as where torch is not installed yet; and errors name what failed."""
    installed, modules = kernels._modules, list[str]()
    monkeypatch.setattr(kernels, "_modules", lambda group=kernels.MODULES: modules)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def listed(module: str, source: str) -> None:
        file = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
        modules[:] = [module]

    listed("needy.kernels", MODULE)
    (tmp_path / "needy" / "__init__.py").write_text("import not_installed_yet\n", encoding="utf-8")
    assert len(list(kernels.warm())) == 1
    assert list(kernels.warm()) == []
    (tmp_path / "not_installed_yet.py").touch()
    kernels._folder.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_modules", installed)  # as in the processes that compiled
        loaded = importlib.import_module("needy.kernels").doubled.stats
    assert (sum(loaded.cache_misses.values()), sum(loaded.cache_hits.values())) == (0, 1), "what was compiled is used"

    done = next((tmp_path / "cache").rglob(kernels._DONE))
    failures = {
        "broken": (MODULE.replace("2 * number", "number.nothing"), r"(?s)broken cannot be compiled; .* 1: .*nothing"),
        "killed": ("import os\nos.kill(os.getpid(), 9)\n", "killed cannot be compiled; .* status -9: it said nothing"),
        "warned": (
            "import os, sys\nprint('a warning', file=sys.stderr)\nos.kill(os.getpid(), 9)\n",
            "warned cannot be compiled; .* status -9: a warning",
        ),
    }
    for name, (source, message) in failures.items():
        done.unlink(missing_ok=True)
        listed(name, source)
        with pytest.raises(kernels.CompilationError, match=message):
            list(kernels.warm())
    listed("full", "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n" + MODULE)
    result = CliRunner().invoke(warm)
    assert result.exit_code == 1 and "all kernels are compiled" not in result.output
    assert f"cannot be kept: compiled code is not kept, and is compiled at each start: {tmp_path}" in result.output
    assert "File too large" in result.output


def test_warm_without_a_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", "/dev/null/nowhere")
    result = CliRunner().invoke(warm)
    assert result.exit_code == 1
    assert "cannot be kept: /dev/null: it is not a folder; set P4REDUCE_CACHE_DIR" in result.output


def test_a_numba_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it refuses a numpy that it does not know."""
    monkeypatch.setitem(sys.modules, "numba", None)
    result = CliRunner().invoke(warm)
    assert result.exit_code == 1 and "numba cannot be imported" in result.output
    with pytest.raises(kernels.CompilationError, match="install versions of numba and numpy that fit each other"):
        kernels.kernel()


PACKAGES = {
    "p4reduce_runtime": {"datagrams", "kernels"},
    "p4reduce_switch": {"datapath"},
    "p4reduce_switch.program": {"batch"},
}
"""The names that kernels import from packages whose own text is not among the listed modules."""


def test_constants_that_are_compiled_in_belong_to_the_cache() -> None:
    """What a kernel module imports is listed beside it: with other constants it is compiled anew."""
    modules = {entry.value for entry in metadata.entry_points(group=kernels.MODULES)}
    constants = {entry.value for entry in metadata.entry_points(group=kernels.CONSTANTS)}
    listed = modules | constants | {"p4reduce_runtime.kernels"}
    for module in modules:
        spec = importlib.util.find_spec(module)
        assert spec is not None and spec.origin is not None
        text = Path(spec.origin).read_text(encoding="utf-8")
        for package, names in re.findall(r"^from (p4reduce\w*(?:\.\w+)*) import ([^(\n]*)", text, re.MULTILINE):
            taken = {name.split(" as ")[0].strip() for name in names.split(",")}
            assert package in listed or taken <= PACKAGES.get(package, set()), f"{module} takes {taken} from {package}"


BEFORE_2_5 = GenericAlias(np.ndarray, (Any, GenericAlias(np.dtype, (np.int16,))))
FROM_2_5 = GenericAlias(np.ndarray, (np.int16,))
"""The value of NDArray[np.int16], in the arguments that tell its element, by numpy's version."""


class Fields(Record):
    number: int
    small: Annotated[int, np.uint16]
    old: Annotated[BEFORE_2_5, 3]
    new: Annotated[FROM_2_5, 3]


def test_fields_have_the_types_and_lengths_that_are_declared() -> None:
    declared = [("number", "i8"), ("small", "u2"), ("old", "i2", 3), ("new", "i2", 3)]
    assert dtype_of(Fields) == np.dtype(declared, align=True)
