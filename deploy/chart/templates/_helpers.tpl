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

{{/* Which processes a mode has. Empty text is false. */}}
{{- define "diem.usesKafka" -}}
{{- if or (not (has .Values.mode (list "single" "x-broadcast"))) (eq .Values.traffic.sink "kafka") }}true{{ end -}}
{{- end }}
{{- define "diem.hasServers" -}}
{{- if has .Values.mode (list "single" "x-broadcast" "x" "z-proxy" "z-client") }}true{{ end -}}
{{- end }}
{{- define "diem.hasBridges" -}}
{{- if has .Values.mode (list "x" "z-proxy" "z-client") }}true{{ end -}}
{{- end }}
{{- define "diem.hasMetadata" -}}
{{- if has .Values.mode (list "z-proxy" "z-client") }}true{{ end -}}
{{- end }}
{{- define "diem.hasComposites" -}}
{{- if has .Values.mode (list "z-composite" "xz") }}true{{ end -}}
{{- end }}

{{/* The kind of process to which clients connect. */}}
{{- define "diem.edge" -}}
{{- if eq .Values.mode "z-proxy" }}proxy{{ else if include "diem.hasComposites" . }}composite{{ else }}websocket{{ end -}}
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

{{/* Kinds of pods of this mode, by component, with what their NetworkPolicies need: ports by name. */}}
{{- define "diem.components" -}}
data: {public: 8080, internal: 9080}
{{- if eq .Values.mode "x-broadcast" }}
broadcast: {internal: 9300}
{{- end }}
{{- if include "diem.hasServers" . }}
websocket: {public: 8101, internal: 9101{{ if include "diem.hasBridges" . }}, bridge: 9201{{ end }}}
{{- end }}
{{- if include "diem.hasMetadata" . }}
metadata: {public: 8400, internal: 9400}
{{- end }}
{{- if eq .Values.mode "z-proxy" }}
proxy: {public: 8501, internal: 9501}
{{- end }}
{{- if include "diem.hasComposites" . }}
composite: {public: 8601, internal: 9601}
{{- end }}
{{- end }}

{{/* Errors in values that the schema cannot express, each in one line. */}}
{{- define "diem.validate" -}}
{{- $v := .Values -}}
{{- if not $v.url }}{{ fail "url: where browsers find the page, such as https://diem.example.com" }}{{ end -}}
{{- if and (include "diem.usesKafka" .) (not $v.kafka.bootstrapServers) }}{{ fail (printf "kafka.bootstrapServers: mode %s, or traffic.sink, needs Kafka" $v.mode) }}{{ end -}}
{{- if and (hasPrefix "SASL" $v.kafka.securityProtocol) (not (and $v.kafka.sasl.username $v.kafka.sasl.secret)) }}{{ fail "kafka.sasl: needs username and secret" }}{{ end -}}
{{- if and (eq $v.mode "z-client") (not $v.zClient.domain) }}{{ fail "zClient.domain: in mode z-client every pod needs a public name, POD.DOMAIN; without one choose z-proxy or xz" }}{{ end -}}
{{- if and (gt (int $v.data.replicas) 1) (not $v.data.postgres.secret) }}{{ fail "data.replicas: a stand-by needs PostgreSQL (data.postgres.secret): SQLite's store has one writer on one volume" }}{{ end -}}
{{- if and (gt (int $v.data.replicas) 1) (ne $v.data.persistence.accessMode "ReadWriteMany") }}{{ fail "data.persistence.accessMode: a stand-by needs ReadWriteMany, to sign client tokens with the same keys" }}{{ end -}}
{{- if and (ne $v.access.anonymous "on") (not $v.access.tokenKeys) (not (hasPrefix "https:" $v.url)) }}{{ fail "access: tokens are verified with keys from an https url: set access.tokenKeys, or access.anonymous=on" }}{{ end -}}
{{- if and $v.ingress.enabled (not $v.trustedProxies) }}{{ fail "trustedProxies: the networks of the ingress controller, such as [10.244.0.0/16]; without them all clients share the limits of its address: 50 connections" }}{{ end -}}
{{- if and (ne $v.autoscaling.kind "off") (not (has $v.mode (list "x-broadcast" "x" "z-proxy" "xz"))) }}{{ fail (printf "autoscaling.kind: not in mode %s" $v.mode) }}{{ end -}}
{{- if and (ne $v.autoscaling.kind "off") (not $v.metrics.enabled) }}{{ fail "autoscaling.kind: needs metrics.enabled, for the number of clients" }}{{ end -}}
{{- if and $v.pipeline.enabled (ne $v.traffic.sink "kafka") }}{{ fail "pipeline.enabled: needs traffic.sink=kafka" }}{{ end -}}
{{- if and $v.pipeline.plan.enabled (not (include "diem.hasMetadata" .)) }}{{ fail (printf "pipeline.plan.enabled: in mode %s no metadata service can be reached; z-proxy and z-client have one" $v.mode) }}{{ end -}}
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

