{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Room is left for -headless: names of Services have at most 63 characters. */}}
{{- define "attnbias.fullname" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) -}}
{{- $name = printf "%s-%s" $name .Chart.Name -}}
{{- end -}}
{{- $name | trunc 54 | trimSuffix "-" -}}
{{- end -}}

{{- define "attnbias.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "attnbias.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: {{ .Chart.Name }}
{{ include "attnbias.selectorLabels" . }}
{{- end -}}

{{- define "attnbias.podLabels" -}}
{{- merge (include "attnbias.selectorLabels" . | fromYaml) .Values.podLabels | toYaml -}}
{{- end -}}

{{- define "attnbias.podAnnotations" -}}
{{- $ours := dict -}}
{{- if not .Values.metrics.serviceMonitor.enabled -}}
{{- $ours = dict "prometheus.io/scrape" "true" "prometheus.io/port" "9464" -}}
{{- end -}}
{{- with .Values.precompute -}}
{{- /* The server reads the file once. */ -}}
{{- $_ := set $ours "checksum/precompute" (toJson . | sha256sum) -}}
{{- end -}}
{{- with merge (deepCopy .Values.podAnnotations) $ours -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "attnbias.image" -}}
{{- $suffix := ternary "-cuda" "" (gt (int .Values.cuda.gpus) 0) -}}
{{- $tag := .Values.image.tag | default (printf "%s%s" .Chart.AppVersion $suffix) -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}

{{- define "attnbias.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "attnbias.fullname" .) -}}
{{- end -}}

{{/* The Secret with certificate and key; empty where the port speaks plaintext. */}}
{{- define "attnbias.tlsSecret" -}}
{{- if .Values.tls.certManager.issuer -}}
{{- include "attnbias.fullname" . }}-tls
{{- else -}}
{{- .Values.tls.secret -}}
{{- end -}}
{{- end -}}

{{/* What is mounted into the pod, where, and the flags that say so. */}}
{{- define "attnbias.mounts" -}}
{{- with include "attnbias.tlsSecret" . }}
- name: tls
  path: /etc/attnbias/tls
  volume:
    secret:
      secretName: {{ . }}
  flags:
    - --tls-cert=/etc/attnbias/tls/tls.crt
    - --tls-key=/etc/attnbias/tls/tls.key
    # Kubernetes' gRPC probes speak no TLS.
    - --probe-listen=[::]:50052
{{- end }}
{{- with .Values.tls.clientCaSecret }}
- name: tls-client-ca
  path: /etc/attnbias/tls-client-ca
  volume:
    secret:
      secretName: {{ . }}
  flags:
    - --tls-client-ca=/etc/attnbias/tls-client-ca/ca.crt
{{- end }}
{{- with .Values.auth.tokensSecret }}
- name: tokens
  path: /etc/attnbias/tokens
  volume:
    secret:
      secretName: {{ . }}
  flags:
    - --tokens=/etc/attnbias/tokens/tokens
{{- end }}
{{- with .Values.auth.policySecret }}
- name: policy
  path: /etc/attnbias/policy
  volume:
    secret:
      secretName: {{ . }}
  flags:
    - --policy=/etc/attnbias/policy/policy.json
{{- end }}
{{- if .Values.precompute }}
- name: precompute
  path: /etc/attnbias/precompute
  volume:
    configMap:
      name: {{ include "attnbias.fullname" . }}-precompute
  flags:
    - --precompute=/etc/attnbias/precompute/precompute.json
{{- end }}
{{- with .Values.tables.configMap }}
- name: tables
  path: /var/lib/attnbias/tables
  volume:
    configMap:
      name: {{ . }}
  flags:
    - --tables=/var/lib/attnbias/tables
{{- end }}
{{- with .Values.tables.persistentVolumeClaim }}
- name: tables
  path: /var/lib/attnbias/tables
  volume:
    persistentVolumeClaim:
      claimName: {{ . }}
      readOnly: true
  flags:
    - {{ printf "--tables=%s" (clean (printf "/var/lib/attnbias/tables/%s" $.Values.tables.folder)) | quote }}
{{- end }}
{{- range $index, $checkpoint := .Values.checkpoints }}
{{- $path := printf "/var/lib/attnbias/checkpoints/%s" .name }}
- name: checkpoint-{{ $index }}
  path: {{ $path }}
  volume:
    persistentVolumeClaim:
      claimName: {{ .persistentVolumeClaim }}
      readOnly: true
  flags:
    - {{ printf "--checkpoint=%s=%s" .name (clean (printf "%s/%s" $path (.folder | default ""))) | quote }}
{{- end }}
{{- with .Values.socket.hostPath }}
- name: socket
  path: /run/attnbias
  writable: true
  volume:
    hostPath:
      path: {{ . | quote }}
      type: DirectoryOrCreate
  flags:
    - --listen=[::]:50051
    - --listen=unix:/run/attnbias/attnbias.sock
    - --socket-mode={{ $.Values.socket.mode }}
{{- end }}
{{- end -}}
