# Everything one does with a checkout; `make` alone lists it.
# Each target first sees to .venv with hango in it, and redoes that when what it is made of has changed.

.DEFAULT_GOAL := help
BIN := .venv/bin
EXTRAS := dev,embedded

# Which Python .venv is made with: the first of these that runs (a pyenv shim may exist and not run).
# The oldest comes first: what works on it works on all.  Override: make PYTHON=/path/to/python3.13
CANDIDATES := python3.11 python3.12 python3.13 python3 $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python)
SUITABLE := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in $(CANDIDATES); do "$$p" -c '$(SUITABLE)' 2>/dev/null && { echo "$$p"; break; }; done)

# The prompt of `make run` and the arguments of `make test` reach the shell as they were typed.
PROMPT ?= What time is it in Tokyo and in Berlin?
override PROMPT := $(value PROMPT)
export PROMPT

.PHONY: run test test-tcp test-peers bench bench-quick chaos lint fmt types dev mutants rules texts help

run: $(BIN)/hango ## Run one prompt and print the answer (PROMPT="…")
	@$(BIN)/hango run "$$PROMPT"

dev: $(BIN)/hango ## Serve on this machine and print a key and a call to try
	@$(BIN)/hango dev

test: $(BIN)/hango ## Run the tests (ARGS="-k name" chooses)
	@$(BIN)/python -m pytest $(ARGS)

test-tcp: $(BIN)/hango ## Run the tests on a Postgres over TCP, 15 if it is there (HALF=0 or 1: every second file)
	@$(BIN)/python tests/on_tcp.py $(if $(HALF),--half $(HALF)) $(ARGS)

test-peers: $(BIN)/hango .venv-peers/.ready ## Run against what others wrote; nothing may be skipped
	@HANGO_TEST_PEERS="$(CURDIR)/.venv-peers/bin" $(BIN)/python -m pytest tests/peers $(ARGS)

bench: $(BIN)/hango ## Measure hango beside what the database alone can do, into bench/RESULTS.md
	@$(BIN)/python -m bench $(ARGS)

bench-quick: $(BIN)/hango ## The same in a minute, one short round, printed only (ARGS="name …" chooses)
	@$(BIN)/python -m bench --quick $(ARGS)

chaos: $(BIN)/hango ## Inject faults for a minute, and see that nothing is lost (SEED=7; else three)
	@for seed in $(or $(SEED),1 2 3); do \
	  echo "seed $$seed"; $(BIN)/hango chaos --seed "$$seed" --seconds 60 || exit; \
	done

lint: $(BIN)/hango ## Check style, format, types and who imports whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

types: $(BIN)/hango ## Check the types
	@$(BIN)/mypy

fmt: $(BIN)/hango ## Format the code and mend what can be mended
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

mutants: $(BIN)/hango ## Take each guard out and see its test fail (ARGS="name …" chooses)
	@$(BIN)/python tests/mutants/run.py $(ARGS)

texts: $(BIN)/hango ## List every text that users, operators and models read
	@PYTHONPATH=tests $(BIN)/python tests/support/texts.py

rules: $(BIN)/hango ## List the rules of the design and the tests that prove each
	@$(BIN)/python -m pytest --rules --quiet

help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

# pip installs hango itself last, so the command exists only when all it needs does.
$(BIN)/hango: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && "$(PYTHON)" -c '$(SUITABLE)' 2>/dev/null || { \
	  echo 'make: no Python 3.11, 3.12 or 3.13 with venv found$(if $(PYTHON), as $(PYTHON)); install one' \
	       '(Debian: python3 and python3-venv) or name it: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(BIN)/python -c '$(SUITABLE)' 2>/dev/null || { \
	  echo "make: creating .venv with $$($(PYTHON) --version)" >&2; "$(PYTHON)" -m venv --clear .venv; }
	@echo 'make: installing hango and what it needs into .venv (about a minute the first time)' >&2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@
	@echo 'make: .venv is ready' >&2

.venv-peers/.ready: tests/peers/requirements.txt
	@echo 'make: installing the peers into .venv-peers' >&2
	@"$(PYTHON)" -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip install -qq --disable-pip-version-check -r $<
	@touch $@
