{{- define "gvDetails" -}}
{{- $gv := . -}}
{{- range $gv.SortedKinds -}}
{{- $kind := $gv.TypeForKind . -}}
{{- if not (hasSuffix "List" $kind.Name) -}}
## {{ $kind.Name }}

`apiVersion: {{ $gv.GroupVersionString }}`

{{ template "prose" $kind.Doc }}
{{ template "refusals" $kind }}
{{ range $kind.Members }}{{ template "section" dict "path" .Name "type" .Type "here" true }}{{ end }}
{{ end -}}
{{- end -}}
## What several of them have

{{ range $gv.SortedTypes -}}
{{- if and (gt (len .References) 1) .Fields (not (hasSuffix "Spec" .Name)) -}}
{{ template "section" dict "path" .Name "type" . "here" true }}
{{ end -}}
{{- end -}}
{{- end -}}
