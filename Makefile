# `make demo` and `make test` are all a newcomer needs; both set up .venv by themselves.
PYTHON ?= python3
SEEDS ?= 1
RACKS ?= 1
TEST_PROCESSES ?= 4
# each of the tests' processes would compile the project's modules again
export PYTHONDONTWRITEBYTECODE =
PYTEST = $(BIN)/python -m pytest --dist worksteal
FUZZ_SECONDS ?= 60
FUZZ_FRAMES ?= 1000000
KILLS ?= 30
LAUNCHES ?= 200
STEPS ?= 1000
OVER ?= memory
SWITCHES ?= 1
MINUTES ?= 10
VARIATIONS ?= 1000
VENV := .venv
BIN := $(VENV)/bin
PROTOC = $(abspath $(VENV)/proto/bin/python) -m grpc_tools.protoc
GOOGLEAPIS = $$($(abspath $(VENV)/proto/bin/python) -c 'import google.rpc; print(*google.rpc.__path__)')/../..
INSTALL := -m pip install --quiet --disable-pip-version-check
# the newest build of torch without CUDA that pip is offered, as a constraint: it is smaller by gigabytes than the others
CPU_TORCH = $(BIN)/python -m pip index versions torch --disable-pip-version-check 2>/dev/null \
	| sed -n 's/^Available versions: /, /p' | grep -o '[^ ,]*+cpu' | head -n 1 | sed 's/^/torch==/'

# all of them use one environment
.NOTPARALLEL:
.PHONY: demo test test-switch check frameworks newest-torch bench fuzz chaos members launches soak model same-bits lint format docs reports study testbed conformance rate fidelity p4 p4-tofino \
	proto clean

DEMO = --racks $(RACKS) --out out/demo$(patsubst %,-%-racks,$(filter-out 1,$(RACKS)))
demo: $(VENV)/demo.stamp  # RACKS=2: two racks of workers, each with a switch, below another one
	$(BIN)/p4reduce demo --seeds $(SEEDS) $(DEMO)
	$(BIN)/p4reduce demo --watch $(DEMO)

test: $(VENV)/dev.stamp $(VENV)/interop.stamp
	$(PYTEST) -n $(TEST_PROCESSES)

test-switch: $(VENV)/dev.stamp $(VENV)/interop.stamp  # of the embedded switch alone
	$(PYTEST) -n $(TEST_PROCESSES) softswitch

check: lint  # lint, and the tests that start no process and are no campaign
	$(PYTEST) -n $(TEST_PROCESSES) -m "not processes and not slow"

frameworks: $(VENV)/frameworks.stamp  # Lightning, Accelerate, Transformers, Ray Train and torchft over the backend
	$(VENV)/frameworks/bin/python -m pytest tests/worker/frameworks

newest-torch: $(VENV)/newest.stamp  # the backend in the newest torch of the index: process groups, and other members of them
	$(VENV)/newest/bin/python -m pytest tests/worker/backend/test_entry_points.py tests/worker/backend/test_backend_devices.py \
		tests/worker/backend/test_reconfigure.py tests/worker/backend/test_backend_calls.py \
		tests/system/test_system_campaigns.py::test_members_come_and_go

fuzz: $(VENV)/dev.stamp  # FUZZ_SECONDS for each decoder, then FUZZ_FRAMES mutated frames beside a running job
	$(BIN)/python tests/fuzz/coverage_guided.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python tests/fuzz/foreign_frames.py --frames $(FUZZ_FRAMES)

chaos: $(VENV)/dev.stamp  # kills workers, switches and controller at random under a training, KILLS times; RACKS=2; SWITCHES=3
	$(BIN)/python tests/system/chaos.py --kills $(KILLS) --racks $(RACKS) --switches $(SWITCHES)

soak: $(VENV)/dev.stamp  # four jobs through loss, damage and kills for MINUTES; SOAK="--seed 17 --legs 1": leg 17 again
	$(BIN)/python tests/system/soak.py --minutes $(MINUTES) --out out/soak $(SOAK)

model: $(VENV)/dev.stamp  # every order of frames, losses, copies and timers for small jobs, on the code itself
	$(BIN)/python tests/model

members: $(VENV)/newest.stamp  # kills members of a process group and lets others join, for STEPS; OVER=switches (launch)
	$(VENV)/newest/bin/python tests/system/members.py --steps $(STEPS) --over $(OVER)

launches: $(VENV)/dev.stamp  # starts LAUNCHES launches without a controller, ends them in all ways, counts what is left
	$(BIN)/python tests/system/launches.py --launches $(LAUNCHES)

