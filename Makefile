# `make` lists the targets. Everything is installed into $(VENV); a second run finds it there.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
RUN := "$(VENV)/bin/python"
SETUP := sh tools/preflight.sh "$(PYTHON)" && "$(PYTHON)" tools/environment.py "$(VENV)"

.PHONY: help demo docs docs-serve test test-faults test-launchers test-multihost test-gpu test-npu test-npu-oldest test-torch test-torch-versions test-clients test-jax test-same-bits docs-commands sanitize fuzz soak mutants cross-arm64 bench wheel check format build clean
help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1: /p' $(MAKEFILE_LIST)

demo: ## set up, build, and run the main job with 4 ranks (ARGS=--break to see a fault found)
	@$(SETUP) package
	@$(RUN) -m collops.demo $(ARGS)
	@echo "collops is installed in $(VENV): . $(VENV)/bin/activate"

test: ## set up, build, and run all tests, C++ and Python (ARGS go to pytest)
	@$(SETUP) package test torch ucx
	@$(RUN) tools/run_tests.py $(ARGS)

test-faults: ## every test of faults, invalid data and dying ranks, in full: about 20 minutes
	@$(SETUP) package test ucx
	@$(RUN) tools/faults.py $(ARGS)

test-launchers: ## Open MPI, MPICH, Intel MPI and torchrun: two jobs at once must not connect
	@$(SETUP) package test
	@$(RUN) tools/launchers.py $(ARGS)

test-multihost: ## ranks on two and three hosts, which are network namespaces: needs root
	@$(SETUP) package test ucx
	@$(RUN) tools/multihost.py $(ARGS)

test-torch: ## collops.torch: every call of torch.distributed, training, operators, errors
	@$(SETUP) package test torch
	@$(RUN) tools/pytorch.py $(ARGS)

test-torch-versions: ## collops.torch with the oldest, a middle and the newest torch of PyPI: 5 GB each
	@$(SETUP) package test
	@$(RUN) tools/torch_versions.py $(ARGS)

test-clients: ## collops inside vLLM, SGLang, torchft, Ray and others on CPUs: 6 GB (ARGS=training: 2 GB)
	@$(SETUP) package test
	@$(RUN) tools/clients.py $(ARGS)

test-jax: ## collops.jax inside programs of JAX, with gradients and errors: 0.5 GB
	@$(SETUP) package test
	@$(RUN) tools/jax_tests.py $(ARGS)

test-gpu: ## the backends cuda and nccl, and CUDA tensors, on simulated GPUs
	@$(SETUP) package test torch
	@$(RUN) tools/gpu.py $(ARGS)

test-npu: ## NPU tensors through the real torch_npu and HCCL calls, on a simulated CANN
	@$(SETUP) package test
	@$(RUN) tools/npu.py $(ARGS)

test-npu-oldest: ## the same with the oldest torch_npu: 7 GB (test-npu ARGS="--torch-npu VERSION": others)
	@$(SETUP) package test
	@$(RUN) tools/npu.py --torch-npu oldest $(ARGS)

test-same-bits: ## products with leaves in every way: ranks, types, instruction sets: 2 minutes
	@$(SETUP) package test ucx
	@$(RUN) tools/same_bits.py $(ARGS)

sanitize: ## run the C++ tests under asan with ubsan, then under tsan (ARGS=tsan for one of them)
	@$(SETUP) package test
	@$(RUN) tools/run_sanitizers.py $(ARGS)

fuzz: ## run the hypothesis tests with 20 times the examples, the C++ readers with many rounds
	@$(SETUP) package test torch
	@$(RUN) tools/run_tests.py --fuzz $(ARGS)

soak: ## make random calls of all kinds under delays for 10 minutes (ARGS="--seconds 120 --seed 7")
	@$(SETUP) package test
	@$(RUN) -m tests.soak.soak $(ARGS)

mutants: ## do the tests find 40 faults? (ARGS=build, then ARGS=run; hours: see CONTRIBUTING.md)
	@$(SETUP) package test torch ucx
	@$(RUN) tools/mutants.py $(ARGS)

cross-arm64: ## compile for arm64 and run tests under qemu
	@$(SETUP) package test
	@$(RUN) tools/run_cross.py

bench: ## compare the collectives with MPIs, from C++ (ARGS="--mpi PREFIX ...", see docs/bench.md)
	@$(SETUP) package
	@$(RUN) -m collops bench cpp $(ARGS)

docs: ## build the site of docs/ into out/docs; a warning fails it
	@$(SETUP)
	@$(RUN) tools/docs.py build $(ARGS)

docs-commands: ## run every command of README and docs/ in an empty environment: half an hour
	@"$(PYTHON)" tools/documented_commands.py $(ARGS)

docs-serve: ## serve the site of docs/ on this machine, rebuilt at each change
	@$(SETUP)
	@$(RUN) tools/docs.py serve $(ARGS)

wheel: ## build an sdist and wheels in out/wheels, run each in an empty environment (ARGS=python3.12)
	@$(SETUP) package
	@$(RUN) tools/wheels.py $(ARGS)

check: ## format, lint, types, layers and docstrings (no test of behaviour)
	@$(SETUP) package test check
	@$(RUN) tools/run_checks.py

format: ## let clang-format and ruff rewrite the sources as `make check` wants them
	@$(SETUP) check
	@$(RUN) tools/run_checks.py --fix

build: ## set up, and install the package into the virtual environment
	@$(SETUP) package

clean: ## remove everything that was built or installed here
	rm -rf "$(VENV)" build dist out python/*.egg-info python/collops/*.so python/collops/*.fatbin
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
