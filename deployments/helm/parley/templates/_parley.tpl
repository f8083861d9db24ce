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
{{- if eq $values.role "party" -}}
{{- if or (not $values.study) (not (isAbs (default "" $settings.study))) -}}
{{- fail "study: give the file by --set-file study=..., and its absolute path in the settings" -}}
{{- end -}}
{{- if or (not $values.data.claim) (not $values.data.path) }}{{ fail "data: a party needs claim and path" }}{{ end -}}
{{- $path := trimSuffix "/" $values.data.path -}}
{{- $source := dig "data" "source" "" $settings -}}
{{- if and (isAbs $source) (ne $source $path) (not (hasPrefix (printf "%s/" $path) $source)) -}}
{{- fail (printf "data: the settings' source is not in %s" $path) -}}
{{- end -}}
{{- if hasPrefix (printf "%s/" $path) $settings.state -}}
{{- fail (printf "data: %s holds the party's own folder; name the table itself, and its subPath in the claim" $path) -}}
{{- end -}}
{{- end -}}
{{- toJson $settings -}}
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
