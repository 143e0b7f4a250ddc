"""Compiled kernels: one process compiles, what it made is used again, and all of it can be switched off."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from p4reduce_runtime import kernels
from p4reduce_runtime.settings import ConfigError
from p4reduce_runtime.warm import warm
from rigs.doubling import COMPILED, LOADED, MODULE, USE, Use, environment_in
from rigs.limits import LIMIT_S


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a process that finds the kernel module and has a cache of its own."""
    return environment_in(tmp_path)


@pytest.mark.processes
def test_one_of_several_processes_that_start_together_compiles(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", USE]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=LIMIT_S)[0].split() for process in started]
    assert sorted(answers) == [LOADED, LOADED, COMPILED]


@pytest.mark.processes
def test_files_not_used_for_long_are_removed(environment: dict[str, str], use: Use) -> None:
    cache = Path(environment["P4REDUCE_CACHE_DIR"])
    long_ago = time.time() - 15 * 86400
    for name in ("kernels-old", "kernels-used", "executor-old"):
        (cache / name).mkdir()
        (cache / name / "kept").touch()
        if name != "kernels-used":
            os.utime(cache / name, (long_ago, long_ago))
    use(environment)
    left = {path.name for path in cache.iterdir() if path.is_dir()}
    assert {"kernels-used", "executor-old"} < left and "kernels-old" not in left
    (own,) = left - {"kernels-used", "executor-old"}
    os.utime(cache / own, (long_ago, long_ago))
    use(environment)
    assert time.time() - (cache / own).stat().st_mtime < 3600, "it was used"


VIEWS = '''
import numpy as np
from p4reduce_runtime.kernels import kernel


@kernel("int64(int64[:, ::1])")
def total(rows):
    """Return the sum of all numbers."""
    found = 0
    for index in range(len(rows)):
        row = rows[index]
        part = row[1:]
        for number in part:
            found += number
        found += row[0]
    return found


@kernel("int64(int64)", allocates=True)
def counted(number):
    """Return the number of numbers."""
    return len(np.empty(number, np.int64))
'''


@pytest.mark.processes
def test_kernels_do_not_count_references_unless_they_allocate(
    environment: dict[str, str], tmp_path: Path, use: Use
) -> None:
    """Each count is an atomic operation, several a frame."""
    (tmp_path / "views.py").write_text(VIEWS, encoding="utf-8")
    program = """
import numpy as np
from p4reduce_runtime import kernels
module = kernels.load("views")
(total,), (counted,) = module.total.inspect_llvm().values(), module.counted.inspect_llvm().values()
print(module.total(np.ones((5, 3), np.int64)), module.counted(7), "NRT_" in total, "NRT_" in counted)
"""
    assert use(environment, program).words == ["15", "7", "False", "True"]


LARGE = """
import numpy as np
from p4reduce_runtime.kernels import kernel


@kernel("void(float32[::1], int64)"{option})
def large(numbers, kind):
    if kind == 0:
        for i in range(len(numbers)):
            numbers[i] = np.rint(numbers[i] * 3.0)
    elif kind == 1:
        for i in range(len(numbers)):
            numbers[i] = np.floor(numbers[i] * 5.0)
    else:
        for i in range(len(numbers)):
            numbers[i] = np.sqrt(numbers[i] * 7.0)


@kernel("void(float32[::1], int64)")
def caller(numbers, kind):
    large(numbers, kind)
    large(numbers, kind + 1)
"""


@pytest.mark.processes
def test_an_inline_kernel_is_compiled_into_those_that_call_it(
    environment: dict[str, str], tmp_path: Path, use: Use
) -> None:
    (tmp_path / "called.py").write_text(LARGE.format(option=""), encoding="utf-8")
    (tmp_path / "included.py").write_text(LARGE.format(option=", inline=True"), encoding="utf-8")
    program = """
from p4reduce_runtime import kernels
for name in ("called", "included"):
    (code,) = kernels.load(name).caller.inspect_asm().values()
    print(f"_ZN{len(name)}{name}5large" in code)
"""
    assert use(environment, program).words == ["True", "False"]


def test_no_kernels_are_loaded_when_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_KERNELS", "off")
    assert kernels.load("doubling") is None


def test_an_unknown_value_of_the_switch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_KERNELS", "maybe")
    with pytest.raises(ConfigError, match="P4REDUCE_KERNELS is 'maybe'; it has to be on or off"):
        kernels.load("doubling")


@pytest.fixture
def found_modules(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the installed packages name as kernel modules; nothing yet."""
    modules: list[str] = []
    monkeypatch.setattr(kernels, "_modules", lambda group=kernels.MODULES: modules)
    for name in ("PYTHONPATH", "P4REDUCE_CACHE_DIR"):
        monkeypatch.setenv(name, environment[name])
    yield modules


@pytest.mark.processes
def test_kernels_compiled_ahead_are_not_compiled_again(
    found_modules: list[str], environment: dict[str, str], use: Use
) -> None:
    found_modules.append("doubling")
    assert len(list(kernels.warm())) == 1
    assert list(kernels.warm()) == []
    assert use(environment).words == LOADED


@pytest.mark.processes
def test_kernels_are_compiled_without_the_imports_of_their_package(
    found_modules: list[str], environment: dict[str, str], tmp_path: Path, use: Use
) -> None:
    """As where torch is not installed yet. What was compiled then is used later, with the whole package."""
    package = tmp_path / "outer" / "needy"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("import not_installed_yet\n", encoding="utf-8")
    (package / "doubling.py").write_text(MODULE, encoding="utf-8")
    found_modules.append("outer.needy.doubling")
    assert len(list(kernels.warm())) == 1
    (tmp_path / "not_installed_yet.py").touch()
    assert use(environment, USE.replace("doubling", "outer.needy.doubling", 1)).words == LOADED


@pytest.mark.processes
def test_the_error_names_a_kernel_that_cannot_be_compiled(found_modules: list[str], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(MODULE.replace("2 * number", "number.nothing"), encoding="utf-8")
    found_modules.append("broken")
    with pytest.raises(kernels.CompilationError, match=r"(?s)broken cannot be compiled; .* status 1: .*nothing"):
        list(kernels.warm())


@pytest.mark.parametrize("words", ["", "a warning"])
@pytest.mark.processes
def test_the_error_names_the_signal_that_ended_the_compiling_process(
    words: str, found_modules: list[str], tmp_path: Path
) -> None:
    source = f"import os, signal, sys\nprint({words!r}, file=sys.stderr)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    (tmp_path / "killed.py").write_text(source, encoding="utf-8")
    found_modules.append("killed")
    with pytest.raises(
        kernels.CompilationError, match=f"killed cannot be compiled; .* status -9: {words or 'it said'}"
    ):
        list(kernels.warm())


def test_warm_without_a_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", "/dev/null/nowhere")
    result = CliRunner().invoke(warm)
    assert result.exit_code == 1
    assert "cannot be kept: /dev/null: it is not a folder; set P4REDUCE_CACHE_DIR" in result.output


@pytest.mark.processes
def test_warm_without_write_access_is_an_error(
    found_modules: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # as a full disk
    (tmp_path / "doubling.py").write_text(limit + MODULE, encoding="utf-8")
    found_modules.append("doubling")
    result = CliRunner().invoke(warm)
    assert result.exit_code == 1 and "all kernels are compiled" not in result.output
    assert f"cannot be kept: compiled code is not kept, and is compiled at each start: {tmp_path}" in result.output
    assert "File too large" in result.output


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A numba that refuses to be imported, as it does for a numpy that it does not know."""
    monkeypatch.setitem(sys.modules, "numba", None)
    kernels._numba_error.cache_clear()
    yield
    kernels._numba_error.cache_clear()


def test_a_numba_that_cannot_be_imported_is_logged_once(no_numba: None, caplog: pytest.LogCaptureFixture) -> None:
    assert kernels.load("doubling") is None and kernels.load("doubling") is None
    (line,) = (record.getMessage() for record in caplog.records)
    assert "numba cannot be imported" in line and "install versions of numba and numpy that fit each other" in line


def test_warm_without_numba_is_an_error(no_numba: None) -> None:
    result = CliRunner().invoke(warm)
    assert result.exit_code == 1 and "numba cannot be imported" in result.output


PACKAGES = {
    "p4reduce_runtime": {"datagrams", "kernels"},
    "p4reduce_switch": {"datapath"},
    "p4reduce_switch.program": {"batch"},
}
"""What kernels take from packages whose own text is not among the listed modules."""


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
