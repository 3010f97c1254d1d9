# The habits: run test quick check unit contract integration e2e walks pauses conformance engines frameworks audit sbom image chart bench-NAME smoke faults hosts docs site packages cases artefacts release lock clean.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PACKAGES := VENV=$(VENV) deploy/install/packages.sh
LOCKED := --no-deps --require-hashes -r
PAGE := client/dist/index.html
# npm writes it when it has installed everything, whoever calls it.
MODULES := client/node_modules/.package-lock.json
PYTEST := $(PY) -m pytest --durations=10
# Where the machine has no Node.js, pip installs it into the environment: after what test-parts installs there meanwhile.
NODE_AFTER := $(shell deploy/install/node.sh --is-on-machine || echo $(VENV)/$(if $(filter install-test,$(MAKECMDGOALS)),.test,.run))
RUN_ARGS ?= --origin http://localhost:5173
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help run test quick check unit contract integration e2e bench bench-fanout bench-convergence bench-bridge bench-rebuild bench-codecs bench-shares bench-proxy bench-traffic bench-cost bench-modes bench-sizing bench-wakes bench-placement bench-learning bench-follow bench-ingest bench-intake bench-postgres bench-points bench-files bench-writes bench-pipeline bench-polling bench-reads bench-tokens bench-updates bench-attack bench-scale bench-display bench-topic bench-peers smoke faults hosts walks pauses conformance engines frameworks cluster chart chart-modes audit sbom image image-test docs site packages cases artefacts release lock clean \
  install install-test install-spark install-quality install-docs figures picture test-parts debian page client-test chromium firefox webkit kafka nginx peers postgres mosquitto prometheus go spark autobahn

help:
	@echo "make run      installs what is missing and starts DIEM with its page and the examples"
	@echo "make test     installs the test-only parts and runs every test"
	@echo "make quick    static checks, unit, contract and one end-to-end test"
	@echo "make spark    installs what the pipeline needs (diem pipeline)"
	@echo "also: check unit contract integration e2e client-test walks pauses conformance engines frameworks cluster chart audit sbom image bench-NAME smoke faults MODE=... hosts docs site packages cases artefacts release lock clean"

run: install page
	@$(VENV)/bin/diem up --pages examples $(RUN_ARGS)

# The run itself installs the requirements of Kafka and Spark, in parallel with the tests that need neither.
test: test-parts
	@$(PY) -m tests.run

quick: test-parts
	@$(PY) -m tests.run tests/unit tests/contract tests/walks tests/e2e/test_story.py

walks: install-test install-spark $(MODULES)
	@$(PY) -m tests.walks

# Pauses are sleep: more workers than cores can run.
TESTS ?= tests/unit tests/contract
pauses: install-test install-spark
	@$(PYTEST) -p tests.support.pauses -n 8 $(TESTS)

# In `make test` only the cases of the `ws` package.
conformance: install-test autobahn $(MODULES)
	@CI=1 DIEM_CONFORMANCE=1 $(PYTEST) tests/conformance

# QUICK=1: the first stories in each browser.
engines: install-test page chromium firefox webkit
	@CI=1 RUN_ENGINES=1 $(PYTEST) tests/engines

# QUICK=1: one project.
frameworks: install-test page chromium
	@CI=1 RUN_FRAMEWORKS=1 $(PYTEST) -rP -o faulthandler_timeout=900 tests/frameworks

# Tests that are too long for `make test`, whose Spark is one JVM that interprets most queries.
cluster: install-test install-spark kafka mosquitto postgres prometheus page chromium go
	@deploy/install/chromium.sh windows
	@CI=1 RUN_CLUSTER=1 $(PYTEST) -m cluster -n 3 --dist loadgroup --no-loadscope-reorder tests

# With API=1 also against an API server of Kubernetes, which is compiled once, in some minutes.
chart: install-test chart-modes
	@deploy/install/chart.sh $(if $(API),api)
	@DIEM_CHART=1 $(PYTEST) -q tests/chart tests/unit/deploy/test_chart.py

# The chart's copy of the table of modes (diem/process/modes.py).
chart-modes: install-test
	@$(PY) -m deploy.install.chart_modes

