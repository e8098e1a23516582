# syntax=docker/dockerfile:1
# Every base is a build argument, so that an organisation can put its own mirror or hardened image in its place.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
# OpenTofu instead: TERRAFORM_IMAGE=ghcr.io/opentofu/opentofu:1.10-minimal TERRAFORM_BINARY=/usr/local/bin/tofu
ARG TERRAFORM_IMAGE=docker.io/hashicorp/terraform:1.11.4

# A release puts the binary that it has built and attested in the place of this stage: --build-context build=FOLDER.
FROM ${RUST_IMAGE} AS build
WORKDIR /src
# All but what .dockerignore names.
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --package konverge && cp target/release/konverge /konverge

FROM ${TERRAFORM_IMAGE} AS terraform

FROM ${BASE_IMAGE} AS konverge
# Python hosts the KCL core. What the package manager leaves behind differs from build to build; without it the same
# inputs give the same image. Perl, beyond Debian's own base, is git's for commands that nothing here calls.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git python3-minimal libpython3-stdlib \
 && find / -xdev -name __pycache__ -prune -exec rm -rf {} + \
 && rm -rf /usr/share/perl /usr/share/perl5 /usr/lib/*-linux-gnu/perl \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /var/log/* /usr/share/doc/* /usr/share/man/*
ARG TERRAFORM_BINARY=/bin/terraform
COPY --from=terraform ${TERRAFORM_BINARY} /usr/local/bin/
COPY --from=build /konverge /usr/local/bin/konverge
# The pinned KCL core, found from any folder without a variable of the job's.
ENV XDG_DATA_HOME=/opt PYTHONDONTWRITEBYTECODE=1
RUN konverge kcl install && rm -rf /root/.cache
ARG VERSION=0.0.0 REVISION=unknown
LABEL org.opencontainers.image.title="konverge" \
      org.opencontainers.image.description="The CI agent of a Konfig monorepo" \
      org.opencontainers.image.source="https://github.com/konverge/konverge" \
      org.opencontainers.image.documentation="https://konverge.github.io/konverge" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# As an action this runs as root in a workspace that belongs to the runner's user; there is no USER on purpose.
ENTRYPOINT ["/usr/local/bin/konverge"]
CMD ["--help"]
