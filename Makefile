# Every target sets up what it needs in .venv; no environment has to be active, and an active one
# is ignored. `make PYTHON=/path/to/python3 …` chooses the interpreter that .venv is made from.

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format bench-quick bench clean

unexport CONDA_PREFIX PIP_PREFIX PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_USER
unexport PYTHONHOME PYTHONPATH PYTHONWARNINGS VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

PYTHON :=
CANDIDATES := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
PY := .venv/bin/python
RUNTIME := .venv/.runtime-installed
DEV := .venv/.dev-installed

help:
	@echo 'make demo         a stream that Ctrl-C stops, on a built-in provider; no key needed'
	@echo 'make test         the tests, without those that take seconds'
	@echo 'make test-all     all tests, also those that repeat others for every protocol'
	@echo 'make check        format, lint, types and tests: what a change must pass'
	@echo 'make format       format the code and mend what the linter can mend'
	@echo 'make bench-quick  the main measurements, in short'
	@echo 'make bench        the main measurements, in full'
	@echo 'make clean        remove .venv and everything that was generated'

demo: $(RUNTIME)
	@.venv/bin/mmsp demo

test: $(DEV)
	$(PY) -m pytest -q -m 'not slow and not exhaustive'

test-all: $(DEV)
	$(PY) -m pytest -q

check: $(DEV)
	$(PY) -m ruff format --check
	$(PY) -m ruff check
	$(PY) -m mypy
	$(PY) -m pyright --pythonpath $(PY) --warnings
	$(PY) -m pytest -q -W error -m 'not exhaustive'

format: $(DEV)
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench-quick: $(DEV)
	$(PY) -m benchmarks.quick

bench: $(DEV)
	$(PY) -m benchmarks.quick --full

clean:
	rm -rf .venv build dist htmlcov .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): pyproject.toml | $(PY)
	@echo 'Installing mmsp into .venv …'
	@$(PY) -m pip install -qq --upgrade 'pip>=25.1'
	@$(PY) -m pip install -qq --editable '.[all]'
	@touch $@

$(DEV): pyproject.toml $(RUNTIME)
	@echo 'Installing the development tools into .venv …'
	@$(PY) -m pip install -qq --group dev
	@touch $@

# The interpreter is an order-only prerequisite, because .venv/bin/python is a link to a file of any age.
$(PY):
	@found=; for python in $(CANDIDATES); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	    then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo 'mmsp needs Python 3.11 or newer, and none of these is one: $(CANDIDATES).' >&2; \
	    echo 'Install it, or name it: make PYTHON=/path/to/python3 …' >&2; \
	    exit 1; \
	fi; \
	if ! "$$found" -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "$$found cannot make environments: its venv module is missing" >&2; \
	    echo '(on Debian and Ubuntu it is the package python3-venv).' >&2; \
	    exit 1; \
	fi; \
	echo "Making .venv with $$("$$found" --version) …"; \
	"$$found" -m venv --clear .venv
