"""Compile p4src/tna into p4src/artifacts, one folder a chip: `make p4-tofino`.

* `front_end.json`: what p4c's front end makes of the program, with all controls inlined and all names resolved, as
  small JSON that tests/p4src executes. It needs p4c-bm2-ss, whose front end is every p4c's, and the headers of p4c's
  Tofino backend (backends/tofino/bf-p4c/p4include), which P4C_TOFINO_INCLUDE names.
* `geometry.toml`: the sizes, as every pipeline folder has them.
* `p4reduce.p4info.txtpb` and `report.json` (tofino_report.py): what p4c's Tofino backend and its assembler make of it.
  P4Info has P4Runtime's own messages for counters, meters, registers and digests, which is what switches take, and not
  the compiler's. They need p4c-barefoot and bfas on PATH; without them these two stay as they are.

A pipeline folder for the controller is out/tofino/CHIP: P4Info and sizes, with what a switch loads, some MB that are
not checked in: tofino.bin, context.json, bfrt.json. `make p4-tofino CPU_PORT=N` writes
out/tofino/tofino1-4x8-cpuN alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build
import tofino_report

P4SRC = Path(__file__).resolve().parent
OUT = P4SRC.parent / "out" / "tofino"
SOURCES = "tna"
MANIFEST = "manifest-tofino.json"
PROGRAM = "front_end.json"
REPORT = "report.json"
P4INFO = "p4reduce.p4info.txtpb"
LOADED = "tofino.bin"
"""The binary of either chip; the assembler names it by the chip."""
INCLUDE = "P4C_TOFINO_INCLUDE"
TOFINO_1 = "tofino1-4x8"
CHIPS = {TOFINO_1: 1, "tofino2-4x16": 2}
"""The geometries of build.py that are for a Tofino, and its generation."""
TARGETS = {1: ("tofino", "tna"), 2: ("tofino2", "t2na")}
"""Compiler target and architecture, by generation."""

Node = dict[str, Any]
BINARY = {"Add": "+", "BOr": "|", "Equ": "==", "Neq": "!=", "LAnd": "and", "LOr": "or"}


class UnknownNodeError(Exception):
    """The program uses a part of the language that front_end.json has no word for."""


def defines(name: str, cpu_port: int | None = None) -> list[str]:
    """Macros of a geometry and its chip, for a preprocessor."""
    shape = {**build.GEOMETRIES[name], **({} if cpu_port is None else {"cpu_port_number": cpu_port})}
    return [f"-D__TARGET_TOFINO__={CHIPS[name]}", *(f"-D{macro.upper()}={value}" for macro, value in shape.items())]


def backend_is_here() -> bool:
    return shutil.which("p4c-barefoot") is not None and shutil.which("bfas") is not None


def compile_chip(
    name: str, include: str, folder: Path, loaded: Path | None = None, cpu_port: int | None = None
) -> None:
    """Write P4Info and report of one chip into `folder`; what a switch loads, some MB, goes to `loaded`.

    `cpu_port`: the number of the chip's CPU port, by default that in headers.p4.

    Raises CalledProcessError if compiler or assembler refuse.
    """
    target, architecture = TARGETS[CHIPS[name]]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        source = out / "p4reduce.p4"
        preprocess = ["cpp", "-undef", "-nostdinc", "-x", "assembler-with-cpp", "-C"]
        preprocess += [*defines(name, cpu_port), "-I", include]
        preprocess += ["-I", str(core_include()), "tna/main.p4", "-o", str(source)]
        p4info = folder / P4INFO
        compiler = ["p4c-barefoot", "--nocpp", "--std", "p4-16", "--target", target, "--arch", architecture, "-g"]
        compiler += ["--Wdisable", "--p4runtime-files", str(p4info), "--p4runtime-force-std-externs"]
        compiler += ["--bf-rt-schema", str(out / "bfrt.json")]
        for command in (preprocess, [*compiler, "-o", str(out), str(source)]):
            subprocess.run(command, cwd=P4SRC, check=True)
        assembly = out / "pipe" / "p4reduce.bfa"
        (out / "binary" / "logs").mkdir(parents=True)
        subprocess.run(["bfas", "--no-warn", "--target", target, "-o", str(out / "binary"), str(assembly)], check=True)
        binary = next((out / "binary").glob("*.bin"), None)
        if binary is None:
            raise RuntimeError("the assembler wrote no binary")
        if loaded is not None:
            loaded.mkdir(parents=True, exist_ok=True)
            build.write_geometry(name, loaded)
            for file in (p4info, out / "binary" / "context.json", out / "bfrt.json"):
                shutil.copy(file, loaded)
            shutil.copy(binary, loaded / LOADED)
        resources = json.loads((out / "pipe" / "logs" / "resources.json").read_text())
        text = assembly.read_text()
    report = {"sources": sources_digest()} | tofino_report.report(text, resources)
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")


def core_include() -> Path:
    """Return the folder of p4c's core.p4, beside p4c-bm2-ss."""
    compiler = shutil.which("p4c-bm2-ss")
    return Path(compiler or "").resolve().parent.parent / "share" / "p4c" / "p4include"


