{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "attnbias.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Leaves room for -precompute and the like: Service names have at most 63 characters. */}}
{{- define "attnbias.fullname" -}}
{{- $name := .Release.Name -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if not (contains (include "attnbias.name" .) $name) -}}
{{- $name = printf "%s-%s" $name (include "attnbias.name" .) -}}
{{- end -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "attnbias.selectorLabels" -}}
app.kubernetes.io/name: {{ include "attnbias.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "attnbias.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "attnbias.labels" -}}
{{- merge (include "attnbias.chartLabels" . | fromYaml) (include "attnbias.selectorLabels" . | fromYaml) .Values.commonLabels | toYaml -}}
{{- end -}}

{{/* The pod of `helm test`, which no Service selects. */}}
{{- define "attnbias.testSelectorLabels" -}}
app.kubernetes.io/name: {{ include "attnbias.name" . | trunc 58 }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "attnbias.podLabels" -}}
{{- merge (include "attnbias.selectorLabels" . | fromYaml) .Values.podLabels .Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "attnbias.podAnnotations" -}}
{{- $ours := dict -}}
{{- if not .Values.metrics.serviceMonitor.enabled -}}
{{- $ours = dict "prometheus.io/scrape" "true" "prometheus.io/port" "9464" -}}
{{- end -}}
{{- /* The server reads its settings files only once. */ -}}
{{- $_ := set $ours "checksum/config" (include "attnbias.config" . | sha256sum) -}}
{{- with merge (deepCopy .Values.podAnnotations) $ours -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "attnbias.image" -}}
{{- $suffix := ternary "-cuda" "" (gt (int .Values.cuda.gpus) 0) -}}
{{- $tag := .Values.image.tag | default (printf "%s%s" .Chart.AppVersion $suffix) -}}
{{- include "attnbias.imageReference" (merge (dict "tag" $tag) .Values.image) -}}
{{- end -}}

{{- define "attnbias.imageReference" -}}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end -}}
{{- end -}}

{{- define "attnbias.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "attnbias.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The Secret with the certificate and key; empty if the port uses plaintext. */}}
{{- define "attnbias.tlsSecret" -}}
{{- if .Values.tls.certManager.issuer -}}
{{- include "attnbias.fullname" . }}-tls
{{- else -}}
{{- .Values.tls.secret -}}
{{- end -}}
{{- end -}}

{{/* A plaintext port, which Kubernetes' gRPC probes need. */}}
{{- define "attnbias.probePort" -}}
{{- ternary 50052 50051 (ne (include "attnbias.tlsSecret" .) "") -}}
{{- end -}}

