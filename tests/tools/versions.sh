# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # read by the scripts that source this file
# Pins the versions of tools. Python packages are pinned in requirements*.txt in this folder; tools
# for which Debian has a package come from Debian 12.
GO_MINIMUM=1.26
GRPCURL=github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
KUBECONFORM=github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
HELM=helm.sh/helm/v3/cmd/helm@v3.22.0
HELM_DOCS=github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2
KUSTOMIZE=sigs.k8s.io/kustomize/kustomize/v5@v5.8.2
CERT_MANAGER=github.com/cert-manager/cert-manager@v1.21.2
GATEWAY_API=sigs.k8s.io/gateway-api@v1.6.3
PROMETHEUS_OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0
# The latest version whose modules are all on the proxy.
VALE=github.com/vale-cli/vale/v3/cmd/vale@v3.22.0
TOXIPROXY=github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0
# The OpenTelemetry Collector's builder and parts.
COLLECTOR=v0.161.0
PROTOC_GEN_GO=google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
PROTOC_GEN_GO_GRPC=google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
# The Kubernetes version that provides the schemas for checking manifests, and the version on which
# the manifests run.
KUBERNETES=1.37.0
KUBERNETES_RUN=1.34.1
COREDNS=github.com/coredns/coredns@v1.12.4
