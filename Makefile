# One way in. `make help` lists the targets.
SHELL := /bin/bash
# tests start hundreds of processes, which import what the first of them compiled
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV ?= .venv
LOWEST ?= .venv-lowest
PLAIN ?= .venv-plain
EXTRAS ?= dev
BUDGET ?= 60s
BIN := $(VENV)/bin
# the Python of a GPU machine, with its torch, JAX and Triton; ours for a rehearsal
GPU_PYTHON ?= $(if $(findstring --rehearse,$(ARGS)),$(BIN)/python,python3)
GPU_BUDGET := $(if $(filter command line,$(origin BUDGET)),$(BUDGET),10m)
comma := ,
PTX_TESTS := $(addprefix tests/,targets $(addprefix cuda/test_,operators.py hopper.py same_bits.py))
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
LAYER_DIRS := schedules templates tuner ops results

.PHONY: help setup tune test test-all test-changed test-lowest test-installed test-ptx test-older-cuda fuzz lint tree format bench bench-gpu bench-gpu-pack docs dist clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## a virtual environment in .venv with tensorlang installed in place

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "tensorlang needs Python 3.11 or newer on the PATH"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS="ignore:Editable installation" \
		$(BIN)/python -m pip install --quiet -e ".[$(EXTRAS)]"
	$(BIN)/python -m compileall -q tensorlang $(LAYER_DIRS)
	$(BIN)/python -m tensorlang.templates
	@touch $@

tune: setup  ## tune Threefry's random bits on this CPU, and compare with the default
	$(BIN)/tlang tune random.bits --target llvm --budget $(BUDGET)

test: setup  ## each test, with a share of its sets of parameters
	$(BIN)/python -m pytest -n auto --dist worksteal --share 8 $(ARGS)

test-all: setup  ## each test with all of them (an hour with 2 cores)
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-changed: setup tree  ## the tests closest to changes since SINCE=HEAD, about a minute
	$(BIN)/python tests/changed.py --since $(or $(SINCE),HEAD) $(ARGS)

test-lowest:  ## the suite with the oldest packages that pyproject.toml allows
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	VIRTUAL_ENV=$(LOWEST) $(LOWEST)/bin/uv pip install --quiet \
		--resolution lowest-direct -e ".[$(EXTRAS)]"
	$(LOWEST)/bin/python -m pytest -n auto --dist worksteal $(ARGS)

test-installed:  ## the wheel, in an environment of its own, with the tests marked for it
	$(MAKE) dist UNTAGGED=1
	rm -rf $(PLAIN)
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/python -m pip install --quiet dist/*.whl pytest
	$(PLAIN)/bin/pytest -q -m installed $$(grep -rl --include=*.py mark.installed tests) $(ARGS)

test-ptx: setup  ## the operators' CUDA kernels, executed without a GPU (many minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal --ptx $(PTX_TESTS) $(ARGS)

test-older-cuda: setup  ## Hopper's kernels, compiled with CUDA 13.0 from the index
	if $(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/cuda-13.0 \
		"nvidia-cuda-nvrtc==13.0.*" "nvidia-cuda-nvcc==13.0.*"; then \
		export CUDA_HOME=$$PWD/build/cuda-13.0/nvidia/cu13 \
		&& $(BIN)/python -m benchmarks.gpu.builds --target cuda:sm_90a \
		&& $(BIN)/python -m pytest -q tests/cuda_compile/test_hopper.py; \
	else echo "the package index has no compilers of CUDA 13.0"; fi

fuzz: setup  ## random cases: WHAT=schedules COUNT=20000 [SEED=0 JOBS=2 MODELS=folder]
	@$(BIN)/python tests/fuzz.py $(or $(WHAT),schedules) --count $(or $(COUNT),1000) \
		--seed $(or $(SEED),0) --jobs $(or $(JOBS),2)

lint: setup tree  ## ruff, mypy --strict and the import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	cd build/lint && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p tensorlang
	cd build/lint && PYTHONPATH=. ../../$(BIN)/lint-imports --config ../../pyproject.toml --no-cache

# A tree of links, in which mypy and import-linter see one package, as Python does.
tree:
	@rm -rf build/lint && mkdir -p build/lint/tensorlang
	@for f in tensorlang/* $(LAYER_DIRS); do ln -s ../../../$$f build/lint/tensorlang/; done

format: setup  ## format and fix with ruff
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: ## measure against peers, into results/bench/MACHINE (installs the peers)
	$(MAKE) setup EXTRAS=dev,bench
	$(BIN)/python -m benchmarks $(ARGS)

bench-gpu:  ## on a CUDA machine, into OUT: verify, tune (BUDGET), measure [WHEELS=folder]
	@test -n "$(OUT)" || { echo "name an output folder: make bench-gpu OUT=folder"; exit 2; }
	@$(GPU_PYTHON) -m benchmarks.gpu "$(OUT)" --budget $(GPU_BUDGET) \
		$(if $(WHEELS),--wheels "$(WHEELS)") $(ARGS)

bench-gpu-pack: setup  ## packages for such a machine, into WHEELS [FOR=3.12 ONLY=optuna,mako CUDA=13.0]
	@test -n "$(WHEELS)" || { echo "name a folder for the packages: make bench-gpu-pack WHEELS=folder"; exit 2; }
	@$(BIN)/python -m benchmarks.gpu.pack "$(WHEELS)" $(if $(FOR),--python $(FOR)) \
		--only "$(ONLY)" $(if $(CUDA),--compilers $(CUDA))

docs:  ## the documentation site, into build/site (installs Sphinx)
	@test -x $(BIN)/sphinx-build || $(MAKE) setup EXTRAS=docs
	rm -rf docs/operators build/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --jobs auto docs build/site

VERSION := v$(shell sed -n 's/^__version__.*"\(.*\)"/\1/p' tensorlang/version.py)
dist:  ## sdist and wheel of the commit that is tagged with its version, into dist
	@test -n "$(UNTAGGED)" || git tag --points-at HEAD | grep -qx "$(VERSION)" || \
		{ echo "tensorlang/version.py has $(VERSION): git tag $(VERSION), or make dist UNTAGGED=1"; exit 2; }
	rm -rf dist $(PLAIN)
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/python -m pip install --quiet build
	$(PLAIN)/bin/python -m build --outdir dist .

clean:  ## remove everything these targets created
	rm -rf build dist docs/operators $(VENV) $(LOWEST) $(PLAIN)
