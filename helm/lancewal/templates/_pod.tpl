{{- /* What all pods have in common.  Argument of each: the root, as `.`. */ -}}

{{- define "lancewal.podSecurity" -}}
# A Service called lancewal would give every pod of the namespace LANCEWAL_SERVICE_HOST and LANCEWAL_PORT: settings that
# do not exist, and so an error at the start.
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "lancewal.container" -}}
image: {{ include "lancewal.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: settings
    mountPath: /etc/lancewal/settings
    readOnly: true
  - name: tmp
    mountPath: /tmp
  {{- if .Values.secrets }}
  - name: secrets
    mountPath: /etc/lancewal/secrets
    readOnly: true
  {{- end }}
  {{- $volumes := list "settings" "secrets" "tmp" }}
  {{- range .Values.extraVolumes }}
  {{- $volumes = append $volumes .name }}
  {{- end }}
  {{- range .Values.extraVolumeMounts }}
  {{- if not (has .name $volumes) }}
  {{- fail (printf "extraVolumeMounts: no volume is called %s.  Add it to extraVolumes." .name) }}
  {{- end }}
  - {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lancewal.env" -}}
- name: LANCEWAL_CONFIG
  value: /etc/lancewal/settings/lancewal.yaml
{{- if .Values.secrets }}
- name: LANCEWAL_SECRETS_DIR
  value: /etc/lancewal/secrets
{{- end }}
{{- range .Values.extraEnv }}
- name: {{ .name }}
  {{- if .valueFrom }}
  valueFrom: {{- toYaml .valueFrom | nindent 4 }}
  {{- else }}
  value: {{ .value | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "lancewal.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmpSizeLimit }}
{{- if .Values.secrets }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range .Values.secrets }}
      - secret:
          name: {{ .name }}
          {{- with .items }}
          items: {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lancewal.probes" -}}
ports:
  - name: metrics
    containerPort: {{ . }}
# A start may take long: it reads the log of the regions that it takes over.
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- /* Arguments: root and component, which names a section of the values. */ -}}
{{- define "lancewal.placement" -}}
{{- $selector := include "lancewal.selector" . -}}
{{- with index .root.Values .component -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels: {{- $selector | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with .extraInitContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A number of bytes (512MiB) or a quantity (512Mi) as a number. */ -}}
{{- define "lancewal.bytes" -}}
{{- $text := kindIs "string" . | ternary . (int64 . | toString) -}}
{{- $unit := regexFind "[A-Za-z]*$" $text | trimSuffix "B" -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "K" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $factors = merge $factors (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (index $factors $unit) | printf "%.0f" -}}
{{- end -}}

{{- /* The resources of a component, whose limit of memory must hold its budget.  Arguments: root, component, setting, default. */ -}}
{{- define "lancewal.resources" -}}
{{- $resources := (index .root.Values .component).resources -}}
{{- $limit := dig "limits" "memory" "" $resources -}}
{{- $budget := dig .component .setting .default .root.Values.settings -}}
{{- if $limit -}}
{{- $least := addf (include "lancewal.bytes" $budget | float64) 314572800 -}}
{{- if lt (include "lancewal.bytes" $limit | float64) $least -}}
{{- $texts := list -}}
{{- range list $limit $budget -}}
{{- $texts = append $texts (kindIs "string" . | ternary . (int64 . | toString)) -}}
{{- end -}}
{{- $cause := printf "the process takes settings.%s.%s (%s) and some 300 MiB" .component .setting (last $texts) -}}
{{- fail (printf "%s.resources.limits.memory (%s) is too small: %s.  Raise the limit or lower the setting." .component (first $texts) $cause) -}}
{{- end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "lancewal.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $table := $settings.table -}}
{{- $_ := required "settings.table.uri is needed, such as s3://bucket/prefix" $table.uri -}}
{{- $_ := required "settings.kafka.bootstrap_servers is needed, such as kafka-0.kafka:9092" $settings.kafka.bootstrap_servers -}}
{{- if and $table.topic (not $settings.kafka.topics) -}}
{{- $letters := $table.dead_letter_topic | default (printf "%s.dead-letters" $table.topic) -}}
{{- $_ := set $settings.kafka "topics" (list $table.topic $letters) -}}
{{- end -}}
lancewal.yaml: |
  {{- toYaml $settings | nindent 2 }}
{{- end -}}
