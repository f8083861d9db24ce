{{/* The settings, read; fails where they are no TOML, hold a secret, or do not fit what is given with them. */}}
{{- define "parley.settings" -}}
{{- $values := .Values -}}
{{- $settings := fromToml $values.settings -}}
{{- if hasKey $settings "Error" }}{{ fail "settings: not a TOML file" }}{{ end -}}
{{- $secret := "(^|[\\s{,])[\"']?(secret|identity_key|token|password|proxy_password)[\"']?\\s*=" -}}
{{- if or (regexMatch $secret $values.settings) (contains "PRIVATE KEY" $values.settings) -}}
{{- fail "settings: there is a secret in them; name its file instead, under a key that ends in _file" -}}
{{- end -}}
{{- range $key := list "name" "state" "port" -}}
{{- if not (hasKey $settings $key) }}{{ fail (printf "settings: %s is missing" $key) }}{{ end -}}
{{- end -}}
{{- if not (isAbs $settings.state) }}{{ fail "settings: state is no absolute path" }}{{ end -}}
{{- if eq $values.role "learner" -}}
{{- if hasKey $settings "learners" }}{{ fail "settings: these are not a learner's" }}{{ end -}}
{{- if and $values.studies (not (isAbs (default "" $settings.studies))) -}}
{{- fail "settings: studies is no absolute path" -}}
{{- end -}}
{{- else -}}
{{- if not (hasKey $settings "learners") }}{{ fail (printf "settings: these are not a %s's" $values.role) }}{{ end -}}
{{- if ne (eq $values.role "party") (hasKey $settings "policy") -}}
{{- fail (printf "settings: these are not a %s's" $values.role) -}}
{{- end -}}
{{- if not $settings.outbound }}{{ fail "settings: outbound is missing: nothing reaches the service here" }}{{ end -}}
{{- if not $values.reaches }}{{ fail "reaches: name the learner, or the proxy on the way to it" }}{{ end -}}
{{- end -}}
{{- $_ := include "parley.studies" (list $values $settings) -}}
{{- if eq $values.role "party" -}}
{{- include "parley.data" (list $values $settings) -}}
{{- else if $values.data.claim -}}
{{- fail (printf "data: a %s has no table" $values.role) -}}
{{- end -}}
{{- include "parley.further" (list $values $settings) -}}
{{- include "parley.own" $values -}}
{{- toJson $settings -}}
{{- end -}}

{{/* Fails where an extra variable holds a secret, or a value would change what the chart relies on. */}}
{{- define "parley.own" -}}
{{- range .volumes -}}
{{- if or (hasPrefix "further-" .name) (has .name (list "config" "given" "begin" "secrets" "scratch" "data" "state")) -}}
{{- fail (printf "volumes: %s is the chart's own: choose another name" .name) -}}
{{- end -}}
{{- end -}}
{{- range $label := concat (keys .labels) (keys .podLabels) -}}
{{- if regexMatch "^app[.]kubernetes[.]io/(name|instance|component)$" $label -}}
{{- fail (printf "labels: %s is the chart's own: choose another" $label) -}}
{{- end -}}
{{- end -}}
{{- range .env -}}
{{- if and .value (regexMatch "(?i)(secret|token|password|headers|dsn|identity_key)$" .name) -}}
{{- fail (printf "env: %s is a secret: take it from a Secret by valueFrom" .name) -}}
{{- end -}}
{{- if regexMatch "(?i)^PARLEY_(PARTY|KEYHOLDER|LEARNER)_(STATE|PORT|HOST|HEARTBEAT|STUDY|STUDIES|DATA|OUTBOUND)" .name -}}
{{- fail (printf "env: the chart reads the settings for what %s says: say it there" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels and annotations of an object, and those that the values give all. */}}
{{- define "parley.metadata" -}}
name: {{ .Release.Name }}
labels: {{- include "parley.labels" . | nindent 2 }}
{{- with .Values.labels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .Values.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What all that belongs to a release is known by. */}}
{{- define "parley.labels" -}}
app.kubernetes.io/name: parley
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.role }}
{{- end -}}

{{/* The service's program and its words, as a list. */}}
{{- define "parley.command" -}}
{{- $words := dict "party" (list "parley-party") "keyholder" (list "parley-party" "keyholder") "learner" (list "parley-learner") -}}
{{- toJson (get $words .Values.role) -}}
{{- end -}}

{{/* What a container may do: nothing but compute, and write where a volume is. */}}
{{- define "parley.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
