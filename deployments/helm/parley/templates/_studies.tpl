{{/* The files of studies, as a list of their keys in the ConfigMap, texts, and paths; fails where the settings name another. */}}
{{- define "parley.studies" -}}
{{- $values := index . 0 }}{{ $settings := index . 1 }}{{ $files := list }}{{ $names := list -}}
{{- if eq $values.role "learner" -}}
{{- range $name, $text := $values.studies -}}
{{- $path := printf "%s/%s.json" $settings.studies $name -}}
{{- $files = append $files (dict "key" (printf "study.%s.json" $name) "text" $text "path" $path) -}}
{{- end -}}
{{- else if eq $values.role "keyholder" -}}
{{- if or $values.study $values.studies }}{{ fail "study: a keyholder has no study" }}{{ end -}}
{{- else -}}
{{- $entries := default list $settings.studies -}}
{{- if not (kindIs "slice" $entries) }}{{ fail "settings: studies of a party are tables: [[studies]]" }}{{ end -}}
{{- if and $values.study $entries (not $settings.study) -}}
{{- fail "study: the settings have [[studies]]: give each file by --set-file studies.NAME=..." -}}
{{- end -}}
{{- if or (ne (not $values.study) (not $settings.study)) (not (or $settings.study $entries)) (not (isAbs (default "/" $settings.study))) -}}
{{- fail "study: give the file by --set-file study=..., and its absolute path in the settings" -}}
{{- end -}}
{{- with $settings.study }}{{ $files = append $files (dict "key" "study.json" "text" $values.study "path" .) }}{{ end -}}
{{- range $entry := $entries -}}
{{- $name := default "" $entry.name }}{{ $path := default "" $entry.study }}{{ $file := trimSuffix ".json" (base $path) -}}
{{- if not $name }}{{ fail "settings: a study of [[studies]] has no name" }}{{ end -}}
{{- if has $name $names }}{{ fail (printf "settings: two studies are called %s" $name) }}{{ end -}}
{{- $names = append $names $name -}}
{{- if not (and (isAbs $path) (hasSuffix ".json" $path)) -}}
{{- fail (printf "settings: study of %s is no absolute path of a file .json" $name) -}}
{{- end -}}
{{- if not (get $values.studies $file) -}}
{{- fail (printf "studies: give the file of %s by --set-file studies.%s=..." $name (replace "." "\\." $file)) -}}
{{- end -}}
{{- range $files }}{{ if or (eq .path $path) (eq .key (printf "study.%s.json" $file)) -}}
{{- fail (printf "settings: two studies have a file %s.json: give one another name" $file) -}}
{{- end }}{{ end -}}
{{- $files = append $files (dict "key" (printf "study.%s.json" $file) "text" (get $values.studies $file) "path" $path) -}}
{{- end -}}
{{- range $name := keys $values.studies | sortAlpha -}}
{{- $key := printf "study.%s.json" $name }}{{ $named := false -}}
{{- range $files }}{{ if eq .key $key }}{{ $named = true }}{{ end }}{{ end -}}
{{- if not $named }}{{ fail (printf "studies: no study of the settings has the file %s.json" $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Fails where a file of a party's data is not mounted, or a database's connection string or way is missing. */}}
{{- define "parley.data" -}}
{{- $values := index . 0 }}{{ $settings := index . 1 }}{{ $sources := list }}{{ $files := list }}{{ $strings := list -}}
{{- if $settings.study }}{{ $sources = list (dict "of" "the settings" "data" $settings.data) }}{{ end -}}
{{- range default list $settings.studies }}{{ $sources = append $sources (dict "of" .name "data" .data) }}{{ end -}}
{{- range $source := $sources -}}
{{- $data := default dict $source.data -}}
{{- if not $data.source }}{{ fail (printf "settings: the data of %s has no source" $source.of) }}{{ end -}}
{{- range $table := default dict $data.tables -}}
{{- if kindIs "string" $table -}}
{{- $files = append $files (dict "of" $source.of "path" $table) -}}
{{- else -}}
{{- $strings = append $strings $table.postgres -}}
{{- end -}}
{{- end -}}
{{- if not $data.tables }}{{ $files = append $files (dict "of" $source.of "path" $data.source) }}{{ end -}}
{{- end -}}
{{- $data := $values.data }}{{ $path := trimSuffix "/" $data.path }}{{ $mounted := list -}}
{{- range $values.volumeMounts }}{{ $mounted = append $mounted (trimSuffix "/" .mountPath) }}{{ end -}}
{{- if ne (not $data.claim) (not $path) }}{{ fail "data: claim and path go together" }}{{ end -}}
{{- if and $files (not $path) (not $mounted) -}}
{{- fail "data: a party needs claim and path, unless all tables of its query are in PostgreSQL" -}}
{{- end -}}
{{- if and $path (hasPrefix (printf "%s/" $path) $settings.state) -}}
{{- fail (printf "data: %s holds the party's own folder; name the table itself, and its subPath in the claim" $path) -}}
{{- end -}}
{{- $seen := $mounted }}{{ if $path }}{{ $seen = append $mounted $path }}{{ end -}}
{{- range $file := $files -}}
{{- include "parley.mounted" (list $file.path $seen (printf "data: the source of %s" $file.of)) -}}
{{- end -}}
{{- range $string := $strings -}}
{{- $where := regexReplaceAll "^(env|file):" $string "" -}}
{{- if hasPrefix "file:" $string -}}
{{- include "parley.mounted" (list $where (append $mounted (printf "%s/secrets" (dir $settings.state))) "data: a connection string's file") -}}
{{- else if not (or $values.envFrom (has $where (include "parley.names" $values | fromJsonArray))) -}}
{{- fail (printf "env: %s, of a connection string, is missing: take it from a Secret by valueFrom" $where) -}}
{{- end -}}
{{- end -}}
{{- if and $strings (lt (len $values.reaches) 2) }}{{ fail "reaches: name the database too" }}{{ end -}}
{{- end -}}

{{/* Fails where settings name a folder in "secrets", as of a further learner, and no Secret is given for it, or the reverse. */}}
{{- define "parley.further" -}}
{{- $values := index . 0 }}{{ $settings := index . 1 }}{{ $folders := list -}}
{{- $inside := printf "%s/secrets/" (dir $settings.state) -}}
{{- range $address := default list $settings.outbound -}}
{{- range $file := list $address.token_file $address.ca $address.key $address.proxy_password_file -}}
{{- $rest := trimPrefix $inside (default "" $file) -}}
{{- if and (hasPrefix $inside (default "" $file)) (contains "/" $rest) -}}
{{- $folder := first (splitList "/" $rest) }}{{ $folders = append $folders $folder -}}
{{- if not (get $values.secrets $folder) -}}
{{- fail (printf "secrets: name the Secret of secrets/%s, where the settings have what %s gave" $folder $address.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $folder := keys $values.secrets | sortAlpha -}}
{{- if not (has $folder $folders) }}{{ fail (printf "secrets: the settings have nothing in secrets/%s" $folder) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Fails where an absolute path is in none of the folders; the message says whose it is. */}}
{{- define "parley.mounted" -}}
{{- $path := first (splitList "::" (index . 0)) }}{{ $folders := index . 1 }}{{ $ok := not (isAbs $path) -}}
{{- range $folders }}{{ if or (eq $path .) (hasPrefix (printf "%s/" .) $path) }}{{ $ok = true }}{{ end }}{{ end -}}
{{- if not $ok }}{{ fail (printf "%s is not in %s" (index . 2) (join ", " $folders)) }}{{ end -}}
{{- end -}}

{{/* The names of the extra variables, as a list. */}}
{{- define "parley.names" -}}
{{- $names := list }}{{ range .env }}{{ $names = append $names .name }}{{ end }}{{ toJson $names -}}
{{- end -}}
