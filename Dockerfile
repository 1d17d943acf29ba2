# SPDX-License-Identifier: Apache-2.0
# Targets: server (last, hence the default) and cuda (server plus the CUDA backend). Both build for
# amd64 and arm64 with the build platform's compiler. The images contain the current gRPC
# (cmake/current-grpc.pref) and no programs except ours.
FROM --platform=$BUILDPLATFORM debian:sid-slim AS build
# Empty if the engine neither receives nor sets a platform; this machine's platform is then used.
ARG TARGETARCH
WORKDIR /src
COPY cmake/debian-packages*.txt cmake/current-grpc.pref cmake/use_current_grpc.sh cmake/install_*.sh \
  cmake/
RUN cmake/use_current_grpc.sh \
 && cmake/install_build_packages.sh "$TARGETARCH" cmake/debian-packages-image.txt \
 && cmake/install_tracing.sh "$TARGETARCH" \
 && rm -rf /var/lib/apt/lists/*
COPY . .
ENV CCACHE_DIR=/ccache CCACHE_BASEDIR=/src CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
# Programs load libraries only from the image's system directories.
RUN --mount=type=cache,target=/ccache \
    cmake --preset "release$(dpkg --print-foreign-architectures | sed 's/arm64/-aarch64/')" -B build/image \
      -DATTNBIAS_TRACING=REQUIRED -DCMAKE_SKIP_RPATH=ON -DCMAKE_EXE_LINKER_FLAGS=-s \
 && cmake --build build/image --target attnbias-server attnbias \
 && cp build/image/bin/attnbias-server build/image/bin/attnbias /usr/local/bin/
RUN cmake/make_image_root.sh /image /usr/local/bin/attnbias-server /usr/local/bin/attnbias

FROM build AS build-cuda
# No cross compiler for the CUDA kernels is installed here.
RUN [ -z "$(dpkg --print-foreign-architectures)" ]
# The newest compiler that nvcc supports.
RUN apt-get -qq update \
 && DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends g++-15 python3-venv >/dev/null \
 && rm -rf /var/lib/apt/lists/*
RUN cmake/make_cuda_toolkit.sh /cuda
RUN --mount=type=cache,target=/ccache \
    rm build/image/CMakeCache.txt \
 && CUDACXX=/cuda/toolkit/bin/nvcc CUDAHOSTCXX=g++-15 cmake --preset release -B build/image \
      -DCMAKE_SKIP_RPATH=ON -DCMAKE_EXE_LINKER_FLAGS=-s -DCMAKE_SHARED_LINKER_FLAGS=-s \
      -DATTNBIAS_CUDA=REQUIRED -DATTNBIAS_TRACING=REQUIRED \
 && cmake --build build/image --target attnbias-server attnbias attnbias_cuda \
 && cp build/image/bin/attnbias-server build/image/bin/attnbias /usr/local/bin/ \
 && cp build/image/bin/libattnbias_cuda.so /cuda/toolkit/lib/libcublas.so.13 \
      /cuda/toolkit/lib/libcublasLt.so.13 /usr/lib/
RUN rm -r /image \
 && cmake/make_image_root.sh /image /usr/local/bin/attnbias-server /usr/local/bin/attnbias \
      /usr/lib/libattnbias_cuda.so /usr/lib/libcublas.so.13

# Named again because buildah 1.28 keeps the platform of the previous stage.
FROM --platform=$TARGETPLATFORM scratch AS runtime
ENV PATH=/usr/local/bin
USER 65532:65532
EXPOSE 50051 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["attnbias", "health"]
ENTRYPOINT ["attnbias-server"]

FROM runtime AS cuda
# The driver's own libraries are provided by the host through NVIDIA's container toolkit.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /image /

FROM runtime AS server
COPY --from=build /image /
