# subsetd in one image with two roles:
#   the service:       docker run -e SUBSETD_API_KEY=... -e SUBSETD_FEED=kafka://... -p 8321:8321 subsetd
#   the Spark driver:  docker run -e SUBSETD_DATABASE_URL=... subsetd bootstrap postgresql://... --name NAME --master spark://...
# Without SUBSETD_DATABASE_URL the state is in an embedded Postgres, in the volume /var/lib/subsetd.

FROM python:3.12.12-slim-bookworm AS build
RUN python -m venv /opt/subsetd
WORKDIR /build
COPY requirements-service.lock ./
RUN /opt/subsetd/bin/pip install --no-cache-dir --require-hashes -r requirements-service.lock
# What builds the wheel is pinned as well, and not kept.
COPY LICENSE pyproject.toml requirements.lock ./
RUN sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock > build.lock \
    && /opt/subsetd/bin/pip install --no-cache-dir --require-hashes -r build.lock
COPY service ./service
COPY spark_jobs ./spark_jobs
COPY migrations ./migrations
RUN /opt/subsetd/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/subsetd/bin/pip uninstall --yes setuptools

FROM python:3.12.12-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home subsetd \
    && install --directory --owner subsetd --group subsetd --mode 0700 /var/lib/subsetd
COPY --from=build /opt/subsetd /opt/subsetd
ENV PATH=/opt/subsetd/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SUBSETD_DATA_DIR=/var/lib/subsetd \
    SUBSETD_HOST=0.0.0.0 \
    SUBSETD_PORT=8321
USER subsetd
WORKDIR /home/subsetd
# Half of Spark's start is the reading of Java's classes.
RUN python -m spark_jobs.class_archive
VOLUME /var/lib/subsetd
EXPOSE 8321
# The Spark driver serves nothing and ends by itself: run it with --no-healthcheck.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", \
    "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:%s/healthz' % os.environ['SUBSETD_PORT'], timeout=4)"]
# As the first process of all it hands signals on, and buries the Java of jobs that have ended.
ENTRYPOINT ["tini", "--", "subsetd"]
CMD ["run"]
