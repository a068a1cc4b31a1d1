# The image of ipam-operator and ipamctl: one static binary each, nothing else, not root.
#
#   SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) docker buildx build --build-arg REVISION=$(git rev-parse HEAD) -t ipam-operator .

FROM rust:1.95-alpine AS build
# Static, with musl; make and a C compiler for ring.
# hadolint ignore=DL3018
RUN apk add --no-cache musl-dev make
WORKDIR /src
COPY . .
ARG REVISION=unknown
ENV IPAM_REVISION=${REVISION} CARGO_TARGET_DIR=/target
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target \
    cargo build --release --locked -p ipam-operator -p ipamctl && \
    install -D -t /out /target/release/ipam-operator /target/release/ipamctl

FROM scratch
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ipam-operator" \
      org.opencontainers.image.description="Finds leaked IP addresses in clusters with Calico's IPAM, and gives them back safely." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/ /usr/local/bin/
# Numeric, so that a pod with runAsNonRoot can tell.
USER 65532:65532
EXPOSE 9094
ENTRYPOINT ["/usr/local/bin/ipam-operator"]
CMD ["run"]
