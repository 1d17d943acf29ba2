# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $root and $cache are set by the sourcing script
# The programs for a Kubernetes cluster, without an image registry: Kubernetes and CoreDNS are built
# from Go modules, the others come from Debian.

need_kubernetes() {
  local folder hash package
  need_go
  folder=$cache/tools/kubernetes-$KUBERNETES_RUN
  need_once "$folder" build_kubernetes "$folder"
  export PATH=$folder:$PATH
  hash=$(sha256sum "$root/tests/packaging/kubernetes/names/main.go")
  folder=$cache/tools/${COREDNS//[\/@]/_}-${hash:0:12}
  need_once "$folder" build_coredns "$folder"
  export PATH=$folder:$PATH
  for package in etcd-server containerd runc; do
    need_unpacked "$package"
  done
}

# Kubernetes' sibling modules are in folders that its own archive lacks; here they are ordinary
# modules, at version 0.34.1 for Kubernetes 1.34.1. Without a version the programs reject each
# other.
build_kubernetes() {
  local source package flags="-s -w" programs
  say "Building Kubernetes $KUBERNETES_RUN: 10 to 20 minutes"
  programs=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl)
  mkdir -p "$1/module" && cd "$1/module" || return
  source=$(go_module "k8s.io/kubernetes@v$KUBERNETES_RUN") && go mod init kubernetes || return
  sed -n "s#^\t\(k8s.io/[a-z-]*\) => .*#-replace=\1=\1@v0.${KUBERNETES_RUN#1.}#p" \
    "$source/go.mod" |
    xargs go mod edit "-go=$(sed -n 's/^go //p' "$source/go.mod")" \
      "-require=k8s.io/kubernetes@v$KUBERNETES_RUN" || return
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$KUBERNETES_RUN"
  done
  CGO_ENABLED=0 go build -mod=mod -ldflags "$flags" -o "$1/" \
    "${programs[@]/#/k8s.io/kubernetes/cmd/}"
}

build_coredns() {
  say "Building CoreDNS"
  mkdir -p "$1" && cp -r "$root/tests/packaging/kubernetes/names" "$1/module" && cd "$1/module" &&
    go mod init names && go get "$COREDNS" &&
    CGO_ENABLED=0 go build -mod=mod -ldflags "-s -w" -o "$1/coredns" .
}