{{/* A container that is one of DIEM's processes: `process`, `env` and `health`, the port of its health listener. */}}
{{- define "diem.process" -}}
{{ include "diem.container" . }}
args: [run, {{ .process }}]
env:
  {{- include "diem.env" . | nindent 2 }}
{{- /* Before there is a listener, a store may be migrated. */}}
startupProbe:
  httpGet: {path: /livez, port: {{ .health }}}
  periodSeconds: 2
  failureThreshold: 150
{{- /* Of a process that hangs: clients and endpoints have left it long before. */}}
livenessProbe:
  httpGet: {path: /livez, port: {{ .health }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ int (ceil (mulf 6 .root.Values.timeFactor)) }}
{{- /* A bridge is none of the reasons for which a server takes no clients: those of one without a feed are told so. */}}
{{- if ne .process "bridge" }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .health }}}
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

{{/*
Variables of a process, in which its `env` of the values comes last. A state directory is private, and a volume is open to the
group of the pod: the directory is one in the volume.
*/}}
{{- define "diem.env" -}}
{{- $v := .root.Values -}}
{{- $env := dict
  "DIEM_STATE_DIR" "/var/lib/diem/state"
  "DIEM_INTERNAL_KEY_FILE" "/run/secrets/diem/internal.key"
  "DIEM_HEALTH_HOST" $v.listen
  "DIEM_HEALTH_PORT" (.health | toString)
  "DIEM_DRAIN_SECONDS" ($v.drainSeconds | toString)
  "DIEM_TIME_FACTOR" ($v.timeFactor | toString)
  "DIEM_LOG_LEVEL" $v.logLevel
-}}
{{- $records := and (ne $v.traffic.sink "off") (has .process (list "data" "websocket" "proxy" "composite")) -}}
{{- if $records -}}
{{- $env = merge $env (dict "DIEM_TRAFFIC_SINK" $v.traffic.sink "DIEM_TRAFFIC_SALT_FILE" "/run/secrets/diem/traffic.salt") -}}
{{- end -}}
{{- if and $records (ne .process "composite") -}}
{{- $_ := set $env "DIEM_TRAFFIC_EDGE" "$(POD_NAME)" -}}
{{- end -}}
{{- if include "diem.needsKafka" . -}}
{{- $env = merge $env (include "diem.kafkaEnv" . | fromYaml) -}}
{{- end -}}
{{- include "diem.variables" (merge (dict) (index $v .process).env .env $env) -}}
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
{{- if include "diem.usesKafka" .root -}}
{{- if or (has .process (list "bridge" "metadata" "composite" "pipeline")) (and (eq .process "data") (not (has .root.Values.mode (list "single" "x-broadcast")))) (and (eq .root.Values.traffic.sink "kafka") (has .process (list "data" "websocket" "proxy"))) }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* The user of a process in Kafka. */}}
{{- define "diem.kafkaUser" -}}
{{- $sasl := .root.Values.kafka.sasl -}}
{{- toYaml (merge (dict) (get $sasl.users .process | default dict) (pick $sasl "username" "secret" "key")) -}}
{{- end }}