def sources_digest() -> str:
    """One SHA-256 over all sources: a report is of these."""
    return hashlib.sha256(json.dumps(build.sources(SOURCES), sort_keys=True).encode()).hexdigest()


def read_program(name: str, include: str) -> Node:
    """Return what p4c's front end makes of p4src/tna in this geometry. Raises CalledProcessError if it refuses it."""
    with tempfile.TemporaryDirectory() as scratch:
        dump = Path(scratch) / "ir.json"
        command = ["p4c-bm2-ss", *defines(name), "-I", include]
        command += ["--Wdisable", "--toJSON", str(dump), "tna/main.p4"]
        done = subprocess.run(command, cwd=P4SRC, capture_output=True, text=True, check=False)
        # BMv2's backend has no TNA package and fails: by then the front end has written its result.
        if not dump.is_file():
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return Reader(json.loads(dump.read_text())).program()


class Reader:
    """Reduces p4c's IR to lists and names. A node that occurs again is only its number in p4c's JSON."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._nodes: dict[int, Node] = {}
        self._collect(root)

    def program(self) -> Node:
        """Return {"types", "parsers", "controls"} by name."""
        found: dict[str, Node] = {"types": {}, "parsers": {}, "controls": {}}
        for node in self._vec(self._root["objects"]):
            kind = node["Node_Type"]
            if kind in ("Type_Header", "Type_Struct"):
                fields = {field["name"]: self._type(field["type"]) for field in self._vec(node["fields"])}
                found["types"][node["name"]] = {"header": kind == "Type_Header", "fields": fields}
            elif kind == "P4Parser":
                states = {state["name"]: self._state(state) for state in self._vec(node["states"])}
                found["parsers"][node["name"]] = self._block(node, node["parserLocals"]) | {"states": states}
            elif kind == "P4Control":
                body = self._statement(self._get(node["body"]))
                found["controls"][node["name"]] = self._block(node, node["controlLocals"]) | {"body": body}
        return found

    def _block(self, node: Node, locals_: Node) -> Node:
        """Return what parsers and controls have in common: parameters and declarations."""
        of_type = self._get(node["type"])
        parameters = {p["name"]: self._type(p["type"]) for p in self._parameters(of_type["applyParams"])}
        found: Node = {"parameters": parameters, "variables": {}, "instances": {}, "actions": {}, "tables": {}}
        for local in self._vec(locals_):
            kind = local["Node_Type"]
            if kind == "Declaration_Variable":
                found["variables"][local["name"]] = self._type(local["type"])
            elif kind == "Declaration_Instance":
                found["instances"][local["name"]] = self._instance(local)
            elif kind == "P4Action":
                names = [p["name"] for p in self._parameters(local["parameters"])]
                body = self._statement(self._get(local["body"]))
                found["actions"][local["name"]] = {"name": self._name(local), "parameters": names, "body": body}
            elif kind == "P4Table":
                found["tables"][local["name"]] = self._table(local)
            else:
                raise UnknownNodeError(f"declaration {kind}")
        return found

    def _instance(self, node: Node) -> Node:
        of_type = self._get(node["type"])
        found: Node = {"name": self._name(node), "types": []}
        if of_type["Node_Type"] == "Type_Specialized":
            found["types"] = [self._type(argument) for argument in self._vec(of_type["arguments"])]
            of_type = self._get(of_type["baseType"])
        found["extern"] = self._get(of_type["path"])["name"]
        found["arguments"] = [self._expression(argument["expression"]) for argument in self._vec(node["arguments"])]
        if node.get("initializer"):
            (apply,) = self._vec(self._get(node["initializer"])["components"])
            of_apply = self._get(apply["type"])
            found["parameters"] = [p["name"] for p in self._parameters(of_apply["parameters"])]
            found["body"] = self._statement(self._get(apply["body"]))
        return found

    def _table(self, node: Node) -> Node:
        found: Node = {"name": self._name(node), "keys": [], "entries": [], "default": None}
        for entry in self._vec(self._get(node["properties"])["properties"]):
            value = self._get(entry["value"])
            if entry["name"] == "key":
                for key in self._vec(value["keyElements"]):
                    kind = self._get(self._get(key["matchType"])["path"])["name"]
                    found["keys"].append([self._expression(key["expression"]), kind])
            elif entry["name"] == "default_action":
                found["default"] = self._expression(value["expression"])
            elif entry["name"] == "entries":
                for row in self._vec(value["entries"]):
                    keys = self._vec(self._get(row["keys"])["components"])
                    found["entries"].append([[self._expression(k) for k in keys], self._expression(row["action"])])
        return found

    def _state(self, node: Node) -> Node:
        found: Node = {"body": [self._statement(one) for one in self._vec(node["components"])]}
        select = self._get(node.get("selectExpression"))
        if select is None:
            return found
        if select["Node_Type"] == "PathExpression":
            return found | {"select": [], "cases": [[["any"], self._get(select["path"])["name"]]]}
        found["select"] = [self._expression(one) for one in self._vec(self._get(select["select"])["components"])]
        found["cases"] = [
            [self._expression(case["keyset"]), self._get(self._get(case["state"])["path"])["name"]]
            for case in self._vec(select["selectCases"])
        ]
        return found

    def _statement(self, node: Node) -> list[Any]:
        node = self._get(node)
        kind = node["Node_Type"]
        if kind == "BlockStatement":
            return ["block", *(self._statement(one) for one in self._vec(node["components"]))]
        if kind == "AssignmentStatement":
            return ["set", self._expression(node["left"]), self._expression(node["right"])]
        if kind == "MethodCallStatement":
            return ["do", self._expression(node["methodCall"])]
        if kind == "IfStatement":
            otherwise = self._get(node.get("ifFalse"))
            branches = [self._statement(node["ifTrue"]), self._statement(otherwise) if otherwise else ["block"]]
            return ["if", self._expression(node["condition"]), *branches]
        if kind == "Declaration_Variable":
            return ["let", node["name"], self._type(node["type"])]
        raise UnknownNodeError(f"statement {kind}")

    def _expression(self, node: Node) -> list[Any]:
        node = self._get(node)
        kind = node["Node_Type"]
        simple: Mapping[str, Callable[[], list[Any]]] = {
            "Constant": lambda: ["const", node["value"]],
            "BoolLiteral": lambda: ["const", int(node["value"])],
            "DefaultExpression": lambda: ["any"],
            "PathExpression": lambda: ["name", self._get(node["path"])["name"]],
            "Member": lambda: ["field", self._expression(node["expr"]), node["member"]],
            "Slice": lambda: ["slice", *(self._expression(node[part]) for part in ("e0", "e1", "e2"))],
            "Mask": lambda: ["mask", self._expression(node["left"]), self._expression(node["right"])],
            "LNot": lambda: ["not", self._expression(node["expr"])],
            "ListExpression": lambda: ["list", *map(self._expression, self._vec(node["components"]))],
            "StructExpression": lambda: [
                "list",
                *(self._expression(named["expression"]) for named in self._vec(node["components"])),
            ],
            "MethodCallExpression": lambda: [
                "call",
                self._expression(node["method"]),
                *(self._expression(argument["expression"]) for argument in self._vec(node["arguments"])),
            ],
        }
        if kind in BINARY:
            return [BINARY[kind], self._expression(node["left"]), self._expression(node["right"]), self._bits(node)]
        if kind not in simple:
            raise UnknownNodeError(f"expression {kind}")
        return simple[kind]()

    def _bits(self, node: Node) -> int:
        found = self._type(node["type"])
        if not isinstance(found, int):
            raise UnknownNodeError(f"arithmetic on {found}")
        return found

    def _type(self, node: Node) -> int | str:
        """Bits of a number (a bool's are 1), or the name of a type."""
        node = self._get(node)
        kind = node["Node_Type"]
        if kind == "Type_Bits":
            return int(node["size"])
        if kind == "Type_Boolean":
            return 1
        if kind == "Type_Name":
            return str(self._get(node["path"])["name"])
        return str(node["name"])

    def _name(self, node: Node) -> str:
        """The name that a control plane uses."""
        for annotation in self._vec(node["annotations"]):
            if annotation["name"] == "name":
                (text,) = self._vec(self._get(annotation["body"])["value"])
                return str(text["value"]).removeprefix(".")
        return str(node["name"])

    def _parameters(self, node: Node) -> list[Node]:
        return self._vec(self._get(node)["parameters"])

    def _vec(self, node: Node) -> list[Node]:
        return [self._get(one) for one in self._get(node)["vec"]]

    def _get(self, node: Any) -> Any:
        if isinstance(node, dict) and "Node_ID" in node and "Node_Type" not in node:
            return self._nodes[node["Node_ID"]]
        return node

    def _collect(self, root: Any) -> None:
        left = [root]
        while left:
            node = left.pop()
            if isinstance(node, dict):
                if "Node_Type" in node:
                    self._nodes[node["Node_ID"]] = node
                left.extend(node.values())
            elif isinstance(node, list):
                left.extend(node)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile p4src/tna.")
    text = "write only the pipeline folder of a Tofino 1 whose CPU port is this one"
    parser.add_argument("--cpu-port", type=int, metavar="N", help=text)
    cpu_port = parser.parse_args().cpu_port
    if cpu_port is not None and cpu_port not in range(512):
        parser.error(f"a CPU port is 0 to 511, not {cpu_port}")
    include = os.environ.get(INCLUDE, "")
    if shutil.which("p4c-bm2-ss") is None or not (Path(include) / "tna.p4").is_file():
        print(
            f"needs p4c-bm2-ss on PATH, and {INCLUDE}=<p4c's sources>/backends/tofino/bf-p4c/p4include, where tna.p4"
            " is; then run `make p4-tofino` again",
            file=sys.stderr,
        )
        return 1
    if cpu_port is not None:
        if not backend_is_here():
            print("needs p4c-barefoot and bfas on PATH", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory() as scratch:
            compile_chip(TOFINO_1, include, Path(scratch), OUT / f"{TOFINO_1}-cpu{cpu_port}", cpu_port)
        return 0
    for name in CHIPS:
        folder = P4SRC / "artifacts" / name
        folder.mkdir(parents=True, exist_ok=True)
        build.write_geometry(name, folder)
        (folder / PROGRAM).write_text(json.dumps(read_program(name, include), separators=(",", ":")) + "\n")
        if backend_is_here():
            compile_chip(name, include, folder, OUT / name)
        else:
            print(
                f"{name}: p4c-barefoot or bfas is not on PATH, so P4Info and report stay as they are", file=sys.stderr
            )
    build.write_manifest(MANIFEST, "front_end", SOURCES, [build.ARTIFACTS / name for name in CHIPS])
    return 0


if __name__ == "__main__":
    sys.exit(main())
