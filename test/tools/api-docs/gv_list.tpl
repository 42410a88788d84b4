{{- define "gvList" -}}
# API reference

Made from the Go types in `hooks/api` by `make generate`; a change belongs there.

{{ range . }}{{ template "gvDetails" . }}{{ end -}}
{{- end -}}
