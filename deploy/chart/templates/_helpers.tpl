{{/* Names. A name that ends in -N numbers a process, so pods have those of their StatefulSets. */}}
{{- define "diem.name" -}}
{{- $release := ternary .Release.Name (printf "%s-diem" .Release.Name) (contains "diem" .Release.Name) -}}
{{- trunc 40 $release | trimSuffix "-" -}}
{{- end }}

{{- define "diem.selector" -}}
app.kubernetes.io/name: diem
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "diem.labels" -}}
{{ include "diem.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "diem.metadata" -}}
name: {{ include "diem.name" .root }}-{{ .component }}
labels:
  {{- include "diem.labels" . | nindent 2 }}
{{- end }}

{{/* The processes of the mode, from modes.json, which DIEM's table of modes writes: ports, groups of settings, variables. */}}
{{- define "diem.processes" -}}
{{- $table := .Files.Get "modes.json" | fromJson -}}
{{- $found := dict -}}
{{- range $process, $own := index $table.modes .Values.mode -}}
{{- if and (eq $.Values.traffic.sink "kafka") (has "traffic" $own.groups) -}}
{{- $_ := set $own "groups" (append $own.groups "kafka" | uniq) -}}
{{- end -}}
{{- $_ := set $found $process (merge $own (index $table.processes $process) (dict "env" (index $table.settings $process))) -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* Whether the mode has a process, for `root` and `process`. Empty text is false. */}}
{{- define "diem.has" -}}
{{- if hasKey (include "diem.processes" .root | fromJson) .process }}true{{ end -}}
{{- end }}

{{/* The kind of process to which clients connect. */}}
{{- define "diem.edge" -}}
{{- range $process, $own := omit (include "diem.processes" . | fromJson) "data" "metadata" }}{{ if $own.serves }}{{ $process }}{{ end }}{{ end -}}
{{- end }}

{{- define "diem.health" -}}
{{ ternary 8089 8088 (eq . "bridge") }}
{{- end }}

{{/* Whether `replicas` of this kind are left to an autoscaler. */}}
{{- define "diem.autoscaled" -}}
{{- if and (ne .root.Values.autoscaling.kind "off") (eq .component (include "diem.edge" .root)) }}true{{ end -}}
{{- end }}

{{/* Pods of a kind that there are, or will be with an autoscaler. */}}
{{- define "diem.replicas" -}}
{{- if include "diem.autoscaled" . }}{{ .root.Values.autoscaling.minReplicas }}
{{- else if or (has .component (list "broadcast" "metadata")) (and (eq .component "websocket") (eq .root.Values.mode "single")) (and (eq .component "composite") (eq .root.Values.mode "z-composite")) }}1
{{- else }}{{ (index .root.Values .component).replicas }}
{{- end -}}
{{- end }}

{{/* Errors in values that the schema cannot express, each in one line. */}}
{{- define "diem.validate" -}}
{{- $v := .Values -}}
{{- if not $v.url }}{{ fail "url: where browsers find the page, such as https://diem.example.com" }}{{ end -}}
{{- if and (include "diem.needsKafka" (dict "root" . "process" "data")) (not $v.kafka.bootstrapServers) }}{{ fail (printf "kafka.bootstrapServers: mode %s, or traffic.sink, needs Kafka" $v.mode) }}{{ end -}}
{{- if and (hasPrefix "SASL" $v.kafka.securityProtocol) (not (and $v.kafka.sasl.username $v.kafka.sasl.secret)) }}{{ fail "kafka.sasl: needs username and secret" }}{{ end -}}
{{- if and (eq $v.mode "z-client") (not $v.zClient.domain) }}{{ fail "zClient.domain: in mode z-client every pod needs a public name, POD.DOMAIN; without one choose z-proxy or xz" }}{{ end -}}
{{- if and (gt (int $v.data.replicas) 1) (not $v.data.postgres.secret) }}{{ fail "data.replicas: a stand-by needs PostgreSQL (data.postgres.secret): SQLite's store has one writer on one volume" }}{{ end -}}
{{- if and (gt (int $v.data.replicas) 1) (ne $v.data.persistence.accessMode "ReadWriteMany") }}{{ fail "data.persistence.accessMode: a stand-by needs ReadWriteMany, to sign client tokens with the same keys" }}{{ end -}}
{{- if and (ne $v.access.anonymous "on") (not $v.access.tokenKeys) (not (hasPrefix "https:" $v.url)) }}{{ fail "access: tokens are verified with keys from an https url: set access.tokenKeys, or access.anonymous=on" }}{{ end -}}
{{- if and $v.ingress.enabled (not $v.trustedProxies) }}{{ fail "trustedProxies: the networks of the ingress controller, such as [10.244.0.0/16]; without them all clients share the limits of its address: 50 connections" }}{{ end -}}
{{- if and (ne $v.autoscaling.kind "off") (not (has $v.mode (list "x-broadcast" "x" "z-proxy" "xz"))) }}{{ fail (printf "autoscaling.kind: not in mode %s" $v.mode) }}{{ end -}}
{{- if and (ne $v.autoscaling.kind "off") (not $v.metrics.enabled) }}{{ fail "autoscaling.kind: needs metrics.enabled, for the number of clients" }}{{ end -}}
{{- if and $v.pipeline.enabled (ne $v.traffic.sink "kafka") }}{{ fail "pipeline.enabled: needs traffic.sink=kafka" }}{{ end -}}
{{- if and $v.pipeline.plan.enabled (not (include "diem.has" (dict "root" . "process" "metadata"))) }}{{ fail (printf "pipeline.plan.enabled: in mode %s no metadata service can be reached; z-proxy and z-client have one" $v.mode) }}{{ end -}}
{{- end }}

{{/* Head of a pod's spec. */}}
{{- define "diem.pod" -}}
{{- $v := .root.Values -}}
enableServiceLinks: false
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ add (ceil (mulf $v.drainSeconds $v.timeFactor)) $v.preStopSeconds 10 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  # Group of the files of Secrets (mode 0440), and of volumes.
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
affinity:
  podAntiAffinity:
    {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "diem.selector" . | fromYaml)) }}
    {{- if eq $v.antiAffinity "required" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      {{- list $term | toYaml | nindent 6 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      {{- list (dict "weight" 100 "podAffinityTerm" $term) | toYaml | nindent 6 }}
    {{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "diem.selector" . | nindent 8 }}
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Labels and annotations of a pod, without versions: pods are replaced when what they run or read at the start changes. */}}
{{- define "diem.podMetadata" -}}
labels:
  {{- include "diem.selector" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $annotations := .root.Values.podAnnotations }}
{{- if eq .component "data" }}
{{- $annotations = merge (dict "checksum/config" (sha256sum .root.Values.data.config)) $annotations }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "diem.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* A container without privileges; `process`. */}}
{{- define "diem.container" -}}
image: {{ .image | default (include "diem.image" .root) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources:
  {{- toYaml (index .root.Values .process).resources | nindent 2 }}
{{- end }}

{{/* A container that is one of DIEM's processes: `process`. */}}
{{- define "diem.process" -}}
{{- $health := include "diem.health" .process -}}
{{ include "diem.container" . }}
args: [run, {{ .process }}]
env:
  {{- include "diem.env" . | nindent 2 }}
{{- /* Before there is a listener, a store may be migrated. */}}
startupProbe:
  httpGet: {path: /livez, port: {{ $health }}}
  periodSeconds: 2
  failureThreshold: 150
{{- /* Of a process that hangs: clients and endpoints have left it long before. */}}
livenessProbe:
  httpGet: {path: /livez, port: {{ $health }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ int (ceil (mulf 6 .root.Values.timeFactor)) }}
{{- /* A bridge is none of the reasons for which a server takes no clients: those of one without a feed are told so. */}}
{{- if ne .process "bridge" }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ $health }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}
{{- if and (has .process (list "websocket" "proxy" "composite")) (gt (int .root.Values.preStopSeconds) 0) }}
lifecycle:
  preStop:
    sleep: {seconds: {{ .root.Values.preStopSeconds }}}
{{- end }}
{{- end }}

{{/* Variables of a process, in which its `env` of the values comes last. */}}
{{- define "diem.env" -}}
{{- $settings := (.root.Files.Get "modes.json" | fromJson).settings -}}
{{- $own := index (include "diem.processes" .root | fromJson) .process -}}
{{- $texts := $own.env -}}
{{- range $own.groups }}{{ $texts = merge $texts (index $settings .) }}{{ end -}}
{{- $env := include "diem.rendered" (dict "root" .root "process" .process "texts" $texts) | fromJson -}}
{{- include "diem.variables" (merge (dict) (index .root.Values .process).env $env) -}}
{{- end }}

{{/* The values of the templates `texts` for a `process`, but for empty ones, as JSON. */}}
{{- define "diem.rendered" -}}
{{- $context := merge (dict "root" .root "process" .process) (pick .root "Values" "Release" "Chart" "Template") -}}
{{- $found := dict -}}
{{- range $name, $text := .texts -}}
{{- with tpl $text $context }}{{ $_ := set $found $name . }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* A list of variables from a mapping, with those of the pod before those that use them. */}}
{{- define "diem.variables" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Whether a process connects to Kafka itself. */}}
{{- define "diem.needsKafka" -}}
{{- $own := index (include "diem.processes" .root | fromJson) .process | default dict -}}
{{- if or (eq .process "pipeline") (has "kafka" ($own.groups | default list)) }}true{{ end -}}
{{- end }}

{{/* The user of a process in Kafka. */}}
{{- define "diem.kafkaUser" -}}
{{- $sasl := .root.Values.kafka.sasl -}}
{{- toYaml (merge (dict) (get $sasl.users .process | default dict) (pick $sasl "username" "secret" "key")) -}}
{{- end }}

{{/* Where the keys of tokens are read. */}}
{{- define "diem.tokenKeys" -}}
{{- if or .Values.access.tokenKeys (hasPrefix "https:" .Values.url) -}}
{{- .Values.access.tokenKeys | default (list (printf "%s/v1/tokens/keys" .Values.url)) | join "," -}}
{{- end -}}
{{- end }}

{{/* Where pages find servers, and in z-client the metadata service. */}}
{{- define "diem.servers" -}}
{{- $servers := list (dict "url" (printf "%s/ws" (regexReplaceAll "^http" .Values.url "ws"))) -}}
{{- if eq .Values.mode "z-client" -}}
{{- $servers = list -}}
{{- range until (int .Values.websocket.replicas) -}}
{{- $servers = append $servers (dict "url" (printf "wss://%s-websocket-%d.%s/ws" (include "diem.name" $) . $.Values.zClient.domain)) -}}
{{- end -}}
{{- end -}}
{{- toJson $servers -}}
{{- end }}
{{- define "diem.metadataServices" -}}
{{- ternary (list (dict "url" (printf "https://metadata.%s/v1" .Values.zClient.domain))) list (eq .Values.mode "z-client") | toJson -}}
{{- end }}

{{- define "diem.maxPairs" -}}
{{- ternary .Values.composite.pairs (max .Values.composite.pairs .Values.composite.maxPairs) (eq .Values.mode "xz") -}}
{{- end }}

{{- define "diem.origins" -}}
{{- prepend .Values.access.origins .Values.url | join "," -}}
{{- end }}

{{- define "diem.host" -}}
{{- (urlParse .Values.url).host | splitList ":" | first -}}
{{- end }}

{{/* Names by which the Data Service is reached. */}}
{{- define "diem.hosts" -}}
{{- $name := printf "%s-data" (include "diem.name" .) -}}
{{- concat (list (include "diem.host" .) $name (printf "%s.%s.svc" $name .Release.Namespace)) .Values.data.hosts | join "," -}}
{{- end }}

{{/*
Volumes of a pod with these `processes`, and where a container mounts them. The internal key of the Data Service makes API
keys, and that of the metadata service takes plans. Other pods have the key of feeds as theirs, which opens no more there.
*/}}
{{- define "diem.volumes" -}}
{{- $own := get (dict "data" "internal.key" "metadata" "plans.key" "pipeline" "plans.key") .component | default "feed.key" -}}
{{- $keys := list "metrics.key" -}}
{{- if has "data" .processes }}{{ $keys = concat $keys (list "feed.key" "write.key") }}{{ end -}}
{{- if and (has .component (list "metadata" "proxy" "websocket")) (include "diem.has" (dict "root" .root "process" "metadata")) }}{{ $keys = append $keys "metadata.key" }}{{ end -}}
{{- if and (ne .root.Values.traffic.sink "off") (ne .component "metadata") }}{{ $keys = append $keys "traffic.salt" }}{{ end -}}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .root.Values.keys.secret }}
          items:
            - {key: {{ $own }}, path: internal.key}
            {{- range $keys }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
- name: tmp
  {{- /* Spark sorts on disk there. */}}
  emptyDir: { {{- if ne .component "pipeline" }}sizeLimit: 1Gi{{ end }}}
{{- range $process := .processes }}
{{- if include "diem.needsKafka" (dict "root" $.root "process" $process) }}
{{ include "diem.kafkaVolume" (dict "root" $.root "process" $process) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "diem.kafkaVolume" -}}
{{- $k := .root.Values.kafka -}}
{{- $user := include "diem.kafkaUser" . | fromYaml -}}
{{- $hasSasl := hasPrefix "SASL" $k.securityProtocol -}}
{{- if or $hasSasl $k.tls.caSecret $k.tls.clientSecret -}}
- name: kafka-{{ .process }}
  projected:
    defaultMode: 0440
    sources:
      {{- if $hasSasl }}
      - secret: {name: {{ $user.secret }}, items: [{key: {{ $user.key }}, path: password}]}
      {{- end }}
      {{- with $k.tls.caSecret }}
      - secret: {name: {{ . }}, items: [{key: {{ $k.tls.caKey }}, path: ca.crt}]}
      {{- end }}
      {{- with $k.tls.clientSecret }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $k.tls.certificateKey }}, path: user.crt}, {key: {{ $k.tls.privateKey }}, path: user.key}]
      {{- end }}
{{- end -}}
{{- end }}

