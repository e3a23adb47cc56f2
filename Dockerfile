# docker build --tag margrave .
# docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" margrave
# Runs the demo in /data; any other command of margrave can be given: docker run … margrave release --job job.toml
FROM python:3.11-slim

COPY . /source
RUN pip install --no-cache-dir --constraint /source/constraints.txt "/source[report]" && rm -rf /source

# Nothing is run as root. With --user, the folder of the caller can be written to, and what is written belongs to them.
RUN useradd --create-home margrave && mkdir /data && chown margrave /data
USER margrave
ENV NUMBA_CACHE_DIR=/tmp/numba
WORKDIR /data

ENTRYPOINT ["margrave"]
CMD ["demo"]
