# The images of Parley's services, from the repository's root:
#   docker build --target party -t parley-party .        a party, or a key holder
#   docker build --target learner -t parley-learner .
#   docker build --target setup -t parley-setup .        what makes the deployment of docker-compose.yml
# All read files, answer queries and train the classifiers of scikit-learn. --build-arg EXTRAS="postgres excel" adds what
# reads tables of PostgreSQL, workbooks, sends traces (tracing), or writes ONNX (export): the packages of
# requirements-postgres.lock and so on.
# --build-arg VERSION=1.2.3 says which version it is, as git is not in it; `make release` does.
# An image holds its own service's code, the locked packages and their bills of materials (/opt/parley/share/parley); no
# installer, no compiler, no secret. What a service writes lives in the volume /var/lib/parley.
ARG BASE=python:3.11-slim-bookworm

# What every image begins with: of the base, what Python loads; no shell, no installer.
FROM ${BASE} AS system
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/parley --shell /usr/sbin/nologin parley \
 && install -d -o parley -g parley -m 0700 /var/lib/parley
COPY scripts/deployment/slim_system.py /tmp/
RUN ["python3", "/tmp/slim_system.py"]

# The locked packages, without what no service runs. They come before the code: a change of code installs none again.
FROM ${BASE} AS packages
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils \
 && python -m venv --without-pip /opt/parley
COPY requirements-*.lock deployments/sbom-*.cdx.json /src/
ARG EXTRAS=
RUN mkdir -p /opt/parley/share/parley && for part in runtime files query sklearn $EXTRAS; do \
      python -m pip --python /opt/parley/bin/python install --quiet --no-cache-dir --no-compile --only-binary :all: \
        --require-hashes -r /src/requirements-$part.lock \
      && cp /src/sbom-$part.cdx.json /opt/parley/share/parley/ || exit 1; \
    done
COPY scripts/deployment/slim_packages.py scripts/deployment/warm_up.py /tools/
RUN /opt/parley/bin/python /tools/slim_packages.py /opt/parley/lib/python3*/site-packages
COPY scripts/deployment/parley_is.py /opt/parley/bin/parley-is
COPY LICENSE pyproject.toml /src/
COPY docs/how-to/install.md /src/docs/how-to/
COPY parley /src/parley
COPY common /src/common

FROM packages AS party-packages
COPY party /src/party
ARG VERSION=0.dev0
RUN SETUPTOOLS_SCM_PRETEND_VERSION_FOR_PARLEY_LEARNING="$VERSION" python -m pip --python /opt/parley/bin/python install --quiet \
    --no-cache-dir --no-compile --no-deps --no-build-isolation /src \
 && python -m pip --python /opt/parley/bin/python uninstall --quiet --yes setuptools setuptools-scm vcs-versioning \
 && cd / && /opt/parley/bin/python /tools/warm_up.py parley.common parley.party

FROM packages AS learner-packages
COPY learner /src/learner
ARG VERSION=0.dev0
RUN SETUPTOOLS_SCM_PRETEND_VERSION_FOR_PARLEY_LEARNING="$VERSION" python -m pip --python /opt/parley/bin/python install --quiet \
    --no-cache-dir --no-compile --no-deps --no-build-isolation /src \
 && python -m pip --python /opt/parley/bin/python uninstall --quiet --yes setuptools setuptools-scm vcs-versioning \
 && cd / && /opt/parley/bin/python /tools/warm_up.py parley.common parley.learner

# One layer, so that what was removed takes no room.
FROM scratch AS service
COPY --from=system / /
ENV PATH=/opt/parley/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    PARLEY_PARTY_HEARTBEAT=/tmp PARLEY_KEYHOLDER_HEARTBEAT=/tmp PARLEY_LEARNER_HEARTBEAT=/tmp
USER 10001:10001
WORKDIR /var/lib/parley
VOLUME /var/lib/parley
EXPOSE 8000
STOPSIGNAL SIGTERM
# A full disk changes nothing about it: no restart would mend that, and a learner's pages and models are served.
HEALTHCHECK --interval=40s --timeout=30s --start-period=60s --retries=3 CMD ["parley-is", "alive"]

FROM service AS party
COPY --from=party-packages /opt/parley /opt/parley
ENTRYPOINT ["parley-party"]
CMD ["serve", "--config", "/etc/parley/party.toml"]

FROM service AS learner
COPY --from=learner-packages /opt/parley /opt/parley
ENTRYPOINT ["parley-learner"]
CMD ["serve", "--config", "/etc/parley/learner.toml"]

# The learner's image and the code of parties, which makes a deployment's files and ledgers.
FROM learner AS setup
USER 0:0
COPY party /setup/party
COPY scripts/deployment /setup/scripts/deployment
ENV PYTHONPATH=/setup
RUN ["python", "-c", "import os, parley; os.symlink('/setup/party', f'{parley.__path__[0]}/party')"]
RUN ["python", "-m", "scripts.deployment.volume_folders"]
USER 10001:10001
ENTRYPOINT ["python", "-m", "scripts.deployment.setup"]
CMD ["make"]
