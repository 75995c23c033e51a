# The server in a container. See docker/entrypoint.sh for its environment, compose.yaml for an example.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/omnigraph \
    && /opt/omnigraph/bin/pip install --no-cache-dir --constraint constraints.txt '.[server,tracing]'

FROM python:3.12-slim
ARG OMNIGRAPH_SOURCE_VERSION=
ENV OMNIGRAPH_SOURCE_VERSION=$OMNIGRAPH_SOURCE_VERSION \
    PATH=/opt/omnigraph/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
COPY --from=build /opt/omnigraph /opt/omnigraph
COPY docker/entrypoint.sh /usr/local/bin/omnigraph-entrypoint
RUN useradd --system --create-home omnigraph
USER omnigraph
WORKDIR /home/omnigraph
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request as u; p = os.environ.get('OMNIGRAPH_BIND', ':8080').rpartition(':')[2]; u.urlopen(f'http://127.0.0.1:{p}/healthz', timeout=4)"]
ENTRYPOINT ["omnigraph-entrypoint"]