{{- define "diem.mounts" -}}
- {name: keys, mountPath: /run/secrets/diem, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if include "diem.needsKafka" . }}
{{- if include "diem.kafkaVolume" . }}
- {name: kafka-{{ .process }}, mountPath: /run/secrets/kafka, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "diem.claim" -}}
accessModes: [{{ .accessMode }}]
{{- with .storageClass }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end }}

{{/*
Services of a component, with `own` as in modes.json: one for clients, and a headless one for other pods, which reach a
listener at its own address: what it has been dialled at is a part of the proof of the key.
*/}}
{{- define "diem.services" -}}
{{- if .own.serves }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "diem.metadata" . | nindent 2 }}
spec:
  selector:
    {{- include "diem.selector" . | nindent 4 }}
  ports:
    - {name: http, port: {{ .own.public }}, targetPort: public}
{{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "diem.metadata" (dict "root" .root "component" (printf "%s-internal" .component)) | nindent 2 }}
spec:
  clusterIP: None
  {{- /* Servers are dialled before they are ready, by who makes them so. */}}
  publishNotReadyAddresses: {{ eq .component "websocket" }}
  selector:
    {{- include "diem.selector" . | nindent 4 }}
  ports:
    - {name: internal, port: {{ .own.internal }}, targetPort: internal}
{{- end }}
