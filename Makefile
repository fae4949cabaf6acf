PYTHON ?= python3
BIN := .venv/bin
SHOWN := all-for-one,all-for-one-binary,all-for-one-continuous,oracle,local,fedavg
DEALT := all-for-one,local,fedavg
CLUSTERED := $(DEALT),oracle
INSTALL := $(BIN)/pip install -qq --disable-pip-version-check --no-compile --constraint constraints.txt
RUNTIME := .venv/runtime
TOOLS := .venv/tools

# Python compiles what it imports at the first import, which is a small part of what --no-compile leaves out.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo check test test-machines lint docs bench bench-peers pictures clean browser

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(RUNTIME): pyproject.toml constraints.txt  # what the demo needs
	@test -d .venv || $(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	@touch $@

$(TOOLS): $(RUNTIME)  # and what tests and documents need
	$(INSTALL) --editable '.[dev]'
	@touch $@

# Two comparisons at a time, each on one core. What the one beside prints is shown when the other is done.
define two_at_a_time
@mkdir -p out/demo
@echo "allforone compare $(1)" && echo "allforone compare $(2)"
@$(BIN)/allforone compare $(2) --workers 1 > out/demo/beside.txt 2>&1 & beside=$$!; trap 'kill $$beside' INT TERM; \
  $(BIN)/allforone compare $(1) --workers 1 || { kill $$beside; exit 1; }; \
  wait $$beside; code=$$?; cat out/demo/beside.txt; rm out/demo/beside.txt; exit $$code
endef

demo: $(RUNTIME)  ## install, then compare the algorithms on synthetic data and on digits dealt in three ways (two minutes)
	@rm -rf out/demo
	$(call two_at_a_time,synthetic --algorithms $(SHOWN) --out out/demo/synthetic,\
	  digits -p split=iid --algorithms $(DEALT) --out out/demo/digits-iid)
	$(call two_at_a_time,digits -p split=dirichlet --algorithms $(DEALT) --out out/demo/digits-dirichlet,\
	  digits --algorithms $(CLUSTERED) --out out/demo/digits)
	@echo && echo "Open out/demo/digits/report.html in a browser: drag the slider and watch the clusters form."

check: $(TOOLS)  ## ruff and the quick tests (under a minute)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

test: $(TOOLS) browser lint  ## everything CI runs: ruff, mypy, all tests, the examples of docstrings, the site
	$(BIN)/pytest -n 2 --dist worksteal -m "not machines"

test-machines: $(TOOLS)  ## federations of real processes on this machine: killed, slow, lying, forged (some minutes)
	$(BIN)/pytest -m machines --durations=0 --no-header tests/machines

lint: $(TOOLS)  ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(TOOLS)  ## the documents and the API reference as a site: out/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(RUNTIME)  ## measure speed: a table, and out/bench.json (about fifteen minutes)
	$(BIN)/python -m benchmarks --out out/bench.json

bench-peers: $(RUNTIME) .venv-fluke/installed  ## seconds per round against fluke and against plain PyTorch loops
	$(BIN)/python -m benchmarks.peers --threads 1 --out out/bench-peers.json

.venv-fluke/installed:  # in its own place, without its requirements that would bring another torch
	$(PYTHON) -m venv .venv-fluke
	.venv-fluke/bin/pip install --quiet --constraint constraints.txt torch numpy pandas scikit-learn rich omegaconf pyyaml \
	  psutil cerberus diskcache matplotlib seaborn lightning-utilities
	.venv-fluke/bin/pip install --quiet --no-deps fluke-fl==0.8.1 torchmetrics==1.9.0
	@touch $@

pictures: $(TOOLS)  ## draw the pictures of the README and docs anew
	@rm -rf out/pictures
	$(BIN)/allforone compare synthetic --algorithms $(SHOWN) --out out/pictures/synthetic
	$(BIN)/allforone compare digits --algorithms $(SHOWN) --out out/pictures/digits
	@mkdir -p docs/pictures
	cp out/pictures/synthetic/curves.png docs/pictures/synthetic.png
	cp out/pictures/digits/curves.png docs/pictures/digits.png
	$(BIN)/python docs/pictures/explorer.py out/pictures/digits/report.html docs/pictures/explorer.png
	$(BIN)/python -m benchmarks.rules --out docs/pictures/rules.png
	$(BIN)/allforone theory sufficient-clusters --out out/pictures/sufficient-clusters
	for name in all-for-one oracle; do \
	  $(BIN)/allforone run synthetic -p dimension=4 -p noise=1 --rounds 60 --algorithm $$name --out out/pictures/$$name && \
	  $(BIN)/allforone theory bound out/pictures/$$name && \
	  cp out/pictures/$$name/bound.png docs/pictures/bound-$$name.png || exit 1; \
	done
	cp out/pictures/sufficient-clusters.png docs/pictures/
	$(BIN)/allforone paper figure2 --out out/pictures/paper
	cp out/pictures/paper/figure2.png docs/pictures/figure2.png

browser:  # pages are tested in a real browser; installed where this user may, else those tests say why they are skipped
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no Chromium here: the tests of the report's page will be skipped"

clean:  ## remove .venv and out
	rm -rf .venv out
