# SPDX-License-Identifier: Apache-2.0
# Targets: server (the last, and so the default) and cuda, which is the same with
# the CUDA backend.
FROM debian:bookworm-slim AS build
WORKDIR /src
COPY cmake/debian-packages.txt cmake/
RUN apt-get -qq update \
 && grep -v '^#' cmake/debian-packages.txt \
  | DEBIAN_FRONTEND=noninteractive xargs apt-get -qq install -y --no-install-recommends \
 && rm -rf /var/lib/apt/lists/*
COPY . .
ENV CCACHE_DIR=/ccache CCACHE_BASEDIR=/src CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
# Programs find their libraries where the image's system has them, and nowhere else.
RUN --mount=type=cache,target=/ccache \
    cmake --preset release -DCMAKE_SKIP_RPATH=ON \
 && cmake --build --preset release --target attnbias-server attnbias \
 && strip build/release/bin/*

FROM debian:bookworm-slim AS runtime
# What `ldd` lists for the two programs, and nothing else.
RUN apt-get -qq update \
 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      libgmp10 libgrpc++1.51 libhwy1 libmicrohttpd12 libmpfr6 libopenblas0-pthread \
      libpng16-16 libprometheus-cpp-core1.0 libspdlog1.10 libssl3 \
 && rm -rf /var/lib/apt/lists/*
USER 65532:65532
EXPOSE 50051 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["attnbias", "health"]
ENTRYPOINT ["attnbias-server"]

FROM build AS build-cuda
RUN apt-get -qq update \
 && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN cmake/make-cuda-toolkit.sh /cuda
RUN --mount=type=cache,target=/ccache \
    rm build/release/CMakeCache.txt \
 && CUDACXX=/cuda/toolkit/bin/nvcc cmake --preset release -DCMAKE_SKIP_RPATH=ON -DATTNBIAS_CUDA=REQUIRED \
 && cmake --build --preset release --target attnbias-server attnbias attnbias_cuda \
 && strip build/release/bin/*

FROM runtime AS cuda
# The driver's own libraries come from the machine, by NVIDIA's container toolkit.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /cuda/toolkit/lib/libcublas.so.13 /cuda/toolkit/lib/libcublasLt.so.13 /usr/lib/
COPY --from=build-cuda /src/build/release/bin/libattnbias_cuda.so /usr/lib/
COPY --from=build-cuda /src/build/release/bin/attnbias-server /src/build/release/bin/attnbias /usr/local/bin/

FROM runtime AS server
COPY --from=build /src/build/release/bin/attnbias-server /src/build/release/bin/attnbias /usr/local/bin/
