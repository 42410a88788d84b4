{{- define "gvDetails" -}}
{{- $gv := . -}}
{{- range $gv.SortedKinds -}}
{{- $kind := $gv.TypeForKind . -}}
{{- if not (hasSuffix "List" $kind.Name) -}}
## {{ $kind.Name }}

`apiVersion: {{ $gv.GroupVersionString }}`

{{ $kind.Doc }}
{{ template "refusals" $kind }}
{{ range $kind.Members }}{{ template "section" dict "path" .Name "type" .Type }}{{ end }}
{{- end -}}
{{- end -}}
{{- end -}}