# As root on Debian; deploy/image/Containerfile is for others, and CONTAINERFILE=1 builds that without a registry. SPARK=1 adds
# Java and Spark, and -spark to the default tag.
RELEASE := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= localhost/diem:$(RELEASE)$(if $(SPARK),-spark)
image: install page sbom
	@rm -f dist/*.whl && $(PY) -m hatchling build --target wheel --directory dist >/dev/null
	@deploy/image/$(if $(CONTAINERFILE),containerfile,build).sh $(IMAGE) $(if $(SPARK),spark)

image-test: install-test image kafka
	@DIEM_IMAGE=$(IMAGE) $(PYTEST) -q tests/image

# Fails too where a service does not answer, or osv-scanner, which alone knows Maven's advisories, is not installed.
AUDIT := $(VENV)/audit/bin
audit: sbom
	@failed=; for lock in requirements/*.txt; do echo "$$lock:"; \
	  $(AUDIT)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r $$lock || failed=1; done; \
	echo "client:"; (cd client && ../deploy/install/node.sh npm audit --package-lock-only) || failed=1; \
	echo "build/sbom.cdx.json:"; osv-scanner scan source -L build/sbom.cdx.json || failed=1; \
	test -z "$$failed"

# What runs or builds the page: the lists of tests, documentation and comparison are left out.
SHIPPED := run spark node java figures
sbom: $(VENV)/audit/.installed | $(NODE_AFTER)
	@rm -rf build/sbom && mkdir -p build/sbom
	@for name in $(SHIPPED); do $(AUDIT)/cyclonedx-py requirements --short-PURLs -o build/sbom/$$name.json requirements/$$name.txt; done
	@cd client && ../deploy/install/node.sh npm sbom --package-lock-only --sbom-format cyclonedx > ../build/sbom/page.json
	@$(PY) -m requirements.sbom build/sbom.cdx.json $(RELEASE) \
	  build/sbom/*.json $(wildcard */*/jars.lock learning/spark/wheel/jars.lock)

# Types of the tests are checked with a cache alone: a run without one would need a minute more.
PRODUCT := diem services bridge proxy metadata deploy learning tools packs requirements
check: install-test install-spark $(MODULES)
	@$(VENV)/bin/ruff format --check --quiet . && $(VENV)/bin/ruff check --quiet .
	@set -o pipefail; $(VENV)/bin/lint-imports --no-logo 2>/dev/null | grep -v '^$$' | tail -4
	@$(VENV)/bin/mypy $(if $(CI),--cache-dir=/dev/null $(addprefix -p ,$(PRODUCT)))
	@$(PY) -m tests.vocabulary
	@cd client && ../deploy/install/node.sh npm run check --silent

unit contract integration e2e: install-test install-spark
	@$(PYTEST) tests/$@

e2e: page chromium

client-test: $(MODULES)
	@cd client && ../deploy/install/node.sh npm test --silent -- $(if $(CLIENT_REPORT),--reporter=default --reporter=junit --outputFile=$(CLIENT_REPORT))

bench-fanout: install-test
	@$(PY) -m tests.bench.fanout

bench-convergence: install-test
	@$(PY) -m tests.load.convergence

bench-rebuild: install-test
	@$(PY) -m experiments.rebuild

bench-bridge: install-test
	@$(PY) -m tests.bench.bridge

bench-codecs: install-test
	@$(PY) -m experiments.codecs

bench-shares: install-test
	@$(PY) -m experiments.shares

bench-proxy: install-test
	@$(PY) -m tests.bench.proxy

bench-traffic: install-test
	@$(PY) -m experiments.traffic

bench-cost: install-test install-spark nginx
	@$(PY) -m experiments.cost

bench-modes: install-test install-spark
	@OMP_NUM_THREADS=1 $(PY) -m experiments.modes

bench-sizing: install-test install-spark kafka
	@OMP_NUM_THREADS=1 $(PY) -m experiments.sizing

bench-wakes: install-test
	@$(PY) -m experiments.wakes

bench-placement: install-test install-spark install-quality
	@OMP_NUM_THREADS=1 $(PY) -m experiments.placement

bench-learning: install-test install-spark
	@OMP_NUM_THREADS=1 $(PY) -m experiments.learning

bench-pipeline: install-test install-spark install-quality
	@$(PY) -m experiments.pipeline

bench-follow: install-test install-spark kafka
	@OMP_NUM_THREADS=1 $(PY) -m experiments.follow

bench-ingest: install-test postgres
	@$(PY) -m tests.bench.ingest

bench-writes: install-test postgres
	@$(PY) -m experiments.writes

bench-files: install-test
	@$(PY) -m experiments.files

bench-intake: install-test kafka
	@$(PY) -m experiments.intake

bench-postgres: install-test postgres
	@$(PY) -m experiments.intake.postgres

bench-points: install-test postgres
	@$(PY) -m experiments.points

bench-tokens: install-test nginx
	@$(PY) -m experiments.tokens

bench-updates: install-test
	@$(PY) -m experiments.http_updates

bench-attack: install-test nginx
	@$(PY) -m tests.load.attack

bench-scale: install-test
	@$(PY) -m experiments.scale

bench-polling: install-test nginx kafka
	@$(PY) -m experiments.polling

