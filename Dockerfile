# The image of Quorate: three static binaries and nothing else. `make image` makes the same without Docker, and `make release` the one
# that is published. With the version and the commit of a release as arguments the binaries are those of the release, byte for byte.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY *.go ./
COPY server server
COPY etcdops etcdops
COPY hooks hooks
COPY internal internal
COPY manifests manifests
ARG VERSION=v0.1.0
ARG COMMIT=unknown
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -buildvcs=false -trimpath -tags disable_grpc_modules,grpcnotrace,nomsgpack \
    -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /out/ . ./etcdops/quorate-snapshot ./etcdops/quorate-trim

FROM scratch
ARG VERSION=v0.1.0
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="Quorate" \
      org.opencontainers.image.description="etcd clusters on Kubernetes" \
      org.opencontainers.image.source="https://github.com/quorate-dev/quorate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /out/quorate /out/quorate-snapshot /out/quorate-trim /
USER 65532:65532
ENTRYPOINT ["/quorate"]
CMD ["serve"]
