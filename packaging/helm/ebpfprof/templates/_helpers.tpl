{{- define "ebpfprof.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ebpfprof.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "ebpfprof.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "ebpfprof.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ebpfprof.selector" -}}
app.kubernetes.io/name: {{ include "ebpfprof.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ebpfprof.labels" -}}
{{ include "ebpfprof.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: agent
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ebpfprof.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ebpfprof.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The namespace is in it: a cluster role has none, and there may be several releases. */}}
{{- define "ebpfprof.clusterRole" -}}
{{- printf "%s-%s" .Release.Namespace (include "ebpfprof.fullname" .) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ebpfprof.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* Lines of TOML, one for each key: JSON's numbers, texts and lists are TOML's, too. */}}
{{- define "ebpfprof.lines" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ebpfprof.toml" -}}
{{- $listen := printf "0.0.0.0:%v" .Values.metrics.port }}
{{- $fixed := dict "listen" $listen "host_root" "/proc/1/root" }}
{{- include "ebpfprof.lines" (merge (deepCopy .Values.agent.settings) $fixed) | trim }}
{{- $ring := deepCopy .Values.agent.ring }}
{{- /* A pod's own folder is open to all users, which the ring's must not be. */}}
{{- if not .Values.ringHostPath }}
{{- $ring = merge $ring (dict "path" "/var/lib/ebpfprof/ring") }}
{{- end }}
{{- with $ring }}

[ring]
{{- include "ebpfprof.lines" . }}
{{- end }}
{{- with .Values.agent.kubernetes }}

[kubernetes]
{{- include "ebpfprof.lines" . }}
{{- end }}
{{- with .Values.agent.options }}

[options]
{{- include "ebpfprof.lines" . }}
{{- end }}
{{- range .Values.agent.sinks }}

[[sinks]]
{{- include "ebpfprof.lines" . }}
{{- end }}
{{- range .Values.agent.rules }}

[[rules]]
{{- include "ebpfprof.lines" . }}
{{- end }}
{{- end }}
