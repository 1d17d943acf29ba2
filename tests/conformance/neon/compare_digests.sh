#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: compare_digests.sh NATIVE CROSS_COMMAND...
# Fails unless both programs ran, including a "neon" kernel set, and all kernel sets printed the
# same digest.
set -eu

native=$1
shift
lines=$("$native" && "$@")
echo "$lines"

if ! echo "$lines" | grep -q '^neon '; then
  echo "no kernel set \"neon\" ran" >&2
  exit 1
fi
if [ "$(echo "$lines" | cut -d ' ' -f 2 | sort -u | wc -l)" -ne 1 ]; then
  echo "the digests differ" >&2
  exit 1
fi
