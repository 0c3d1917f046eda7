# `make demo` and `make test` need Python 3.11 or newer and nothing else; they build .venv themselves.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo test test-fast check format bench bench-scaling bench-variance bench-pilot bench-coverage bench-metrics bench-peers bench-labels soak freeze reproduce docs venv clean

help: ## This list.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: .venv/run ## One experiment from plan to report, with pages to open. About a minute.
	@$(BIN)/python -m clusterdp demo

test: .venv/dev ## The whole test suite.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

test-fast: .venv/dev ## The tests that need seconds, and neither Java nor PostgreSQL. Under two minutes.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not slow and not spark and not postgres"

freeze: .venv/dev ## Write tests/fixtures/frozen.json anew, after a change on purpose. Needs Java.
	PYTHONPATH=src:tests:tests/support $(BIN)/python tests/promises/test_frozen.py

check: .venv/dev ## Lint, formatting, strict types, and the order of imports.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev ## Rewrite the files the way `make check` wants them.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/bench ## Speed and memory, next to plain implementations. Minutes.
	$(BIN)/python -m bench.throughput
	$(BIN)/python -m bench.files
	$(BIN)/python -m bench.spark
	$(BIN)/python -m bench.estimates
	$(BIN)/python -m bench.folders
	$(BIN)/python -m bench.questions
	$(BIN)/python -m bench.batches
	$(BIN)/python -m bench.followups

bench-scaling: .venv/bench ## How time and memory grow with rows, clusters and outcomes: docs/studies/scale.md. Ten minutes.
	$(BIN)/python -m bench.scaling

bench-variance: .venv/dev ## What privacy costs, compared with other mechanisms: docs/studies/frontier.md, docs/studies/joint_frontier.md, docs/studies/sum_noise.md. Minutes.
	$(BIN)/python -m bench.frontier
	$(BIN)/python -m bench.joint_frontier
	$(BIN)/python -m bench.sum_noise

bench-pilot: .venv/dev ## What pilots and noisy counts cost, and what they find: docs/studies/pilot.md, docs/studies/learned_priors.md. Minutes.
	$(BIN)/python -m bench.pilot
	$(BIN)/python -m bench.learned_priors

bench-coverage: .venv/dev ## Do 95% intervals cover, and bounds where outcomes are missing: docs/studies/coverage.md, docs/studies/attrition.md, docs/studies/release_coverage.md, docs/studies/after_release.md. Two hours a run, and the next run goes on.
	$(BIN)/python -m bench.interval_coverage
	$(BIN)/python -m bench.attrition
	$(BIN)/python -m bench.release_coverage
	$(BIN)/python -m bench.question_coverage
	$(BIN)/python -m bench.after_release

bench-metrics: .venv/dev ## Do intervals of shares, quantiles, ratios, complier effects and many segments cover: docs/studies/metric_coverage.md, docs/studies/exposure_coverage.md, docs/studies/likelihood_shares.md, docs/studies/many_segments.md, docs/studies/owner_covariates.md; how often decisions are wrong: docs/studies/decisions.md. Two and a half hours.
	$(BIN)/python -m bench.metric_coverage
	$(BIN)/python -m bench.exposure_coverage
	$(BIN)/python -m bench.likelihood_shares
	$(BIN)/python -m bench.many_segments
	$(BIN)/python -m bench.owner_covariates
	$(BIN)/python -m bench.decisions

bench-labels: .venv/dev ## Do intervals cover where clusters are private: docs/studies/label_coverage.md. Minutes.
	$(BIN)/python -m bench.label_coverage

bench-peers: .venv/bench ## Compared with other methods, what each guarantees and delivers: docs/studies/peers.md. A quarter of an hour.
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.peers

soak: .venv/dev ## Faults and load: kills, object storage, races, closings, outages, malformed inputs, designs, scaling. Over an hour.
	PYTHONPATH=src:tests:tests/support $(BIN)/python -m soak

reproduce: .venv/run ## The paper's seven experiments at full size, into reproduction/. Minutes.
	rm -rf reproduction
	$(BIN)/clusterdp reproduce all --out reproduction

docs: .venv/dev ## The site, into site/: guides run, links and references checked. About a minute.
	rm -rf site
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W -n --keep-going -q -E -c docs -d build/doctrees . site
	@echo "open site/index.html"

venv: .venv/dev ## The development environment alone.

clean: ## Remove everything that was built.
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Each stamp stands for one set of installed extras, and is made anew when the dependencies change.
.venv/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "clusterdp needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run: .venv/created pyproject.toml
	$(PIP) install --editable ".[ledger,plot]"
	@touch $@

.venv/dev: .venv/created pyproject.toml
	$(PIP) install --editable '.[dev]'
	@touch $@ .venv/run

.venv/bench: .venv/dev
	$(PIP) install --editable '.[dev,bench]'
	@touch $@
