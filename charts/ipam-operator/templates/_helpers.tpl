{{- define "ipam-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ipam-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "ipam-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ipam-operator.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ipam-operator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "ipam-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ipam-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ipam-operator.labels" -}}
{{ include "ipam-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ipam-operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ipam-operator.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "ipam-operator.image" -}}
{{- $name := .Values.image.repository }}
{{- with .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end }}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "ipam-operator.port" -}}
{{- $config := include "ipam-operator.config" . | fromYaml -}}
{{- $listen := dig "server" "listen" "[::]:9094" $config -}}
{{- regexFind "[0-9]+$" $listen }}
{{- end }}

{{/* What changes only with a restart; everything else is followed live and must not restart the pods, for that would begin every timer anew. */}}
{{- define "ipam-operator.restartConfig" -}}
{{- $config := include "ipam-operator.config" . | fromYaml -}}
{{- dict
  "apiGroup" (dig "datastore" "apiGroup" "" $config)
  "maxInFlight" (dig "datastore" "maxInFlight" "" $config)
  "kubevirt" (dig "gc" "kubevirt" "" $config)
  "format" (dig "log" "format" "" $config)
  "server" (dig "server" dict $config)
  "leaderElection" (dig "leaderElection" dict $config)
| toJson }}
{{- end }}

{{- define "ipam-operator.leaseName" -}}
{{- dig "leaderElection" "leaseName" "ipam-operator" .Values.config }}
{{- end }}

{{- define "ipam-operator.leaseNamespace" -}}
{{- default (include "ipam-operator.namespace" .) (dig "leaderElection" "leaseNamespace" "" .Values.config) }}
{{- end }}

{{/* The configuration file: what is asked for, and what other values need. */}}
{{- define "ipam-operator.config" -}}
{{- $config := deepCopy (omit .Values.config "apiVersion" "kind") -}}
{{- $server := dict -}}
{{- if .Values.metrics.tls.secretName -}}
{{- $_ := set $server "tls" (dict "certFile" "/etc/ipam-operator-tls/tls.crt" "keyFile" "/etc/ipam-operator-tls/tls.key") -}}
{{- end -}}
{{- if .Values.adminPage.expose -}}
{{- if not (or .Values.networkPolicy.enabled .Values.adminPage.acknowledgeOpen) -}}
{{- fail "adminPage.expose shows names of pods to the whole cluster: set networkPolicy.enabled with networkPolicy.adminFrom, or adminPage.acknowledgeOpen" -}}
{{- end -}}
{{- $_ := set $server "adminListen" (printf "[::]:%d" (int .Values.adminPage.port)) -}}
{{- $_ := set $server "allowRemoteAdmin" true -}}
{{- end -}}
{{- mergeOverwrite (dict "apiVersion" "ipam-operator/v1" "kind" "OperatorConfig") $config (dict "server" $server) | toYaml -}}
{{- end }}

{{/* Whether a kind of the Prometheus operator is made: (list root values kind). */}}
{{- define "ipam-operator.monitors" -}}
{{- $root := index . 0 -}}
{{- $of := index . 1 -}}
{{- $served := $root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)) -}}
{{- if $of.enabled -}}
{{- if and (eq $of.renderMode "failIfMissing") (not $served) -}}
{{- fail (printf "monitoring.coreos.com/v1 %s is not served here" (index . 2)) -}}
{{- end -}}
{{- if or $served (eq $of.renderMode "alwaysRender") -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{/* How metrics are scraped: (list root values). */}}
{{- define "ipam-operator.endpoint" -}}
{{- $root := index . 0 -}}
{{- $of := index . 1 -}}
port: metrics
path: /metrics
interval: {{ $of.interval }}
scrapeTimeout: {{ $of.scrapeTimeout }}
honorLabels: {{ $of.honorLabels }}
scheme: {{ include "ipam-operator.scheme" $root }}
{{- if or $root.Values.metrics.tls.secretName $of.tlsConfig }}
tlsConfig:
  {{- toYaml (default (dict "insecureSkipVerify" true) $of.tlsConfig) | nindent 2 }}
{{- end }}
{{- with $of.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ipam-operator.scheme" -}}
{{- $config := include "ipam-operator.config" . | fromYaml -}}
{{- ternary "https" "http" (ne (dig "server" "tls" "certFile" "" $config) "") -}}
{{- end }}

{{/* A ServiceMonitor or a PodMonitor: (list root values kind key-of-endpoints). */}}
{{- define "ipam-operator.monitor" -}}
{{- $root := index . 0 -}}
{{- $of := index . 1 -}}
{{- $kind := index . 2 -}}
{{- if include "ipam-operator.monitors" (list $root $of $kind) -}}
apiVersion: monitoring.coreos.com/v1
kind: {{ $kind }}
metadata:
  name: {{ include "ipam-operator.fullname" $root }}
  namespace: {{ default (include "ipam-operator.namespace" $root) $of.namespace }}
  labels:
    {{- include "ipam-operator.labels" $root | nindent 4 }}
    {{- with $of.additionalLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  jobLabel: app.kubernetes.io/name
  {{- with $of.sampleLimit }}
  sampleLimit: {{ . }}
  {{- end }}
  namespaceSelector:
    matchNames: [{{ include "ipam-operator.namespace" $root }}]
  selector:
    matchLabels:
      {{- include "ipam-operator.selectorLabels" $root | nindent 6 }}
  {{ index . 3 }}:
    - {{- include "ipam-operator.endpoint" (list $root $of) | nindent 6 }}
{{- end -}}
{{- end }}
