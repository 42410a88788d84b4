{{- /* One section for each object of ours, named by its path. A type that several others have gets its section once, by
its name, and tables link it; so do they link what Kubernetes defines. status.internal is no part of the API. */ -}}
{{- define "section" -}}
{{- $path := .path -}}
{{- $type := .type -}}
{{- if or (eq $type.Kind 4) (eq $type.Kind 5) }}{{ $type = $type.UnderlyingType }}{{ end -}}
{{- if and $type.Fields (contains "quorate" $type.Package) (or .here (lt (len $type.References) 2)) }}
### {{ $path }}

{{ template "prose" $type.Doc }}

| Field | Type | Default | Meaning |
| --- | --- | --- | --- |
{{ range $type.Fields -}}{{ if ne .Name "internal" -}}
| `{{ .Name }}` | {{ template "typeName" .Type }} | {{ if and .Default (not (contains "{" .Default)) }}`{{ .Default }}`{{ end }} | {{ template "meaning" . }} |
{{ end }}{{ end }}
{{- template "refusals" $type -}}
{{- range $type.Fields -}}{{ if ne .Name "internal" -}}
{{- template "section" dict "path" (printf "%s.%s%s" $path .Name (eq .Type.Kind 5 | ternary "[]" "")) "type" .Type "here" false -}}
{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "typeName" -}}
{{- $type := . -}}
{{- if and (eq $type.Kind 4) $type.UnderlyingType (contains "quorate" $type.UnderlyingType.Package) }}{{ $type = $type.UnderlyingType }}{{ end -}}
{{- if and (eq $type.Kind 5) $type.UnderlyingType }}list of {{ $type = $type.UnderlyingType }}{{ end -}}
{{- if eq $type.Kind 3 }}map of strings
{{- else if and (contains "quorate" $type.Package) (eq $type.Kind 0) }}string
{{- else if and (contains "quorate" $type.Package) $type.Fields (gt (len $type.References) 1) }}[{{ $type.Name }}](#{{ $type.Name | trimSuffix "Spec" | lower }})
{{- else if and (contains "quorate" $type.Package) $type.Fields }}object
{{- else }}{{ markdownRenderType $type }}{{ end -}}
{{- end -}}

{{- /* Prose as Markdown: what is in <angle brackets> would be taken for HTML, but for code. */ -}}
{{- define "prose" -}}
{{- $escaped := replace "<" "&lt;" . -}}
{{- range $i := until 4 }}{{ $escaped = regexReplaceAll "(`[^`\n]*)&lt;([^`\n]*`)" $escaped "${1}<${2}" }}{{ end -}}
{{- $escaped -}}
{{- end -}}

{{- define "meaning" -}}
{{- if not .Doc }}{{ .Name | title }}.{{ end -}}
{{- template "prose" (.Doc | replace "\n" " " | replace "|" "\\|") -}}
{{- if has "Required: {}" .Validation }} Required.{{ end -}}
{{- range index .Markers "kubebuilder:validation:Minimum" }} At least {{ printf "%.0f" . }}.{{ end -}}
{{- range index .Markers "kubebuilder:validation:Maximum" }} At most {{ printf "%.0f" . }}.{{ end -}}
{{- range index .Markers "kubebuilder:validation:MaxLength" }} At most {{ . }} characters.{{ end -}}
{{- if and .Type.EnumValues (contains "quorate" .Type.Package) }}{{ range .Type.EnumValues }}<br/>`{{ .Name }}`{{ .Doc | replace "\n" " " | trim | regexFind " .*" }}{{ end -}}
{{- else }}{{ range .Validation }}{{ if hasPrefix "Enum: " . }} One of {{ . | trimPrefix "Enum: [" | trimSuffix "]" | replace " " ", " }}.{{ end }}{{ end }}{{ end -}}
{{- if not .Type.Fields }}{{ template "inlineRefusals" . }}{{ end -}}
{{- end -}}

{{- define "inlineRefusals" -}}
{{- range index .Markers "kubebuilder:validation:XValidation" }}<br/>Refused: {{ .Message | replace "|" "\\|" | replace "<" "&lt;" }}.{{ end -}}
{{- end -}}

{{- define "refusals" -}}
{{- with index .Markers "kubebuilder:validation:XValidation" }}
The API server refuses, with these words:

{{ range . }}- {{ .Message | replace "<" "&lt;" }}.
{{ end }}{{ end -}}
{{- end -}}
