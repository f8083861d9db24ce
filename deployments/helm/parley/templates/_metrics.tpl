{{/* The port of the settings' [metrics]; fails where they have none, or no token for a monitor. */}}
{{- define "parley.metrics.port" -}}
{{- $settings := include "parley.settings" . | fromJson -}}
{{- if not $settings.metrics }}{{ fail "metrics: the settings have no [metrics] with a port" }}{{ end -}}
{{- if not $settings.metrics.token_hash }}
{{- fail "metrics: [metrics] of the settings lacks token_hash, as parley-party token prints it" }}
{{- end -}}
{{- int $settings.metrics.port -}}
{{- end -}}

{{/* The variables by which the metrics are reached from outside of the pod; the settings stay as join wrote them. */}}
{{- define "parley.metrics.environment" -}}
{{- if .Values.metrics.enabled -}}
{{- $prefix := printf "PARLEY_%s_METRICS__" (upper .Values.role) -}}
- {name: {{ $prefix }}HOST, value: "0.0.0.0"}
- {name: {{ $prefix }}PLAIN_HTTP, value: "true"}
{{- end -}}
{{- end -}}

{{/* The ports of a container: a learner's, and that of the metrics. */}}
{{- define "parley.ports" -}}
{{- $settings := include "parley.settings" . | fromJson -}}
{{- if eq .Values.role "learner" }}
- {name: api, containerPort: {{ int $settings.port }}}
{{- end }}
{{- if .Values.metrics.enabled }}
- {name: metrics, containerPort: {{ include "parley.metrics.port" . }}}
{{- end }}
{{- end -}}
