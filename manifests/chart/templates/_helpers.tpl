{{/* What is added to the names that a Kubernetes has once. */}}
{{- define "quorate.suffix" -}}
{{- if and .Values.name (not .Values.selector) }}{{ fail "name needs selector: without it, this release and another would both answer for every EtcdCluster" }}{{ end }}
{{- if has .Values.name (list "core" "leader") }}{{ fail (printf "name %s would take the names of rights of a release without a name: choose another one" .Values.name) }}{{ end }}
{{- with .Values.name }}-{{ . }}{{ end }}
{{- end }}

{{/* Labels that all objects have; name, version and part-of stand beside them. */}}
{{- define "quorate.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* A repository: its own value, or that of the release, from the registry if there is one. */}}
{{- define "quorate.repository" -}}
{{- if .own }}{{ .own }}{{ else if .registry }}{{ .registry }}/{{ regexReplaceAll "^[^/]*/" .default "" }}{{ else }}{{ .default }}{{ end }}
{{- end }}

{{/* An image: with tag and digest of the release, unless it has a tag or a digest of its own. */}}
{{- define "quorate.image" -}}
{{- $own := .own }}
{{- include "quorate.repository" (dict "own" $own.repository "registry" .registry "default" .default) }}
{{- with $own.tag | default (ternary "" .tag (not (empty $own.digest))) }}:{{ . }}{{ end }}
{{- with $own.digest | default (ternary .digest "" (empty $own.tag)) }}@{{ . }}{{ end }}
{{- end }}

{{/* The selector as the server takes it. */}}
{{- define "quorate.selector" -}}
{{- if ne (include "quorate.caller" .) "bearer" }}{{ fail "selector needs metacontroller.version 4.16 or later: older ones may not know spec.parentResource.labelSelector, and call the hooks for every EtcdCluster" }}{{ end }}
{{- $all := list }}
{{- range $key := keys .Values.selector | sortAlpha }}{{ $all = append $all (printf "%s=%s" $key (index $.Values.selector $key)) }}{{ end }}
{{- join "," $all }}
{{- end }}

{{/* What the policy asks of the host of an endpoint e: as quorate install does, and quorate serve by itself. */}}
{{- define "quorate.allowedEndpoints" -}}
{{- $host := "url(e).getHostname().lowerAscii()" }}
{{- $services := printf "%s.split('.').filter(l, l == 'svc').size()" $host }}
{{- $names := list }}{{ $networks := list }}{{ $all := list }}
{{- range .Values.allowedEtcdEndpoints | uniq | sortAlpha }}
{{- if regexMatch "(^|[.])svc([.]|$)" . }}{{ fail (printf "allowedEtcdEndpoints: %s can't be allowed by name: Services of the EtcdCluster's own namespace are allowed, others by the network of their addresses" .) }}{{ end }}
{{- if contains "/" . }}{{ $networks = append $networks . }}{{ else }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- if $names }}{{ $all = append $all (printf "%s == 0 && ['%s'].exists(n, %s == n || n.startsWith('.') && %s.endsWith(n))" $services (join "', '" $names) $host $host) }}{{ end }}
{{- if $networks }}
{{- $all = append $all (printf "%s == 1 && (%s + '.').contains('.' + request.namespace + '.svc.')" $services $host) }}
{{- $all = append $all (printf "isIP(%s) && ip(%s).isGlobalUnicast() && ['%s'].exists(n, cidr(n).containsIP(%s))" $host $host (join "', '" $networks) $host) }}
{{- end }}
{{- join " || " $all | default "false" }}
{{- end }}

{{/* The same in words. */}}
{{- define "quorate.allowedPlaces" -}}
{{- if .Values.allowedEtcdEndpoints }}at {{ .Values.allowedEtcdEndpoints | uniq | sortAlpha | join ", " }} alone{{ else }}nowhere{{ end }}
{{- end }}

{{/* Where Metacontroller is: beside Quorate if it is its own. */}}
{{- define "quorate.metacontrollerNamespace" -}}
{{- if .Values.metacontroller.enabled }}{{ .Release.Namespace }}{{ else }}{{ .Values.metacontroller.namespace }}{{ end }}
{{- end }}

{{/* How Metacontroller proves who it is: by a bearer token, by the password in the URL, or not at all. */}}
{{- define "quorate.caller" -}}
{{- $version := .Values.metacontroller.version }}
{{- if semverCompare ">=4.16.0-0" $version }}bearer{{ else if semverCompare ">=2.0.0-0" $version }}none{{ else }}basic{{ end }}
{{- end }}

{{/* Refuses a Metacontroller of its own that would not work, or would not be alone: it looks for others where they have brought the kinds. */}}
{{- define "quorate.own" -}}
{{- if .Values.metacontroller.enabled }}
{{- $version := .Values.metacontroller.version }}
{{- if semverCompare "<4.16.0-0" $version }}{{ fail (printf "metacontroller.enabled needs metacontroller.version 4.16.0 or later, not %s: for an older one that is there, set metacontroller.enabled to false" $version) }}{{ end }}
{{- if not (regexMatch "^v?[0-9]+[.][0-9]+[.][0-9]+$" $version) }}{{ fail (printf "metacontroller.enabled needs a whole metacontroller.version, such as 4.17.2, not %s: it is the tag of an image" $version) }}{{ end }}
{{- $kind := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "compositecontrollers.metacontroller.k8s.io" }}
{{- if and $kind (not (contains "\"caBundle\"" (toJson $kind))) }}{{ fail "Metacontroller's kinds are there, of a version before 4.16, and helm does not upgrade them: kubectl apply --server-side --force-conflicts -f crds/metacontroller.yaml (of this chart) first; the Metacontroller that is there works with them too" }}{{ end }}
{{- if and $kind (ne (dig "metadata" "labels" "app.kubernetes.io/part-of" "" $kind) "quorate") }}
{{- range $workloads := list "StatefulSet" "Deployment" }}
{{- range (lookup "apps/v1" $workloads "" "").items }}
{{- $name := dig "metadata" "labels" "app.kubernetes.io/name" "" . }}
{{- $elsewhere := ne .metadata.namespace $.Release.Namespace }}
{{- $runs := gt (int (dig "spec" "replicas" 1 .)) 0 }}
{{- $all := not (contains "--target-label-selector" (toJson .spec.template.spec.containers)) }}
{{- if and (has $name (list "metacontroller" "metacontroller-helm")) $elsewhere $runs $all }}
{{- fail (printf "%s %s/%s is a Metacontroller that would call Quorate too: to use it, set metacontroller.enabled to false and metacontroller.namespace to %s; or start it with --target-label-selector=!quorate.dev/installation, so that it serves others alone; or scale it to 0" $workloads .metadata.namespace .metadata.name .metadata.namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret that the server reads, and the one that Metacontroller 4.16 and later read. */}}
{{- define "quorate.hooksSecret" -}}{{ .Values.credentials.existingSecret | default "quorate-hooks" }}{{- end }}
{{- define "quorate.callerSecret" -}}{{ .Values.credentials.existingSecret | default "quorate-caller" }}{{- end }}

{{/* Certificate, token and the key of records: those of the Secret that is there, or new ones. They are made once for all templates, and held among the values. */}}
{{- define "quorate.credentials" -}}
{{- if not (hasKey .Values "quorateCredentials") }}
  {{- $c := dict "ca.crt" .Values.credentials.ca "tls.crt" "" "tls.key" "" "tokens" "" "records" "" }}
  {{- $found := lookup "v1" "Secret" .Release.Namespace (include "quorate.hooksSecret" .) | default dict }}
  {{- if $found }}
    {{- range list "ca.crt" "tls.crt" "tls.key" "tokens" "records" }}
      {{- $_ := set $c . (dig "data" . "" $found | b64dec) }}
    {{- end }}
  {{- else if not .Values.credentials.existingSecret }}
    {{- $host := printf "quorate.%s.svc" .Release.Namespace }}
    {{- $ca := genCAWithKey "quorate hooks" 3650 (genPrivateKey "ecdsa") }}
    {{- $pair := genSignedCertWithKey $host nil (list $host) 3650 $ca (genPrivateKey "ecdsa") }}
    {{- $c = dict "ca.crt" $ca.Cert "tls.crt" $pair.Cert "tls.key" $pair.Key "tokens" (printf "%s\n" (randAlphaNum 43)) "records" "" }}
  {{- end }}
  {{- if not (or (index $c "records") .Values.credentials.existingSecret) }}
    {{- $_ := set $c "records" (printf "%s\n" (randAlphaNum 43)) }}
  {{- end }}
  {{- $_ := set .Values "quorateCredentials" $c }}
{{- end }}
{{- end }}

{{/* One of them, by its key; what to do if it can't be had. */}}
{{- define "quorate.credential" -}}
{{- include "quorate.credentials" .root }}
{{- $value := index .root.Values.quorateCredentials .key }}
{{- if not $value }}{{ fail (printf "there is no %s: %s" .key .todo) }}{{ end }}
{{- $value }}
{{- end }}

{{/* The authority that Metacontroller is to trust. */}}
{{- define "quorate.ca" -}}
{{- include "quorate.credential" (dict "root" . "key" "ca.crt" "todo" (printf "make the Secret %s in namespace %s first, with ca.crt, tls.crt, tls.key and tokens; or where the chart is only rendered, set credentials.ca" .Values.credentials.existingSecret .Release.Namespace)) }}
{{- end }}

{{/* The token that Metacontroller sends: the last one. */}}
{{- define "quorate.token" -}}
{{- include "quorate.credential" (dict "root" . "key" "tokens" "todo" (printf "make the Secret %s in namespace %s first; Metacontroller before 4.16 needs its token in the URLs" .Values.credentials.existingSecret .Release.Namespace)) | trim | splitList "\n" | last }}
{{- end }}

{{/* What comes before the host in the URLs of the hooks. */}}
{{- define "quorate.user" -}}
{{- if eq (include "quorate.caller" .) "basic" }}quorate:{{ include "quorate.token" . }}@{{ end }}
{{- end }}

{{/* Metacontroller reads the token again, and the server's pods are replaced, when these change. */}}
{{- define "quorate.credentialsSum" -}}
{{- include "quorate.credentials" . }}
{{- printf "%s%s" (index .Values.quorateCredentials "tls.key") (index .Values.quorateCredentials "tokens") | sha256sum | trunc 16 }}
{{- end }}
{{- define "quorate.certificateSum" -}}
{{- include "quorate.credentials" . }}
{{- index .Values.quorateCredentials "tls.crt" | sha256sum | trunc 16 }}
{{- end }}
