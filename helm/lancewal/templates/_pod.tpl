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

{{- define "lancewal.placement" -}}
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
{{- end -}}

{{- define "lancewal.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- $table := $settings.table -}}
{{- if and $table.topic (not $settings.kafka.topics) -}}
{{- $letters := $table.dead_letter_topic | default (printf "%s.dead-letters" $table.topic) -}}
{{- $_ := set $settings.kafka "topics" (list $table.topic $letters) -}}
{{- end -}}
lancewal.yaml: |
  {{- toYaml $settings | nindent 2 }}
{{- end -}}