bench-reads: install-test
	@$(PY) -m experiments.reads

bench-display: install-test nginx
	@$(PY) -m experiments.display

bench-topic: install-test kafka nginx
	@$(PY) -m experiments.topic

bench-peers: install-test kafka nginx $(if $(SMOKE),,peers) $(MODULES)
	@$(PY) -m experiments.peers

bench: bench-fanout bench-convergence

# Every benchmark and every fault mode in its smallest size, or those of NAMES, and the first stories of `make engines` in
# Chromium. In `make test` only a few.
smoke: install-test install-spark kafka nginx postgres page chromium
	@$(PY) -m tests.smoke $(NAMES)
	$(if $(NAMES),,@CI=1 QUICK=1 RUN_ENGINES=1 $(PYTEST) -q tests/engines -k chromium)

MODE ?= single
hosts: install-test nginx kafka postgres
	@CI=1 RUN_HOSTS=1 $(PYTEST) -o faulthandler_timeout=900 tests/integration/deploy/test_hosts.py tests/integration/deploy/test_hosts_story.py

faults: install-test
	@$(PY) -m tests.load.faults --mode $(MODE)

docs: install
	@$(VENV)/bin/diem config

# The documentation with its search: open build/site/index.html in a browser, or put the folder on any web server.
# All pages are read each time: those of an earlier build would not be warned of again.
site: install-docs
	@$(PY) -m sphinx --quiet --fresh-env --fail-on-warning --keep-going -c docs/site -d build/site.cache . build/site

# What others install: the sdist and from it the wheel, with the page inside, and the SDK for npm.
packages: install page
	@test -x $(VENV)/bin/uv || $(PY) -m pip install --quiet --no-deps --require-hashes -r deploy/install/uv.txt
	@$(VENV)/bin/uv build --quiet --no-build-isolation --python $(PY) --out-dir dist
	@cp client/dist/diem-client-$(RELEASE).tgz dist/

# For clients in other languages: the shared cases, beside the texts that their README names.
cases:
	@mkdir -p dist && tar --sort=name --transform "s,^,diem-cases-$(RELEASE)/," -czf dist/diem-cases-$(RELEASE).tar.gz \
	  LICENSE NOTICE tests/cases docs/protocol.md docs/guide/write-a-client.md services/data/api/asyncapi.json client/go

# What a release consists of, in dist, checked and installed into empty environments. The chart needs Go, the image root on Debian.
artefacts: install-test page sbom $(MODULES) $(VENV)/release/.installed
	@rm -rf dist && mkdir dist
	@if deploy/install/containers.sh; then $(MAKE) --no-print-directory image && \
	  buildah push --quiet $(IMAGE) oci-archive:dist/diem-$(RELEASE)-image.tar:$(IMAGE); fi
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory chart-modes && deploy/install/chart.sh && \
	  build/chart/bin/helm lint --quiet --strict deploy/chart && build/chart/bin/helm package deploy/chart --destination dist; \
	  else echo "No Go here: no chart" >&2; fi
	@$(MAKE) --no-print-directory packages cases
	@$(VENV)/release/bin/twine --no-color check --strict dist/*.whl dist/diem_realtime-*.tar.gz
	@cd client && ../deploy/install/node.sh npx --no-install publint run ../dist/diem-client-$(RELEASE).tgz --strict
	@cp build/sbom.cdx.json dist/
	@cd dist && sha256sum -- * >SHA256SUMS && cat SHA256SUMS
	@CI=1 RUN_CLUSTER=1 DIEM_DIST=$(CURDIR)/dist $(PYTEST) -q tests/integration/deploy/test_wheel.py
	@cd client && DIEM_DIST=$(CURDIR)/dist ../deploy/install/node.sh npm test --silent -- tests/package.test.ts

# As root and with Go, so that nothing is left out. It pushes nothing.
release: install $(VENV)/release/.installed
	@deploy/release.sh $(VERSION)

# Installation: each part once, and again when its lock file changes.

# System packages and the page are installed in parallel with Python's packages; never two of pip or of apt at a time.
test-parts:
	@$(MAKE) --no-print-directory -j3 debian install-test page
	@deploy/install/java.sh

debian:
	@deploy/install/chromium.sh
	@deploy/install/nginx.sh
	@deploy/install/postgres.sh
	@deploy/install/mosquitto.sh
	@deploy/install/prometheus.sh

install: $(VENV)/.run
install-test: $(VENV)/.test
install-spark: $(VENV)/.spark
install-quality: $(VENV)/.quality
install-docs: $(VENV)/.docs
figures: install-test $(VENV)/.figures
	@$(PY) -m experiments.paper
picture: install-test page chromium $(VENV)/.figures
	@$(PY) -m experiments.live_picture
page: $(PAGE)

$(VENV)/.run: requirements/run.txt pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "DIEM needs Python 3.11 or newer with venv: on Debian, apt install python3 python3-venv" >&2; exit 1; }
	@echo "Installing Python packages (once) ..."
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PACKAGES) --compile $(LOCKED) requirements/run.txt
	@# Its name until ADR 45: an older checkout would have both.
	@test ! -e $(VENV)/lib/python3.*/site-packages/diem-0.1.0.dist-info || $(PY) -m pip uninstall --quiet --yes diem
	@$(PACKAGES) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt
	@echo "Installing test packages (once) ..."
	@$(PACKAGES) $(LOCKED) requirements/test.txt
	@touch $@

