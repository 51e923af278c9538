# Every target sets up .venv from nothing if need be. `make help` lists them.
SHELL := /bin/bash
BIN := .venv/bin
PYTEST_ARGS ?=
LAB_ARGS ?=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test format lint types imports contracts fix lock bench lab

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv: locked dependencies and this project, editable
	@scripts/setup

demo: setup ## Headbay builds and tests itself: examples/build-and-test.yaml
	@$(BIN)/headbay run examples/build-and-test.yaml

test: format lint types imports contracts ## every check, then every test
	@scripts/browser
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile --ignore tests/lab $(PYTEST_ARGS)

lab: setup ## tests on real Linux nodes alone; LAB_ARGS go to pytest
	@scripts/lab $(LAB_ARGS)

format: setup ## is everything formatted? (`make fix` formats)
	@$(BIN)/ruff format --check --quiet . || { echo "format: run 'make fix'"; exit 1; }

lint: setup ## ruff, all rules
	@$(BIN)/ruff check --quiet .

types: setup ## mypy, strict
	@$(BIN)/mypy

imports: setup ## do imports go left only?
	@$(BIN)/lint-imports --no-logo

contracts: setup ## do the generated schemas, types and CLI page match the code?
	@$(BIN)/python -m contracts --check
	@$(BIN)/python scripts/cli_docs.py --check

fix: setup ## format, fix what ruff can, generate what is generated
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/python -m contracts
	@$(BIN)/python scripts/cli_docs.py

bench: setup ## throughput against raw Temporal, with nothing but the engine
	@$(BIN)/python -m benchmarks engine --json

lock: ## compile requirements.lock from pyproject.toml (needs uv)
	@uv pip compile pyproject.toml --extra cli --extra worker --extra postgres --extra dev \
		--group test --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-annotate --custom-compile-command 'make lock' --quiet -o requirements.lock