{{/* The server's probes. A probe without a handler calls the gRPC health service. */}}
{{- define "attnbias.probes" -}}
{{- $probes := dict -}}
{{- range $name, $service := dict "startupProbe" "readiness" "readinessProbe" "readiness" "livenessProbe" "liveness" -}}
{{- $probe := index $.Values $name -}}
{{- if $probe.enabled -}}
{{- $made := omit $probe "enabled" -}}
{{- if not (pick $made "exec" "grpc" "httpGet" "tcpSocket") -}}
{{- $_ := set $made "grpc" (dict "port" (include "attnbias.probePort" $ | int) "service" $service) -}}
{{- end -}}
{{- $_ := set $probes $name $made -}}
{{- end -}}
{{- end -}}
{{- with $probes }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Constraints without a selector count the replicas of this release. */}}
{{- define "attnbias.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" (include "attnbias.selectorLabels" . | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}

{{/* Volumes of the server's container, and the settings that name their files. */}}
{{- define "attnbias.mounts" -}}
- name: config
  path: /etc/attnbias/config
  volume:
    configMap:
      name: {{ include "attnbias.fullname" . }}
  {{- if .Values.precompute }}
  settings:
    precompute: /etc/attnbias/config/precompute.json
  {{- end }}
{{- with include "attnbias.tlsSecret" . }}
- name: tls
  path: /etc/attnbias/tls
  volume:
    secret:
      secretName: {{ . }}
  settings:
    tls-cert: /etc/attnbias/tls/tls.crt
    tls-key: /etc/attnbias/tls/tls.key
    # Kubernetes' gRPC probes do not support TLS.
    probe-listen: "[::]:50052"
{{- end }}
{{- with .Values.tls.clientCaSecret }}
- name: tls-client-ca
  path: /etc/attnbias/tls-client-ca
  volume:
    secret:
      secretName: {{ . }}
  settings:
    tls-client-ca: /etc/attnbias/tls-client-ca/ca.crt
{{- end }}
{{- with .Values.auth.tokensSecret }}
- name: tokens
  path: /etc/attnbias/tokens
  volume:
    secret:
      secretName: {{ . }}
  settings:
    tokens: /etc/attnbias/tokens/tokens
{{- end }}
{{- with .Values.auth.policySecret }}
- name: policy
  path: /etc/attnbias/policy
  volume:
    secret:
      secretName: {{ . }}
  settings:
    policy: /etc/attnbias/policy/policy.json
{{- end }}
{{- with .Values.tables.configMap }}
- name: tables
  path: /var/lib/attnbias/tables
  volume:
    configMap:
      name: {{ . }}
  settings:
    tables: /var/lib/attnbias/tables
{{- end }}
{{- with .Values.tables.persistentVolumeClaim }}
- name: tables
  path: /var/lib/attnbias/tables
  volume:
    persistentVolumeClaim:
      claimName: {{ . }}
      readOnly: true
  settings:
    tables: {{ clean (printf "/var/lib/attnbias/tables/%s" $.Values.tables.folder) | quote }}
{{- end }}
{{- range $index, $checkpoint := .Values.checkpoints }}
{{- with .persistentVolumeClaim }}
{{- $path := printf "/var/lib/attnbias/checkpoints/%s" $checkpoint.name }}
- name: checkpoint-{{ $index }}
  path: {{ $path }}
  volume:
    persistentVolumeClaim:
      claimName: {{ . }}
      readOnly: true
  settings:
    checkpoint: [{{ printf "%s=%s" $checkpoint.name (clean (printf "%s/%s" $path ($checkpoint.folder | default ""))) | quote }}]
{{- end }}
{{- end }}
{{- if include "attnbias.remotes" . }}
- name: remote
  path: /var/lib/attnbias/remote
  volume:
    emptyDir: {}
  settings:
    {{- if .Values.tables.remote }}
    tables: /var/lib/attnbias/remote/tables
    {{- end }}
    checkpoint:
      {{- range .Values.checkpoints }}
      {{- if .remote }}
      - {{ .name }}=/var/lib/attnbias/remote/checkpoints/{{ .name }}
      {{- end }}
      {{- end }}
{{- end }}
{{- with .Values.socket.hostPath }}
- name: socket
  path: /run/attnbias
  writable: true
  volume:
    hostPath:
      path: {{ . | quote }}
      type: DirectoryOrCreate
  settings:
    listen: ["[::]:50051", "unix:/run/attnbias/attnbias.sock"]
    socket-mode: {{ $.Values.socket.mode | quote }}
{{- end }}
{{- end -}}

{{/* Each flag's list of values. Excludes extraFlags that refer to the container's variables, since
Kubernetes expands these only on the command line. */}}
{{- define "attnbias.settings" -}}
{{- $settings := dict
  "shutdown-delay" (list (printf "%ds" (int .Values.shutdownDelaySeconds)))
  "drain-grace" (list (printf "%ds" (int .Values.drainGraceSeconds))) -}}
{{- range include "attnbias.mounts" . | fromYamlArray -}}
{{- range $name, $value := .settings -}}
{{- $values := kindIs "string" $value | ternary (list $value) $value -}}
{{- $_ := set $settings $name (concat (get $settings $name | default list) ($values | default list)) -}}
{{- end -}}
{{- end -}}
{{- if gt (int64 .Values.cuda.minBytes) 0 -}}
{{- $_ := set $settings "cuda-min-bytes" (list (int64 .Values.cuda.minBytes | toString)) -}}
{{- end -}}
{{- range .Values.extraFlags -}}
{{- if not (contains "$(" .) -}}
{{- $parts := trimPrefix "--" . | splitn "=" 2 -}}
{{- $value := contains "=" . | ternary $parts._1 "true" -}}
{{- $_ := set $settings $parts._0 (append (get $settings $parts._0 | default list) $value) -}}
{{- end -}}
{{- end -}}
{{- /* Clients resolve names again when a connection ends, and thereby find new replicas. */ -}}
{{- merge $settings (dict "max-connection-age" (list "20s")) | toYaml -}}
{{- end -}}

{{/* The data of the ConfigMap. A TOML literal string has no escapes. */}}
{{- define "attnbias.config" -}}
attnbias.toml: |
  {{- range $name, $values := include "attnbias.settings" . | fromYaml }}
  {{- range $values }}
  {{- if regexMatch "['#[:cntrl:]]|\\\\$" . }}
  {{- fail (printf "%s: got %q, want a value without ' and #, and no \\ at its end" $name .) }}
  {{- end }}
  {{- end }}
  {{- with $values }}
  {{ $name }} = {{ eq (len .) 1 | ternary (first . | squote) (printf "[%s]" (. | join "', '" | squote)) }}
  {{- end }}
  {{- end }}
{{- with .Values.precompute }}
precompute.json: {{ toJson . | quote }}
{{- end }}
{{- end -}}

{{/* rclone's sources and destinations, alternating. */}}
{{- define "attnbias.remotes" -}}
{{- with .Values.tables.remote }}
- {{ quote . }}
- /var/lib/attnbias/remote/tables
{{- end }}
{{- range .Values.checkpoints }}
{{- if .remote }}
- {{ quote .remote }}
- /var/lib/attnbias/remote/checkpoints/{{ .name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A container whose script runs `copy REMOTE FOLDER ...`. rclone gives a file its name only when the
file is complete. If one folder fails, the others are still copied. */}}
{{- define "attnbias.rclone" -}}
{{- $script := .script -}}
name: {{ .name }}
{{- with .context }}
image: {{ include "attnbias.imageReference" .Values.rclone.image | quote }}
imagePullPolicy: {{ .Values.rclone.image.pullPolicy }}
command:
  - sh
  - -c
  - |
    copy() {
      status=0
      while [ $# -gt 0 ]; do
        if ! files=$(rclone lsf --include '/*.{json,safetensors}' "$1"); then
          status=1
        elif [ -z "$files" ]; then
          echo "$1: got no .json or .safetensors files, want at least one" >&2
          status=1
        else
          rclone sync --include '/*.{json,safetensors}' --delete-excluded "$1" "$2" || status=$?
        fi
        shift 2
      done
      return $status
    }
    {{- $script | nindent 4 }}
  - rclone
args:
  {{- include "attnbias.remotes" . | trim | nindent 2 }}
env:
  - name: RCLONE_RETRIES
    value: "1"
  - name: RCLONE_LOW_LEVEL_RETRIES
    value: "1"
  {{- if .Values.rclone.configSecret }}
  - name: RCLONE_CONFIG
    value: /etc/rclone/rclone.conf
  {{- end }}
resources:
  {{- toYaml .Values.rclone.resources | nindent 2 }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: remote
    mountPath: /var/lib/attnbias/remote
  {{- if .Values.rclone.configSecret }}
  - name: rclone
    mountPath: /etc/rclone
    readOnly: true
  {{- end }}
{{- end }}
{{- end -}}

{{/* Flags that extraFlags and extraEnv must not set, and their replacements. */}}
{{- define "attnbias.flagsOfTheChart" -}}
config: "none: the chart renders the file"
listen: the value socket.hostPath for a socket file; the chart's port is fixed
socket-mode: the value socket.mode
metrics-listen: "none: the chart's port is fixed"
probe-listen: "none: the chart's port is fixed"
threads: the value resources.limits.cpu
cuda-min-bytes: the value cuda.minBytes
tables: the value tables
checkpoint: the value checkpoints
precompute: the value precompute
tls-cert: the value tls.secret or tls.certManager.issuer
tls-key: the value tls.secret or tls.certManager.issuer
tls-client-ca: the value tls.clientCaSecret
tokens: the value auth.tokensSecret
policy: the value auth.policySecret
shutdown-delay: the value shutdownDelaySeconds
drain-grace: the value drainGraceSeconds
{{- end -}}

{{/* Other charts' values, and their replacements. */}}
{{- define "attnbias.valuesOfOtherCharts" -}}
args: extraFlags
command: extraFlags
containerSecurityContext: securityContext
env: extraEnv
envFrom: extraEnv
extraArgs: extraFlags
extraEnvFrom: extraEnv
extraEnvVars: extraEnv
extraInitContainers: initContainers
pdb: podDisruptionBudget
replicas: replicaCount
runtimeClassName: cuda.runtimeClassName
serviceAccountName: serviceAccount.name
serviceMonitor: metrics.serviceMonitor
sidecars: extraContainers
strategy: maxSurge
terminationGracePeriodSeconds: drainGraceSeconds
updateStrategy: maxSurge
volumeMounts: extraVolumeMounts
volumes: extraVolumes
{{- end -}}

{{/* Fails if values are incompatible. The schema has already checked each value. */}}
{{- define "attnbias.validate" -}}
{{- $tls := include "attnbias.tlsSecret" . -}}
{{- with .Values -}}
{{- if regexMatch ":[^/]*$" .image.repository -}}
{{- fail (printf "image.repository: got %q, want the tag in image.tag" .image.repository) -}}
{{- end -}}
{{- range $name, $replacement := include "attnbias.valuesOfOtherCharts" $ | fromYaml -}}
{{- if hasKey $.Values $name -}}
{{- fail (printf "%s: got %s, want the value %s" $name (toJson (get $.Values $name)) $replacement) -}}
{{- end -}}
{{- end -}}
{{- range .imagePullSecrets -}}
{{- if kindIs "string" . -}}
{{- fail (printf "imagePullSecrets: got %q, want {name: %s}" . .) -}}
{{- end -}}
{{- end -}}
{{- if and .tables.configMap .tables.persistentVolumeClaim -}}
{{- fail (printf "tables.configMap: got %q together with tables.persistentVolumeClaim, want one of them" .tables.configMap) -}}
{{- end -}}
{{- if and .tables.remote (or .tables.configMap .tables.persistentVolumeClaim) -}}
{{- fail (printf "tables.remote: got %q together with tables.configMap or tables.persistentVolumeClaim, want one of them" .tables.remote) -}}
{{- end -}}
{{- if and .tables.folder (not .tables.persistentVolumeClaim) -}}
{{- fail (printf "tables.folder: got %q, want tables.persistentVolumeClaim as well" .tables.folder) -}}
{{- end -}}
{{- if and .tls.secret .tls.certManager.issuer -}}
{{- fail (printf "tls.secret: got %q together with tls.certManager.issuer, want one of them" .tls.secret) -}}
{{- end -}}
{{- if and .tls.clientCaSecret (not $tls) -}}
{{- fail (printf "tls.clientCaSecret: got %q, want tls.secret or tls.certManager.issuer as well" .tls.clientCaSecret) -}}
{{- end -}}
{{- if and .auth.policySecret (not .auth.tokensSecret) (not .tls.clientCaSecret) -}}
{{- fail (printf "auth.policySecret: got %q, want auth.tokensSecret or tls.clientCaSecret as well, which identify callers" .auth.policySecret) -}}
{{- end -}}
{{- if and .socket.hostPath (ne .kind "DaemonSet") -}}
{{- fail (printf "socket.hostPath: got %q, want kind: DaemonSet: two replicas on one node would need the same file" .socket.hostPath) -}}
{{- end -}}
{{- if and .autoscaling.enabled (ne .kind "Deployment") -}}
{{- fail (printf "autoscaling.enabled: got true, want kind: Deployment: a %s has one replica on each node" .kind) -}}
{{- end -}}
{{- if and .autoscaling.enabled (not (or .autoscaling.targetCPUUtilizationPercentage .autoscaling.targetMemoryUtilizationPercentage .autoscaling.metrics)) -}}
{{- fail "autoscaling.enabled: got true, want a metric as well" -}}
{{- end -}}
{{- if and .service.loadBalancerSourceRanges (ne .service.type "LoadBalancer") -}}
{{- fail (printf "service.loadBalancerSourceRanges: got %s, want service.type: LoadBalancer as well" (toJson .service.loadBalancerSourceRanges)) -}}
{{- end -}}
{{- if and .service.nodePort (eq .service.type "ClusterIP") -}}
{{- fail (printf "service.nodePort: got %d, want service.type: NodePort or LoadBalancer as well" (int .service.nodePort)) -}}
{{- end -}}
{{- if and .autoscaling.enabled (lt (int .autoscaling.maxReplicas) (int .autoscaling.minReplicas)) -}}
{{- fail (printf "autoscaling.maxReplicas: got %d, want at least autoscaling.minReplicas, %d" (int .autoscaling.maxReplicas) (int .autoscaling.minReplicas)) -}}
{{- end -}}
{{- if and .ingress.enabled (not .ingress.hosts) -}}
{{- fail "ingress.enabled: got true, want ingress.hosts as well" -}}
{{- end -}}
{{- if and .grpcRoute.enabled (not .grpcRoute.parentRefs) -}}
{{- fail "grpcRoute.enabled: got true, want grpcRoute.parentRefs as well" -}}
{{- end -}}
{{- $ours := include "attnbias.flagsOfTheChart" $ | fromYaml -}}
{{- range .extraFlags -}}
{{- $name := . | trimPrefix "--" | splitList "=" | first -}}
{{- if hasKey $ours $name -}}
{{- fail (printf "extraFlags: got %q, want %s" . (get $ours $name)) -}}
{{- end -}}
{{- end -}}
{{- range .extraEnv -}}
{{- $name := .name | trimPrefix "ATTNBIAS_" | lower | replace "_" "-" -}}
{{- if and (hasPrefix "ATTNBIAS_" .name) (hasKey $ours $name) -}}
{{- fail (printf "extraEnv: got %q, want %s" .name (get $ours $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
