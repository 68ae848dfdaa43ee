# One image for every part of a federation; which part a container is, its command says.
#   docker compose build                                        torch with CUDA, as PyPI has it
#   FL_APP_TORCH_INDEX=<index of torch builds> docker compose build    torch of that index, as for the CPU
# The image belongs to no user: docker-compose.yml says as whom a container runs.
ARG BASE=python:3.12-slim
FROM ${BASE}
WORKDIR /opt/fl-app
COPY pyproject.toml constraints.txt ./
# The packages come before the code, so that a change of the code keeps this layer.
# Of TORCH_INDEX are torch and torchvision alone: it may lack the tested versions of what they need.
ARG TORCH_INDEX=
RUN python3 -m venv /opt/venv \
    && python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > needed.txt \
    && if [ -n "$TORCH_INDEX" ]; then \
        /opt/venv/bin/pip install --no-cache-dir --no-compile --no-deps --constraint constraints.txt \
            --index-url "$TORCH_INDEX" torch torchvision; fi \
    && /opt/venv/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt --requirement needed.txt hatchling
COPY README.md ./
COPY fl_app fl_app
COPY conf conf
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && install -d -m 1777 /state /data /outputs /home/app
WORKDIR /home/app
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/home/app \
    USER=app \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.2 \
    PYTHONUNBUFFERED=1
USER 1000:1000
