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
{{- $listen := dig "server" "listen" "[::]:9094" .Values.config -}}
{{- regexFind "[0-9]+$" $listen }}
{{- end }}

{{/* What changes only with a restart; everything else is followed live and must not restart the pods, for that would begin every timer anew. */}}
{{- define "ipam-operator.restartConfig" -}}
{{- $config := .Values.config -}}
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
