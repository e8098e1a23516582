# syntax=docker/dockerfile:1
# Every base is a build argument, so that an organisation can put its own mirror or hardened image in its place.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
ARG TERRAFORM_IMAGE=docker.io/hashicorp/terraform:1.11.4

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock README.md LICENSE ./
COPY src src
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked && cp target/release/konverge /konverge

FROM ${TERRAFORM_IMAGE} AS terraform

FROM ${BASE_IMAGE} AS konverge
LABEL org.opencontainers.image.title="konverge" \
      org.opencontainers.image.description="The CI agent of a Konfig monorepo" \
      org.opencontainers.image.source="https://github.com/konverge/konverge" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY --from=terraform /bin/terraform /usr/local/bin/terraform
COPY --from=build /konverge /usr/local/bin/konverge
# The pinned KCL core, found from any folder without a variable of the job's.
ENV XDG_DATA_HOME=/opt
RUN konverge kcl install && rm -rf /root/.cache
# As an action this runs as root in a workspace that belongs to the runner's user; there is no USER on purpose.
ENTRYPOINT ["/usr/local/bin/konverge"]
CMD ["--help"]
