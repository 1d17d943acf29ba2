#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes apt on a Debian sid machine select gRPC and Protobuf from experimental, in the versions that
# current-grpc.pref states. Changes no installed packages.
set -euo pipefail
cp "$(dirname "${BASH_SOURCE[0]}")/current-grpc.pref" /etc/apt/preferences.d/current-grpc
apt-get -qq update
# shellcheck disable=SC2016  # apt expands these variables itself
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
echo "deb $mirror experimental main" >/etc/apt/sources.list.d/experimental.list
