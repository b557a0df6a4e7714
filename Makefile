# SPDX-License-Identifier: Apache-2.0
# For people. The build itself is CMakeLists.txt.
BUILD ?= build
TEST_JOBS ?= 2
FUZZ_SECONDS ?= 60
CMAKE = cmake -S . -G Ninja
CTEST = ctest --output-on-failure -j $(TEST_JOBS)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
	@echo
	@echo "demo takes MODEL=DIR and PROMPT=TEXT; check, asan and tsan take TESTS=REGEX; fuzz takes FUZZ_SECONDS=N"

deps: ## install the Debian packages that are missing, or say which
	@bash scripts/deps.sh

build: deps ## the program, at build/keel
	@mkdir -p $(BUILD)
	@$(CMAKE) -B $(BUILD) >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@cmake --build $(BUILD) --target keel_cli

demo: build ## get a small model and let it write text
	@bash scripts/demo.sh $(abspath $(BUILD))/keel

check: deps ## every test, the protocol tests under ThreadSanitizer too
	$(CMAKE) -B $(BUILD) -DKEEL_WERROR=ON
	cmake --build $(BUILD)
	$(CTEST) --test-dir $(BUILD) $(if $(TESTS),-R '$(TESTS)')

asan: deps ## every test under AddressSanitizer and UndefinedBehaviorSanitizer
	$(CMAKE) -B $(BUILD)-asan -DKEEL_SANITIZE=address
	cmake --build $(BUILD)-asan
	$(CTEST) --test-dir $(BUILD)-asan $(if $(TESTS),-R '$(TESTS)')

tsan: deps ## every test under ThreadSanitizer
	$(CMAKE) -B $(BUILD)-tsan -DKEEL_SANITIZE=thread
	cmake --build $(BUILD)-tsan
	$(CTEST) --test-dir $(BUILD)-tsan $(if $(TESTS),-R '$(TESTS)')

gpu-bundle: deps ## gpu-bundle/keel: one file to carry to a machine with a GPU, and what takes evidence there
	$(CMAKE) -B $(BUILD)-bundle -DKEEL_STATIC_DEPS=ON -DKEEL_TESTS=ON
	cmake --build $(BUILD)-bundle --target keel_cli keel_sessions keel_ops
	@bash scripts/gpu_bundle.sh $(BUILD)-bundle/keel $(BUILD)-bundle/keel_sessions $(BUILD)-bundle/tests/gpu/keel-ops gpu-bundle

fuzz: deps ## libFuzzer over every parser (needs clang)
	@command -v clang >/dev/null || { echo "fuzz: needs clang: apt-get install -y clang libclang-rt-14-dev" >&2; exit 2; }
	CC=clang $(CMAKE) -B $(BUILD)-fuzz -DKEEL_FUZZ=ON
	cmake --build $(BUILD)-fuzz
	@bash scripts/fuzz.sh $(abspath $(BUILD))-fuzz $(FUZZ_SECONDS)

format: ## lay out the C sources with clang-format
	@bash scripts/check_format.sh --fix

clean: ## remove what was built (models-cache stays)
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-bundle $(BUILD)-fuzz gpu-bundle

.PHONY: help deps build demo check asan tsan gpu-bundle fuzz format clean
