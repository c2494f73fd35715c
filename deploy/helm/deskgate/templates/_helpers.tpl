{{- define "deskgate.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name }}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* What the pods are selected by: it never changes. */ -}}
{{- define "deskgate.selector" -}}
app.kubernetes.io/name: deskgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deskgate.labels" -}}
{{ include "deskgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "deskgate.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "deskgate.config" -}}
{{ .Values.config | default (.Files.Get "files/deskgate.toml") }}
{{- end }}

{{- /* The data of the ConfigMap with the rules. */ -}}
{{- define "deskgate.rules" -}}
{{- if .Values.rules }}
{{- toYaml .Values.rules }}
{{- else }}
{{- (.Files.Glob "files/rules/*.toml").AsConfig }}
{{- end }}
{{- end }}
