package cluster

// What the tests of children/template.go write into a spec.

// emptyMeans are the fields where to say nothing is to say something.
var emptyMeans = map[string]string{
	"affinity":                     "that members need not be on different nodes",
	"storage.storageClassName":     "a volume of no class, instead of one of the default class",
	"storage.wal":                  "a volume for the write-ahead log",
	"storage.wal.size":             "the same",
	"storage.wal.storageClassName": "the same",
	"storage.hostPath":             "nothing that a cluster on another medium could follow",
	"storage.hostPath.nodes":       "none, which is refused",
	"bootstrap":                    "nothing once there is a cluster",
}

// defaultsSaid are the defaults that are no default in the CRD, but said in words; all ways to write them.
var defaultsSaid = map[string][]string{
	"upgradePolicy":     {`"OneMinor"`},
	"image.repository":  {`"gcr.io/etcd-development/etcd"`},
	"image":             {`{"pullPolicy":"IfNotPresent","pullSecrets":[]}`},
	"storage.size":      {`"1Gi"`, `"1073741824"`, `"1024Mi"`, `1073741824`},
	"storage.migration": {`"Never"`, `"Replace"`},
	"resources": {
		`{}`,
		`{"requests":{"cpu":"100m","memory":"256Mi"}}`,
		`{"requests":{"cpu":"0.1"}}`,
		`{"requests":{"memory":"268435456"},"limits":{}}`,
		`{"claims":[]}`,
	},
	"affinity": {
		`{"nodeAffinity":null,"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"etcd.quorate.dev/cluster":"demo"}}}}]}}`,
	},
	"topologySpreadConstraints": {
		`[{"maxSkew":1,"minDomains":1,"nodeAffinityPolicy":"Honor","nodeTaintsPolicy":"Ignore","topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]`,
	},
	"options.quotaBackendBytes":        {`805306368`},
	"options.snapshotCount":            {`10000`},
	"options.maxRequestBytes":          {`1572864`},
	"options.maxTxnOps":                {`128`},
	"options.autoCompaction.retention": {`"1h"`, `"60m"`, `"3600s"`, `"0h60m"`},
	"options": {
		`{"heartbeatInterval":"100ms","electionTimeout":"1s","logLevel":"info","autoCompaction":{"mode":"Periodic"}}`,
	},
	"auth":                                   {`{"enabled":false,"token":"JWT"}`},
	"auth.token":                             {`"JWT"`},
	"deletionPolicy":                         {`"Delete"`},
	"recovery.quorumLoss":                    {`"Manual"`},
	"memberReplacement.policy":               {`"Automatic"`},
	"maintenance.defragmentation.minReclaim": {`"100Mi"`, `"104857600"`},
	"tls.auto": {
		`{"leafDuration":"2160h","caDuration":"87600h"}`,
		`{"leafDuration":"129600m"}`,
	},
	"tls.auto.leafDuration": {`"2160h"`, `"7776000s"`},
	"tls": {
		`{"mode":"Auto","minVersion":"TLS1.2","cipherSuites":[],"extraSANs":[]}`,
	},
	"networkPolicy":              {`{"mode":"Managed"}`},
	"schedulerName":              {`"default-scheduler"`},
	"securityContext":            {`{"idPolicy":"Fixed","seccompProfile":{"type":"RuntimeDefault"},"fsGroupChangePolicy":"OnRootMismatch"}`},
	"securityContext.runAsUser":  {`10001`},
	"securityContext.runAsGroup": {`10001`},
	"securityContext.fsGroup":    {`10001`},
	"tolerations":                {`null`},
}

