# The front door for work on the code. `make` alone lists the targets.
# run.sh and test.sh need no make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
C_FILES := $(shell git ls-files '*.c' '*.h')
SETUP := . tools/setup.sh; install_missing test; make_venv examples test dev

.PHONY: help build unit python check asan tsan torture fuzz simulate compat dask-suite \
	dask-suite-shuffles dask-suite-large bench \
	layers style headers symbols format format-check install

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 18

build: ## the C library with its tests (build/dev), and the package into .venv
	@$(SETUP)
	cmake --preset dev >/dev/null
	cmake --build --preset dev

unit: build ## the C tests
	@$(SETUP)
	ctest --preset dev --no-tests=error

python: ## the Python tests; ARGS goes to pytest
	@$(SETUP)
	python -m pytest $(ARGS)

check: format-check layers style headers unit symbols ## what a commit must pass, in under two minutes

asan: ## the C tests under AddressSanitizer and UBSan
	@$(SETUP)
	cmake --preset asan >/dev/null
	cmake --build --preset asan
	ctest --preset asan --no-tests=error

tsan: ## the C tests of everything that threads run, under ThreadSanitizer
	@$(SETUP)
	cmake --preset tsan >/dev/null
	cmake --build --preset tsan
	ctest --preset tsan --no-tests=error

torture: ## long runs with failing allocations, killed peers and cut connections
	@$(SETUP)
	tools/torture.sh

fuzz: ## fuzz the parsers (clang)
	@$(SETUP)
	tests/fuzz/run.sh

simulate: ## the store for SEEDS seeds (a million), the exchange for EXCHANGE_SEEDS (10,000)
	@$(SETUP)
	cmake --preset release -B build/simulate -DSPILLWAY_TESTS=ON \
		-DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -g" >/dev/null # with assert
	cmake --build build/simulate --target simulate_store
	build/simulate/tests/simulate_store $${FIRST:-1} $${SEEDS:-1000000}
	python python/tests/simulated_exchange.py $${FIRST:-1} $${EXCHANGE_SEEDS:-10000}

compat: ## the Python tests on the oldest and the newest Dask that we support
	@$(SETUP)
	tools/compat.sh

dask-suite: ## Dask's own tests of its comms over Spillway
	@$(SETUP)
	tools/dask_suite.sh

dask-suite-shuffles: ## Dask's own tests that shuffle, over Spillway in each buffer
	@$(SETUP)
	tools/dask_suite.sh --shuffles

dask-suite-large: ## Dask's larger test modules on stock and over Spillway, in an hour
	@$(SETUP)
	tools/dask_suite.sh --large

bench: ## the benchmarks, stock and Spillway in one run; ARGS goes to them
	@$(SETUP)
	python benchmarks/run.py $(ARGS)

install: ## the C library, headers, spillway.pc and CMake package; PREFIX, DESTDIR
	@. tools/setup.sh; install_missing run; make_venv examples
	cmake -S . -B build/install -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	    -DCMAKE_INSTALL_PREFIX=$(or $(PREFIX),/usr/local) >/dev/null
	cmake --build build/install --target spillway
	cmake --install build/install

layers: ## which folder includes which, against src/layers.txt
	@python3 tools/check_layers.py

style: ## banned calls, sizes and names
	@python3 tools/check_style.py

headers: ## what each public declaration has to say
	@python3 tools/check_headers.py

symbols: build ## what the library exports, against tests/abi/exported_symbols.txt
	@python3 tools/check_symbols.py build/dev/libspillway.so

format: ## lay out C and Python
	@$(SETUP)
	clang-format -i $(C_FILES)
	ruff format
	ruff check --fix

format-check: ## whether `make format` would change something; spelling
	@$(SETUP)
	clang-format --dry-run --Werror $(C_FILES)
	ruff format --check --quiet
	ruff check --quiet
	git ls-files -z | xargs -0 codespell
