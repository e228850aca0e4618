# make check   sets everything up and prints a report: this machine's when SGLang is here, else the sample's
# make test    sets everything up and runs all checks that CI runs
# make test-kernels   runs the tests that need torch, Triton or Ray, in an environment of their own (2 GB)
# make coverage    runs the tests once more and shows the lines that none of them reaches
# make site    builds the documentation as a site into site/; site/index.html is its first page
# make zipapp  makes dist/sgdoctor.pyz, for the Python of VENV: another with VENV=.venv-pyz PYTHON=python3.12
# make knowledge VERSION=0.5.24    adds a release of SGLang to sgdoctor/data/ and says what changed
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3.10 || echo python3)
VENV := .venv
KERNELS := .venv-kernels
BIN := $(VENV)/bin
# On all cores; a worker that has no tests left takes them from another.
PARALLEL := --numprocesses=logical --dist=worksteal

.PHONY: check test lint types wheels unit coverage test-kernels knowledge docs site goldens zipapp wheel clean

check: $(VENV)/.installed
	@$(BIN)/sgdoctor check --fail-on never; code=$$?; \
	if [ $$code -eq 3 ]; then \
	  echo "Nothing to examine here; this is the sample that comes with sgdoctor:" >&2; \
	  $(BIN)/sgdoctor check --sample moe-no-config --fail-on never; \
	else exit $$code; fi

test: lint types wheels unit site

lint: $(VENV)/.developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/sgdoctor rules lint

types: $(VENV)/.developed
	$(BIN)/mypy --python-version 3.10
	$(BIN)/mypy --python-version 3.13

wheels: $(VENV)/.developed
	$(BIN)/python -m tools.oracles

unit: $(VENV)/.developed
	$(BIN)/python -m pytest $(PARALLEL)

coverage: $(VENV)/.developed
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term

test-kernels: $(KERNELS)/.installed
	$(KERNELS)/bin/python -m pytest $(PARALLEL) tests/tune -m kernels

knowledge: $(VENV)/.developed
	@test -n "$(VERSION)" || { echo "usage: make knowledge VERSION=0.5.24" >&2; exit 2; }
	$(BIN)/python -m tools.knowledge $(VERSION)

docs: $(VENV)/.developed
	$(BIN)/python -m tools.docs
	$(BIN)/python -m tools.knowledge --page

site: $(VENV)/.developed
	$(BIN)/python -m tools.site

goldens: $(VENV)/.developed
	$(BIN)/python -m pytest -q tests/test_deployments.py tests/test_pages.py tests/report --update-goldens

zipapp: $(VENV)/.developed
	$(BIN)/python -m tools.zipapp

wheel: $(VENV)/.developed
	$(BIN)/python -m build --outdir dist

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group tests --group lint --group package --group docs
	@touch $@

# The last line is what sgdoctor itself needs, which is not installed: children must find it by its place.
# Triton 3.6.0 whatever Triton this torch names: the measured sweeps are its, and it compiles without a GPU.
$(KERNELS)/.installed:
	$(PYTHON) -m venv $(KERNELS)
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps triton==3.6.0
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check "numpy<2.4" hypothesis pytest pytest-xdist packaging ray==2.60.0
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check click google-re2 msgspec nvidia-ml-py psutil pyyaml requests rich tree-sitter tree-sitter-bash
	@touch $@

clean:
	rm -rf $(VENV) $(KERNELS) dist build site .cache .coverage .mypy_cache .pytest_cache .ruff_cache
