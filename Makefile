# Parley's commands; `make` alone lists them. Python 3.11 to 3.14: choose one with `make PYTHON=python3.12 ...`.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install quick test style lint check nightly hooks demo hospitals docs figures bench soak utility mutants lock sbom wheel release state clean

PYTHON ?= $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(python) -c 'import sys; (3, 11) <= sys.version_info < (3, 15) and print("$(python)")' 2>/dev/null)))
BIN := .venv/bin
INSTALLED := .venv/.installed
RUNTIME := $(firstword $(wildcard $(INSTALLED)) .venv/.runtime)  # all that is installed, or else what services need
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-emit-index-url --custom-compile-command 'make lock'
COMPILE := printf 'setuptools>=77\nsetuptools-scm>=10\n' | $(LOCK) pyproject.toml -
EXTRA := $(BIN)/python -c 'import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*(each for each in project["optional-dependencies"][sys.argv[1]] if "parley" not in each), sep="\n")'
QUICK := $(BIN)/pytest --quiet -p no:xdist --hypothesis-profile quick -m "not slow and not long and not containers"
# the quick tests in two halves of about equal work, for a process each: it collects no test of the other's
HALF := parley $(wildcard tests/unit/test_[a-p]*.py)
OTHER_HALF := tests/contracts tests/unit/secure_sum $(filter-out $(HALF),$(wildcard tests/unit/test_*.py))

export PYTHONDONTWRITEBYTECODE :=  # compiled tests are kept, whatever the environment says: the next run starts sooner

help:  ## list the commands
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

install: $(INSTALLED)  ## make .venv with the locked dependencies and this project in it

$(INSTALLED): requirements.lock
.venv/.runtime: requirements-runtime.lock requirements-files.lock requirements-sklearn.lock
$(INSTALLED) .venv/.runtime: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Parley needs Python 3.11, 3.12, 3.13 or 3.14 on the path." >&2; exit 1; }
	@scripts/ensure_venv.sh "$(PYTHON)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes $(addprefix -r ,$(filter %.lock,$^))
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

quick: install style  ## within a minute: style, the examples, and the quick unit and contract tests
	@mkdir -p .pytest_cache
	@$(QUICK) $(HALF) >.pytest_cache/half 2>&1 & half=$$!; trap 'kill $$half' INT TERM; \
	$(QUICK) $(OTHER_HALF); status=$$?; wait $$half || status=$$?; cat .pytest_cache/half; exit $$status

test: install  ## run the tests that need no container engine and are not slow, the examples in the docstrings too
	$(BIN)/pytest -n auto --dist worksteal -m "not slow and not containers"

style: install  ## check format, style and layers of imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports

lint: style  ## check style and types
	$(BIN)/mypy

check: lint  ## everything CI asks: lint, and all tests that need no container engine, the slow ones too
	$(BIN)/pytest -n auto --dist worksteal

nightly: lint  ## all that check tries, with what chance decides tried many times more (hours)
	PARLEY_NIGHTLY=1 $(BIN)/pytest -n auto --dist worksteal --timeout 7200

hooks: install  ## have git lint before each commit; needs pre-commit on the path
	pre-commit install

hospitals: $(RUNTIME)  ## five hospitals, a key holder and a learner that run until Ctrl-C, to try page, commands and client on
	$(BIN)/python -m scripts.demonstrations.hospitals

demo: $(RUNTIME)  ## five hospitals and a learner on this machine
	$(BIN)/python -m scripts.demo

docs: install  ## build the documents as a site in the folder site, strictly; loads nothing
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

figures: install  ## redraw every figure of the papers, and judge their claims (half an hour; FIGURES="wu --quick --jobs 2")
	$(BIN)/python -m scripts.figures $(FIGURES)

bench: install  ## run the benchmarks of time and memory
	set -e; for benchmark in $(filter-out %.utility %.soak,$(subst /,.,$(basename $(wildcard scripts/benchmarks/*.py)))); do \
		$(BIN)/python -m "$$benchmark"; done

soak: install  ## half an hour of eight runs at once: memory, descriptors, threads, and the time of an answer
	$(BIN)/python -m scripts.benchmarks.soak

utility: install  ## measure how well untuned runs learn on public data sets (hours; needs PARLEY_DATA)
	$(BIN)/python -m scripts.benchmarks.utility

mutants: install  ## change the code bit by bit, and count what tests notice (days; SAMPLE=150 SEED=1 ONLY="name.*" for fewer)
	names=$$($(BIN)/python -m tests.mutants.draw $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(ONLY)) && \
		$(BIN)/mutmut run $$names && $(BIN)/python -m tests.mutants.check $$names

lock: install  ## resolve the dependencies anew, for every supported Python and platform
	$(COMPILE) --upgrade --all-extras --output-file requirements.lock
	$(COMPILE) --upgrade --constraint requirements.lock --output-file requirements-runtime.lock
	set -e; for extra in excel export files mlflow postgres query sklearn tracing; do $(EXTRA) $$extra | \
		$(LOCK) --upgrade --constraint requirements.lock --output-file requirements-$$extra.lock -; done
	$(BIN)/python -m scripts.make_sbom

sbom: install  ## write the bill of materials of the locked packages, which the images carry
	$(BIN)/python -m scripts.make_sbom

wheel: $(RUNTIME)  ## build the wheel of what is checked out, tagged or not, in the folder dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

release: install  ## build the tagged commit's source archive, wheel and images in dist, with their digests
	$(BIN)/python -m scripts.make_release

state: install  ## keep the state that this version leaves in mid-run, for tests of later ones (NAME=1.2.3)
	$(BIN)/python -m scripts.make_state $(NAME)

clean:  ## remove .venv, builds and caches
	rm -rf .venv build dist *.egg-info .import_linter_cache .hypothesis .mypy_cache .pytest_cache .ruff_cache mutants
	find . -name __pycache__ -prune -exec rm -rf {} +
