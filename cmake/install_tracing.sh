#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the dependencies for exporting spans, for this machine's architecture or another, on a
# machine that use_current_grpc.sh has prepared: install_tracing.sh [ARCHITECTURE].
set -euo pipefail
architecture=${1:-$(dpkg --print-architecture)}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
# Debian's package holds the SDK and exporters, which are linked with the gRPC that the current one
# replaces. The SDK is therefore installed without the exporters and their dependencies.
apt-get -qq -o APT::Sandbox::User=root download "opentelemetry-cpp:$architecture"
dpkg-deb --raw-extract opentelemetry-cpp_*.deb package
rm package/usr/lib/*/libopentelemetry_{exporter,http,otlp,proto}*
sed -i -E '/libopentelemetry_(exporter|http|otlp|proto)/d' package/DEBIAN/md5sums
sed -i -E '/^Depends:/s/ lib(curl|grpc|protobuf)[^,]*,//g' package/DEBIAN/control
dpkg-deb --build package sdk.deb >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
  ./sdk.deb "opentelemetry-cpp-dev:$architecture" opentelemetry-proto >/dev/null
apt-get clean