// others are values that fields don't have by default, for those where any value of their type will not do.
var others = map[string]string{
	"replicas":                                        "4", // can't be changed
	"storage.medium":                                  "",  // can't be changed
	"tls.mode":                                        "",  // can't be changed
	"storage.hostPath.nodes":                          `["a","b","c","e"]`,
	"selfHosted":                                      "", // needs others
	"additionalMetadata.labels":                       `{"a":"b"}`,
	"additionalMetadata.annotations":                  `{"a":"b"}`,
	"tls.extraSANs":                                   `["a.example"]`,
	"auth.roles":                                      `[{"name":"a"}]`,
	"auth.users":                                      `[]`,
	"networkPolicy.clients":                           `{}`,
	"networkPolicy.metrics":                           `{}`,
	"memberReplacement.policy":                        `"Manual"`,
	"maintenance.defragmentation.schedule":            `"0 3 * * *"`,
	"maintenance.windows":                             `[{"schedule":"0 3 * * *","duration":"4h"}]`,
	"storage.migration":                               `"Replace"`,
	"deletionPolicy":                                  `"Retain"`,
	"recovery.quorumLoss":                             `"FromSurvivor"`,
	"bootstrap.snapshot":                              `{"artifact":"x.db","store":{"s3":{"bucket":"b"}}}`,
	"upgradePolicy":                                   `"Step"`,
	"securityContext.idPolicy":                        `"Platform"`,
	"securityContext.fsGroupChangePolicy":             `"Always"`,
	"securityContext.supplementalGroups":              `[7]`,
	"securityContext.seLinuxOptions.type":             `"container_t"`,
	"securityContext.seLinuxOptions.level":            `"s0:c1,c2"`,
	"securityContext.seccompProfile":                  `{"type":"Localhost","localhostProfile":"etcd.json"}`,
	"securityContext.seccompProfile.type":             "", // needs the other
	"securityContext.seccompProfile.localhostProfile": "",
	"image.repository":                                `"quay.io/coreos/etcd"`,
	"image.pullPolicy":                                `"Always"`,
	"image.pullSecrets":                               `[{"name":"pull"}]`,
	"resources":                                       `{"limits":{"memory":"2Gi"}}`,
	"affinity":                                        `{}`,
	"nodeSelector":                                    `{"disk":"fast"}`,
	"tolerations":                                     `[{"operator":"Exists"}]`,
	"topologySpreadConstraints":                       `[{"maxSkew":2,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}]`,
	"options.quotaBackendBytes":                       "268435456",
	"options.heartbeatInterval":                       `"50ms"`,
	"options.electionTimeout":                         `"5s"`,
	"options.logLevel":                                `"warn"`,
	"clientService.type":                              `"NodePort"`,
	"clientService.annotations":                       `{"a":"b"}`,
	"clientService.nodePort":                          "", // needs a type
	"clientService.loadBalancerClass":                 "",
	"clientService.loadBalancerSourceRanges":          "",
	"clientService.externalTrafficPolicy":             "",
	"clientService.ipFamilyPolicy":                    `"PreferDualStack"`,
	"clientService.ipFamilies":                        `["IPv4"]`,
	"options.extraArgs":                               `{"metrics":"extensive"}`,
	"options.autoCompaction.mode":                     `"Off"`,
	"options.autoCompaction.retention":                `"2h"`,
	"tls.minVersion":                                  `"TLS1.3"`,
	"tls.clientAuth":                                  "", // needs auth, in etcd too
	"tls.cipherSuites":                                `["TLS_A"]`,
	"auth.token":                                      `"Simple"`,
}

// restarts are the fields that members are restarted for, or succeeded: all others must not be.
var restarts = []string{
	"image.repository",
	"image.pullPolicy",
	"image.pullSecrets",
	"resources",
	"affinity",
	"nodeSelector",
	"tolerations",
	"topologySpreadConstraints",
	"priorityClassName",
	"schedulerName",
	"runtimeClassName",
	"securityContext.idPolicy",
	"securityContext.runAsUser",
	"securityContext.runAsGroup",
	"securityContext.fsGroup",
	"securityContext.fsGroupChangePolicy",
	"securityContext.supplementalGroups",
	"securityContext.seLinuxOptions.type",
	"securityContext.seLinuxOptions.level",
	"securityContext.seccompProfile",
	"options.quotaBackendBytes",
	"options.snapshotCount",
	"options.heartbeatInterval",
	"options.electionTimeout",
	"options.maxRequestBytes",
	"options.maxTxnOps",
	"options.logLevel",
	"options.extraArgs",
	"options.autoCompaction.mode",
	"options.autoCompaction.retention",
	"tls.allowPlaintextClients",
	"tls.minVersion",
	"tls.cipherSuites",
	"auth.token",
}