same-bits: $(VENV)/dev.stamp  # sums made in VARIATIONS random ways each
	$(BIN)/python tests/system/same_bits.py --variations $(VARIATIONS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config layers.toml

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/docs.stamp  # the documentation site, in out/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/demo.stamp $(VENV)/peers.stamp  # as root, for shaped links; BENCH="--quick" or "--only CASE" for less than all of it
	$(BIN)/p4reduce bench --out out/bench $(BENCH)

study: $(VENV)/study.stamp  # hours on two cores; starts again where it was interrupted
	$(BIN)/python -m p4reduce_lab.study

testbed: $(VENV)/demo.stamp  # as root, with Mininet and simple_switch_grpc; TOPOLOGY=two_racks for several switches
	$(BIN)/p4reduce testbed train $(TOPOLOGY) --seeds $(SEEDS) --out out/testbed

conformance: $(VENV)/dev.stamp  # needs simple_switch_grpc on PATH; records BMv2's answers anew
	$(BIN)/python softswitch/tests/conformance/record.py
	$(BIN)/python tests/p4src/record.py
	$(BIN)/python softswitch/tests/conformance/traces.py

rate: $(VENV)/dev.stamp  # as root: frames a second of the embedded switch, and of simple_switch_grpc where it is on PATH
	unshare --net $(BIN)/python softswitch/tests/rate.py

fidelity: $(VENV)/dev.stamp  # needs p4testgen, p4c-bm2-ss and simple_switch_grpc on PATH, P4C_SAMPLES; an hour on two cores
	$(BIN)/python softswitch/tests/fidelity/run.py

p4:  # needs p4c-bm2-ss on PATH
	$(PYTHON) p4src/build.py

p4-tofino:  # needs p4c-bm2-ss on PATH and P4C_TOFINO_INCLUDE, the folder of p4c's tna.p4; better p4c-barefoot and bfas too
	$(PYTHON) p4src/build_tofino.py $(CPU_PORT:%=--cpu-port %)

# P4Runtime's files keep their own names, by which protobuf knows them; only the generated imports name our package
proto: $(VENV)/proto.stamp
	cd contracts && $(PROTOC) -I. --python_out=. --grpc_python_out=. --pyi_out=. p4reduce_contracts/jobs/jobs.proto
	cd softswitch && $(PROTOC) -I. --python_out=. --grpc_python_out=. --pyi_out=. p4reduce_switch/*/*.proto
	cd runtime/p4reduce_runtime && $(PROTOC) -I. -I$(GOOGLEAPIS) --python_out=. --pyi_out=. p4/v1/*.proto p4/config/v1/*.proto
	cd runtime/p4reduce_runtime && $(PROTOC) -I. -I$(GOOGLEAPIS) --grpc_python_out=. p4/v1/p4runtime.proto
	sed -i "s/^from p4\\./from p4reduce_runtime.p4./" runtime/p4reduce_runtime/p4/v1/*_pb2* runtime/p4reduce_runtime/p4/config/v1/*_pb2*

clean:
	rm -rf $(VENV) out

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# finsy and p4runtime-shell, independent P4Runtime clients: neither can be in one environment with what we use.
# A change of this file, which has their versions, installs them again. ptf names netifaces, which it imports nowhere and
# which needs a C compiler, so what it does import is named here.
$(VENV)/interop.stamp: Makefile | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/interop
	$(VENV)/interop/bin/python $(INSTALL) 'finsy>=0.28,<0.31'
	$(PYTHON) -m venv $(VENV)/shell
	$(VENV)/shell/bin/python $(INSTALL) 'p4runtime-shell>=0.0.6,<0.1' 'scapy>=2.6,<3'
	$(VENV)/shell/bin/python $(INSTALL) --no-deps 'ptf>=0.12,<0.13'
	touch $@

# 2 GB beside torch: an environment of its own, which the other tests do not need
$(VENV)/frameworks.stamp: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/frameworks
	$(VENV)/frameworks/bin/python $(INSTALL) -e '.[frameworks]'
	touch $@

# with what torch needs for CUDA, where the newest has no build without it: some gigabytes
$(VENV)/newest.stamp: pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/newest
	$(VENV)/newest/bin/python $(INSTALL) --upgrade -e '.[torch]' pytest hypothesis scapy
	touch $@

# the oldest version that is supported: what a newer one generates refuses older versions of grpcio
$(VENV)/proto.stamp: | $(VENV)/bin/python
	$(PYTHON) -m venv $(VENV)/proto
	$(VENV)/proto/bin/python $(INSTALL) 'grpcio-tools==1.66.2' 'setuptools<80' 'googleapis-common-protos==1.65.0'
	touch $@

# What is compiled on first use is compiled while torch, which that does not need, is installed. The second installation
# names the version that is there: else pip could take another project's p4reduce from an index.
$(VENV)/%.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e .
	@$(CPU_TORCH) >$(VENV)/constraints.txt
	@echo 'installing p4reduce[$*], and compiling kernels meanwhile'
	@nice $(BIN)/p4reduce warm >$(VENV)/warm.log 2>&1 & warm=$$!; trap 'kill $$warm' INT TERM; \
	$(BIN)/python $(INSTALL) --constraint $(VENV)/constraints.txt "p4reduce[$*]===$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("p4reduce"))')"; \
	status=$$?; wait $$warm || echo "kernels were not compiled ahead: $(VENV)/warm.log"; exit $$status
	touch $@