{{- define "diem.kafkaEnv" -}}
{{- $k := .root.Values.kafka -}}
DIEM_KAFKA_BOOTSTRAP_SERVERS: {{ $k.bootstrapServers | quote }}
DIEM_KAFKA_SECURITY_PROTOCOL: {{ $k.securityProtocol }}
DIEM_KAFKA_TOPIC_PREFIX: {{ $k.topicPrefix | quote }}
{{- with $k.partitions }}
DIEM_KAFKA_PARTITIONS: {{ . | quote }}
{{- end }}
{{- with $k.replication }}
DIEM_KAFKA_REPLICATION: {{ . | quote }}
{{- end }}
{{- if hasPrefix "SASL" $k.securityProtocol }}
DIEM_KAFKA_SASL_MECHANISM: {{ $k.sasl.mechanism }}
DIEM_KAFKA_SASL_USERNAME: {{ (include "diem.kafkaUser" . | fromYaml).username | quote }}
DIEM_KAFKA_SASL_PASSWORD_FILE: /run/secrets/kafka/password
{{- end }}
{{- if $k.tls.caSecret }}
DIEM_KAFKA_CA_FILE: /run/secrets/kafka/ca.crt
{{- end }}
{{- if $k.tls.clientSecret }}
DIEM_KAFKA_CERTIFICATE_FILE: /run/secrets/kafka/user.crt
DIEM_KAFKA_KEY_FILE: /run/secrets/kafka/user.key
{{- end }}
{{- end }}

{{/* Who may connect, for the processes that clients reach: `prefix` is that of the process's variables. */}}
{{- define "diem.clients" -}}
{{- $v := .root.Values -}}
{{ .prefix }}_ORIGINS: {{ include "diem.origins" .root | quote }}
{{ .prefix }}_ANONYMOUS: {{ $v.access.anonymous | quote }}
{{- if or $v.access.tokenKeys (hasPrefix "https:" $v.url) }}
{{ .prefix }}_TOKEN_KEYS: {{ $v.access.tokenKeys | default (list (printf "%s/v1/tokens/keys" $v.url)) | join "," | quote }}
{{- end }}
{{- if $v.trustedProxies }}
{{ .prefix }}_TRUSTED_PROXIES: {{ join "," $v.trustedProxies | quote }}
{{- end }}
{{- end }}

{{/*
What servers, proxies and composites have besides. A stand-by is not ready, so the name of the Data Service leads to the
pod that has the store.
*/}}
{{- define "diem.clientsData" -}}
{{ .prefix }}_ANONYMOUS_DATA: {{ .root.Values.access.anonymousReads | quote }}
{{ .prefix }}_READS_URL: http://{{ include "diem.name" .root }}-data-internal:9080/v1/keys/reads
{{- end }}

{{- define "diem.origins" -}}
{{- prepend .Values.access.origins .Values.url | join "," -}}
{{- end }}

{{- define "diem.host" -}}
{{- (urlParse .Values.url).host | splitList ":" | first -}}
{{- end }}

{{/* The address of an internal listener: others' business only where a mode needs it, or monitoring (`needed`). */}}
{{- define "diem.internalHost" -}}
{{- if or .needed .root.Values.metrics.enabled }}{{ .root.Values.listen }}{{ else }}127.0.0.1{{ end -}}
{{- end }}

{{/* Volumes of a pod with these `processes`, and where a container mounts them. */}}
{{- define "diem.volumes" -}}
{{- $keys := list "internal.key" -}}
{{- if has "data" .processes }}{{ $keys = append $keys "write.key" }}{{ end -}}
{{- if and (ne .root.Values.traffic.sink "off") (ne .component "metadata") }}{{ $keys = append $keys "traffic.salt" }}{{ end -}}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .root.Values.keys.secret }}
          items:
            {{- range $keys }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
      {{- /* Keys of roles, if there are any. */}}
      - secret:
          name: {{ .root.Values.keys.secret }}
          optional: true
          items:
            {{- range list "metrics.key" "feed.key" "metadata.key" }}
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
Services of a component: one for clients with its public `port`, and a headless one for other pods, which reach a
listener at its own address: what it has been dialled at is a part of the proof of the key.
*/}}
{{- define "diem.services" -}}
{{- with .port }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "diem.metadata" $ | nindent 2 }}
spec:
  selector:
    {{- include "diem.selector" $ | nindent 4 }}
  ports:
    - {name: http, port: {{ . }}, targetPort: public}
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
    - {name: internal, port: {{ .internal }}, targetPort: internal}
{{- end }}
