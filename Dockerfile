# One image for every part of a federation; which part a container is, its command says.
FROM python:3.12-slim
WORKDIR /opt/fl-app
COPY pyproject.toml constraints.txt README.md ./
COPY fl_app fl_app
COPY conf conf
RUN pip install --no-cache-dir --constraint constraints.txt .
# Keys are readable by their owner only: give the id of who made them on the host.
ARG UID=1000
RUN useradd --uid "$UID" --create-home app \
    && install -d -o app /state /data /outputs /home/app/.flwr
USER app
WORKDIR /home/app
ENV FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.1 \
    PYTHONUNBUFFERED=1