$(VENV)/.spark: $(VENV)/.run requirements/spark.txt
	@echo "Installing Spark (once) ..."
	@DIST_EXTRA_CONFIG=$(CURDIR)/requirements/build.cfg $(PACKAGES) $(LOCKED) requirements/spark.txt
	@touch $@

# For comparison only: on platforms without it the comparison is left out.
$(VENV)/.quality: $(VENV)/.run requirements/quality.txt
	@echo "Installing Mt-KaHyPar and DuckDB (once) ..."
	@$(PACKAGES) $(LOCKED) requirements/quality.txt || echo "there is none for this platform" >&2
	@touch $@

# These are also a part of the test packages.
$(VENV)/.docs: $(VENV)/.run requirements/docs.txt
	@echo "Installing Sphinx (once) ..."
	@$(PACKAGES) $(LOCKED) requirements/docs.txt
	@touch $@

# What `make figures` and `make picture` draw with.
$(VENV)/.figures: $(VENV)/.run requirements/figures.txt
	@echo "Installing matplotlib (once) ..."
	@$(PACKAGES) $(LOCKED) requirements/figures.txt
	@touch $@

# An environment of its own: the dependencies of these tools are none of DIEM's.
$(VENV)/audit/.installed: deploy/install/audit.txt | $(VENV)/.run
	@echo "Installing pip-audit and cyclonedx-bom (once) ..."
	@rm -rf $(VENV)/audit && $(PY) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/install/audit.txt
	@touch $@

$(VENV)/release/.installed: deploy/install/release.txt | $(VENV)/.run
	@echo "Installing twine and bump-my-version (once) ..."
	@rm -rf $(VENV)/release && $(PY) -m venv $(VENV)/release
	@$(VENV)/release/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r deploy/install/release.txt
	@touch $@

$(MODULES): client/package-lock.json client/package.json | $(NODE_AFTER)
	@echo "Installing web page packages (once) ..."
	@cd client && ../deploy/install/node.sh npm ci --silent --no-audit --no-fund
	@touch $@

$(PAGE): $(shell find client/src client/admin client/public client/index.html -type f 2>/dev/null) client/vite.config.ts client/vite.admin.config.ts client/package.json client/package-lock.json | $(MODULES)
	@echo "Building the web page ..."
	@cd client && ../deploy/install/node.sh npm run build --silent
	@touch $@

chromium:
	@deploy/install/chromium.sh

firefox:
	@deploy/install/firefox.sh

webkit:
	@deploy/install/webkit.sh

kafka: install
	@deploy/install/java.sh
	@$(PY) -m deploy.kafka

spark: install-spark
	@deploy/install/java.sh
	@$(PY) -m learning.spark

autobahn: install
	@deploy/install/autobahn.sh

nginx:
	@deploy/install/nginx.sh

peers: install
	@deploy/install/peers.sh

postgres:
	@deploy/install/postgres.sh

mosquitto:
	@deploy/install/mosquitto.sh

prometheus:
	@deploy/install/prometheus.sh

go:
	@deploy/install/go.sh

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv: make install puts it into $(VENV)/bin" >&2; exit 1; }
	@for name in "run --extra build --extra files --extra kafka --extra mqtt --extra otel --extra postgres --extra registry" "test --extra build --extra files --extra kafka --extra mqtt --extra otel --extra postgres --extra registry --extra docs --extra test" "spark --extra plan --extra spark" "quality --extra quality" "figures --extra figures" "docs --extra build --extra docs" "node --extra node" "java --extra java"; do set -- $$name; target=$$1; shift; \
	  uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	    $$@ pyproject.toml -o requirements/$$target.txt; done
	@cd tests/conformance/requirements && uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 virtualenv.in -o virtualenv.txt
	@cd deploy/install && for name in uv audit release; do uv pip compile --quiet --universal --generate-hashes --no-emit-index-url \
	  --no-header --python-version 3.11 $$name.in -o $$name.txt; done

clean:
	@rm -rf $(VENV) build client/node_modules client/dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
