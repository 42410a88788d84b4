package manifests

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
)

// cluster is an EtcdCluster of this name with this spec, in YAML's flow style.
func cluster(t *testing.T, name, spec string) map[string]any {
	t.Helper()
	return parse(t, fmt.Sprintf(`{apiVersion: etcd.quorate.dev/v1alpha1, kind: EtcdCluster, metadata: {name: %q, namespace: default}, spec: %s}`, name, spec))
}

func TestRefused(t *testing.T) {
	k := etcdCluster(t)
	for _, c := range []struct{ reason, name, spec, want string }{
		{"no version", "", `{}`, "spec.version: Required"},
		{"no size is a size of 0", "", `{version: 3.6.16, storage: {size: 0}}`, "storage.size must be at least 128Mi"},
		{"size 0", "", `{version: 3.6.16, storage: {size: "0"}}`, "storage.size must be at least 128Mi"},
		{"negative size", "", `{version: 3.6.16, storage: {size: -1Gi}}`, "storage.size must be at least 128Mi"},
		{"size below two files of the log", "", `{version: 3.6.16, storage: {size: 127Mi}}`, "two files of 64 MB"},
		{"size of megabytes in plain digits", "", `{version: 3.6.16, storage: {size: 1024}}`,
			"storage.size must be at least 128Mi"},
		{"size that is no quantity", "", `{version: 3.6.16, storage: {size: 1GB}}`, "spec.storage.size"},
		{"unknown medium", "", `{version: 3.6.16, storage: {medium: Disk}}`,
			`supported values: "Persistent", "Memory", "HostPath"`},
		{"no nodes", "", `{version: 3.6.16, storage: {medium: HostPath}}`,
			"storage.hostPath and the medium HostPath need each other"},
		{"nodes for claims", "", `{version: 3.6.16, storage: {hostPath: {path: /data, nodes: [a, b, c]}}}`,
			"storage.hostPath and the medium HostPath need each other"},
		{"too few nodes", "", `{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b]}}}`,
			"fewer nodes than replicas"},
		{"a node twice", "", `{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, a]}}}`, "Duplicate value"},
		{"no name of a node", "",
			`{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, "c:d"]}}}`,
			"nodes[2]"},
		{"path from here", "", `{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: data, nodes: [a, b, c]}}}`, "must be an absolute path"},
		{"path with steps up", "",
			`{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data/../etc, nodes: [a, b, c]}}}`,
			"must be an absolute path"},
		{"class of a directory", "",
			`{version: 3.6.16, storage: {medium: HostPath, storageClassName: x, hostPath: {path: /data, nodes: [a, b, c]}}}`, "can't be used with the medium HostPath"},
		{"log of a directory", "",
			`{version: 3.6.16, storage: {medium: HostPath, wal: {}, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			"can't be used with the medium HostPath"},
		{"migration of a directory", "",
			`{version: 3.6.16, storage: {medium: HostPath, migration: Replace, hostPath: {path: /data, nodes: [a, b, c]}}}`, "can't be used with the medium HostPath"},
		{"class for a tmpfs", "", `{version: 3.6.16, storage: {medium: Memory, storageClassName: ssd}}`,
			"storageClassName can't be used with the medium Memory"},
		{"log of a tmpfs", "", `{version: 3.6.16, storage: {medium: Memory, wal: {size: 1Gi}}}`,
			"storage.wal can't be used with the medium Memory"},
		{"log without room", "", `{version: 3.6.16, storage: {wal: {size: 256Mi}}}`,
			"storage.wal.size must be at least 512Mi"},
		{"paused tmpfs", "", `{version: 3.6.16, replicas: 0, storage: {medium: Memory}}`,
			"it can't be paused with replicas 0"},

		{"leading v", "", `{version: v3.6.16}`, "version must be x.y.z, such as 3.6.16, without a leading v"},
		{"no patch level", "", `{version: "3.6"}`, "version must be x.y.z"},
		{"YAML number", "", `{version: 3.6}`, "spec.version: Invalid value"},
		{"suffix", "", `{version: 3.6.16-rc.0}`, "version must be x.y.z"},
		{"empty", "", `{version: ""}`, "version must be x.y.z"},
		{"too long to be one", "", `{version: 3.6.16000000000000000}`, "may not be more than 16"},
		{"too old", "", `{version: 3.4.30}`, "Quorate runs etcd 3.5, 3.6 and 3.7"},
		{"too new", "", `{version: 3.8.0}`, "Quorate runs etcd 3.5, 3.6 and 3.7"},
		{"4", "", `{version: 4.6.16}`, "Quorate runs etcd 3.5, 3.6 and 3.7"},
		{"3.5 with membership bugs", "", `{version: 3.5.25}`, "use 3.5.26 or later"},
		{"3.6 with membership bugs", "", `{version: 3.6.3}`, "use 3.6.4 or later"},

		{"fewer than none", "", `{version: 3.6.16, replicas: -1}`, "greater than or equal to 0"},
		{"more than nine", "", `{version: 3.6.16, replicas: 10}`, "less than or equal to 9"},

		{"election timeout below five heartbeats", "", `{version: 3.6.16, options: {heartbeatInterval: 300ms}}`,
			"options.electionTimeout must be at least 5 times"},
		{"one millisecond below", "", `{version: 3.6.16, options: {electionTimeout: 499ms}}`,
			"options.electionTimeout must be at least 5 times"},
		{"quota above 95 % of the volume", "",
			`{version: 3.6.16, storage: {size: 1Gi}, options: {quotaBackendBytes: 1020054734}}`,
			"more than 95 % of storage.size"},
		{"quota above 95 % of the default volume", "", `{version: 3.6.16, options: {quotaBackendBytes: 1073741824}}`,
			"more than 95 % of storage.size"},
		{"compaction by a duration of revisions", "",
			`{version: 3.6.16, options: {autoCompaction: {mode: Revision, retention: 1h}}}`, "a number of revisions"},
		{"compaction by a number of hours", "", `{version: 3.6.16, options: {autoCompaction: {retention: "5"}}}`,
			"retention is a duration"},
		{"schedule of four fields", "", `{version: 3.6.16, maintenance: {defragmentation: {schedule: "0 3 * *"}}}`,
			"schedule has five fields"},
		{"schedule with a time zone", "",
			`{version: 3.6.16, maintenance: {defragmentation: {schedule: "TZ=UTC 0 3 * * *"}}}`,
			"schedule has five fields"},
		{"schedule by a word", "", `{version: 3.6.16, maintenance: {defragmentation: {schedule: "@weekly"}}}`,
			"schedule has five fields"},
		{"window of four fields", "",
			`{version: 3.6.16, maintenance: {windows: [{schedule: "0 2 * *", duration: 4h}]}}`,
			"maintenance.windows.schedule has five fields"},
		{"window without a schedule", "", `{version: 3.6.16, maintenance: {windows: [{schedule: "", duration: 4h}]}}`,
			"maintenance.windows.schedule has five fields"},
		{"window of minutes", "", `{version: 3.6.16, maintenance: {windows: [{schedule: "0 2 * * 6", duration: 9m}]}}`,
			"maintenance.windows.duration must be between 10m and 168h"},
		{"window of more than a week", "",
			`{version: 3.6.16, maintenance: {windows: [{schedule: "0 2 * * 6", duration: 169h}]}}`,
			"maintenance.windows.duration must be between 10m and 168h"},
		{"window that never closes", "", `{version: 3.6.16, maintenance: {windows: [{schedule: "0 2 * * 6"}]}}`,
			"spec.maintenance.windows[0].duration"},
		{"window in no zone", "",
			`{version: 3.6.16, maintenance: {windows: [{schedule: "0 2 * * 6", duration: 4h, timeZone: "../x$"}]}}`,
			"spec.maintenance.windows[0].timeZone"},
		{"seventeen windows", "", `{version: 3.6.16, maintenance: {windows: [` +
			strings.Repeat(`{schedule: "0 2 * * 6", duration: 4h},`, 17) + `]}}`, "spec.maintenance.windows"},
		{"free part of more than all", "",
			`{version: 3.6.16, maintenance: {defragmentation: {fragmentationPercent: 101}}}`,
			"less than or equal to 100"},
		{"log level", "", `{version: 3.6.16, options: {logLevel: trace}}`, `supported values: "debug"`},
		{"empty repository", "", `{version: 3.6.16, image: {repository: ""}}`, "spec.image.repository"},
		{"pull policy", "", `{version: 3.6.16, image: {pullPolicy: Sometimes}}`, "spec.image.pullPolicy"},

		{"a flag of Quorate's", "", `{version: 3.6.16, options: {extraArgs: {initial-cluster: x}}}`,
			"options.extraArgs has a flag that belongs to Quorate"},
		{"a flag with dashes", "", `{version: 3.6.16, options: {extraArgs: {--metrics: basic}}}`,
			"without -- and without experimental-"},
		{"a flag of 3.5's", "", `{version: 3.5.35, options: {extraArgs: {experimental-corrupt-check-time: 1h}}}`,
			"without -- and without experimental-"},
		{"a flag with blanks", "", `{version: 3.6.16, options: {extraArgs: {metrics: "a b"}}}`, "extraArgs.metrics"},
		{"a flag that came later", "", `{version: 3.5.35, options: {extraArgs: {log-format: json}}}`,
			"which etcd 3.5 does not know"},
		{"a node's port within", "", `{version: 3.6.16, clientService: {nodePort: 30379}}`,
			"nodePort needs the type NodePort or LoadBalancer"},
		{"traffic from within", "", `{version: 3.6.16, clientService: {type: ClusterIP, externalTrafficPolicy: Local}}`,
			"externalTrafficPolicy needs the type"},
		{"a class of node ports", "", `{version: 3.6.16, clientService: {type: NodePort, loadBalancerClass: a}}`,
			"need the type LoadBalancer"},
		{"a network that is none", "",
			`{version: 3.6.16, clientService: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/33]}}`,
			"use a network such as 10.1.0.0/16"},
		{"two families on one stack", "", `{version: 3.6.16, clientService: {ipFamilies: [IPv4, IPv6]}}`,
			"has two families"},
		{"a family twice", "",
			`{version: 3.6.16, clientService: {ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv4]}}`,
			"names a family twice"},
		{"an annotation of ours", "", `{version: 3.6.16, clientService: {annotations: {etcd.quorate.dev/x: y}}}`,
			"reserved for Quorate"},
		{"members without a domain", "", `{version: 3.6.16, memberService: {type: NodePort}}`, "memberService.domain"},
		{"members without a type", "", `{version: 3.6.16, memberService: {domain: etcd.example.com}}`,
			"memberService.type"},
		{"members within", "", `{version: 3.6.16, memberService: {type: ClusterIP, domain: etcd.example.com}}`,
			"memberService.type"},
		{"members at an address", "", `{version: 3.6.16, memberService: {type: NodePort, domain: 10.0.0.1}}`,
			"memberService.domain"},
		{"members at a URL", "", `{version: 3.6.16, memberService: {type: NodePort, domain: "https://example.com"}}`,
			"memberService.domain"},
		{"members of a class of node ports", "",
			`{version: 3.6.16, memberService: {type: NodePort, domain: a.example, loadBalancerClass: a}}`,
			"need the type LoadBalancer"},
		{"members of one name", "",
			`{version: 3.6.16, memberService: {type: NodePort, domain: a.example, annotations: {external-dns.alpha.kubernetes.io/hostname: x}}}`,
			"which Quorate sets to each member's own name"},
		{"an annotation of ours on members' Services", "",
			`{version: 3.6.16, memberService: {type: NodePort, domain: a.example, annotations: {etcd.quorate.dev/x: y}}}`,
			"reserved for Quorate"},
		{"root", "", `{version: 3.6.16, securityContext: {runAsUser: 0}}`, "greater than or equal to 1"},
		{"a group below all", "", `{version: 3.6.16, securityContext: {supplementalGroups: [-1]}}`,
			"greater than or equal to 1"},
		{"a type of SELinux's", "", `{version: 3.6.16, securityContext: {seLinuxOptions: {type: spc_t}}}`,
			`supported values: "container_t"`},
		{"no seccomp", "", `{version: 3.6.16, securityContext: {seccompProfile: {type: Unconfined}}}`,
			`supported values: "RuntimeDefault", "Localhost"`},
		{"seccomp of no name", "", `{version: 3.6.16, securityContext: {seccompProfile: {type: Localhost}}}`,
			"needs a localhostProfile"},
		{"another owner of a directory", "",
			`{version: 3.6.16, securityContext: {fsGroup: 7}, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			"can't choose users and groups with the medium HostPath"},
		{"a platform's owner of a directory", "",
			`{version: 3.6.16, securityContext: {idPolicy: Platform}, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			"can't choose users and groups with the medium HostPath"},

		{"own certificates without their names", "", `{version: 3.6.16, tls: {mode: Secrets}}`,
			"tls.mode Secrets needs tls.secrets"},
		{"cert-manager without an issuer", "", `{version: 3.6.16, tls: {mode: CertManager}}`,
			"tls.mode CertManager needs tls.certManager"},
		{"plain text twice", "", `{version: 3.6.16, tls: {mode: Disabled, allowPlaintextClients: true}}`,
			"remove tls.allowPlaintextClients"},
		{"passwords in plain text", "", `{version: 3.6.16, tls: {allowPlaintextClients: true}, auth: {enabled: true}}`,
			"auth can't be enabled while"},
		{"unknown mode", "", `{version: 3.6.16, tls: {mode: "On"}}`, `supported values: "Auto"`},
		{"suites of TLS 1.3", "",
			`{version: 3.6.16, tls: {minVersion: TLS1.3, cipherSuites: [TLS_AES_128_GCM_SHA256]}}`,
			"whose suites can't be chosen"},
		{"leaf of seconds", "", `{version: 3.6.16, tls: {auto: {leafDuration: 59s}}}`,
			"leafDuration must be at least 1m"},
		{"authority that hardly outlives a leaf", "",
			`{version: 3.6.16, tls: {auto: {leafDuration: 24h, caDuration: 47h}}}`,
			"caDuration must be at least twice leafDuration"},
		{"duration in days", "", `{version: 3.6.16, tls: {auto: {leafDuration: 90d}}}`, "leafDuration"},

		{"revision that goes back", "", `{version: 3.6.16, recovery: {bumpRevision: -1}}`,
			"greater than or equal to 0"},
		{"the same of a snapshot", "",
			`{version: 3.6.16, bootstrap: {snapshot: {snapshotRef: {name: a}, bumpRevision: -1}}}`,
			"greater than or equal to 0"},

		{"data from two places", "",
			`{version: 3.6.16, bootstrap: {snapshot: {snapshotRef: {name: a}}, claims: {names: [data-a-0]}}}`,
			"bootstrap has one of snapshot, existing and claims"},
		{"a claim twice", "", `{version: 3.6.16, bootstrap: {claims: {names: [data-a-0, data-a-0]}}}`,
			"bootstrap.claims.names has a claim twice"},
		{"no claim", "", `{version: 3.6.16, bootstrap: {claims: {names: []}}}`, "should have at least 1 items"},
		{"a claim that is none", "", `{version: 3.6.16, bootstrap: {claims: {names: [$(KEY)]}}}`,
			"spec.bootstrap.claims.names[0]"},
		{"a path out of the volume", "", `{version: 3.6.16, bootstrap: {claims: {names: [a], path: a/../..}}}`,
			"spec.bootstrap.claims.path"},
		{"a path from the root", "", `{version: 3.6.16, bootstrap: {claims: {names: [a], path: /etc}}}`,
			"spec.bootstrap.claims.path"},
		{"claims for memory", "",
			`{version: 3.6.16, storage: {medium: Memory}, bootstrap: {claims: {names: [a]}}}`,
			"bootstrap.claims needs storage.medium Persistent"},

		{"annotation of ours", "",
			`{version: 3.6.16, additionalMetadata: {annotations: {note: x, etcd.quorate.dev/initial-cluster: x}}}`,
			"spec.additionalMetadata.annotations: Invalid value: keys of etcd.quorate.dev/ are reserved for Quorate"},
		{"label of ours", "", `{version: 3.6.16, additionalMetadata: {labels: {etcd.quorate.dev/quarantined: "true"}}}`,
			"spec.additionalMetadata.labels: Invalid value: keys of etcd.quorate.dev/ are reserved for Quorate"},

		{"label's key that no object may have", "", `{version: 3.6.16, additionalMetadata: {labels: {"two words": x}}}`,
			"spec.additionalMetadata.labels: Invalid value: use at most 63 letters"},
		{"label's key with two slashes", "", `{version: 3.6.16, additionalMetadata: {labels: {a/b/c: x}}}`,
			"'_' and '.' in a label's key"},
		{"label's key of 64", "", `{version: 3.6.16, additionalMetadata: {labels: {` + strings.Repeat("n", 64) +
			`: x}}}`, "'_' and '.' in a label's key"},
		{"label's value that no object may have", "",
			`{version: 3.6.16, additionalMetadata: {labels: {team: two words}}}`,
			"spec.additionalMetadata.labels.team"},
		{"label's value of 64", "", `{version: 3.6.16, additionalMetadata: {labels: {team: ` + strings.Repeat("n", 64) +
			`}}}`, "may not be more than 63"},
		{"annotation's key that no object may have", "",
			`{version: 3.6.16, additionalMetadata: {annotations: {"-x": note}}}`,
			"'_' and '.' in an annotation's key"},
		{"memory that etcd can't live with", "", `{version: 3.6.16, resources: {limits: {memory: 10Mi}}}`,
			"resources.limits.memory must be at least 32Mi"},
		{"memory in milli", "", `{version: 3.6.16, resources: {limits: {memory: 1000m}}}`,
			"resources.limits.memory must be at least 32Mi"},

		{"name of 49", strings.Repeat("n", 49), `{version: 3.6.16}`, "the name is too long"},
		{"name of another cluster's peer Service", "demo-peers", `{version: 3.6.16}`,
			"would collide with the peer Service"},
		{"name that is no Service name: digit", "3etcd", `{version: 3.6.16}`, "the name becomes the name of a Service"},
		{"name that is no Service name: dot", "a.b", `{version: 3.6.16}`, "the name becomes the name of a Service"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			if c.name == "" {
				c.name = "demo"
			}
			errs := k.admit(cluster(t, c.name, c.spec), nil)
			if len(errs) == 0 {
				t.Fatalf("admitted: %s", c.spec)
			}
			if text := errs.ToAggregate().Error(); !strings.Contains(text, c.want) {
				t.Errorf("refused with\n\t%s\nwant\n\t%s", text, c.want)
			}
		})
	}
}

func TestAdmitted(t *testing.T) {
	k := etcdCluster(t)
	for _, c := range []struct{ reason, name, spec, want string }{
		{"a version is enough", "", `{version: 3.6.16}`,
			`{version: 3.6.16, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}}`},
		{"null is unset", "", `{version: 3.6.16, replicas: null, storage: {size: null}}`,
			`{version: 3.6.16, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}}`},
		{"a load balancer", "",
			`{version: 3.6.16, clientService: {type: LoadBalancer, annotations: {a.b/c: d}, nodePort: 30379, loadBalancerClass: a.b/c, loadBalancerSourceRanges: [10.0.0.0/8, "2001:db8::/32"], externalTrafficPolicy: Local, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4], appProtocol: kubernetes.io/h2c}}`,
			`{version: 3.6.16, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, clientService: {type: LoadBalancer, annotations: {a.b/c: d}, nodePort: 30379, loadBalancerClass: a.b/c, loadBalancerSourceRanges: [10.0.0.0/8, "2001:db8::/32"], externalTrafficPolicy: Local, ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6, IPv4], appProtocol: kubernetes.io/h2c}}`},
		{"members outside", "",
			`{version: 3.6.16, memberService: {type: LoadBalancer, domain: etcd.example.com, annotations: {a.b/c: d}, loadBalancerClass: a.b/c, loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Local}}`,
			`{version: 3.6.16, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, memberService: {type: LoadBalancer, domain: etcd.example.com, annotations: {a.b/c: d}, loadBalancerClass: a.b/c, loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Local}}`},
		{"extra flags", "", `{version: 3.7.3, options: {extraArgs: {metrics: extensive, warning-apply-duration: 1s}}}`,
			`{version: 3.7.3, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, options: {heartbeatInterval: 100ms, electionTimeout: 1s, logLevel: info, extraArgs: {metrics: extensive, warning-apply-duration: 1s}}}`},
		{"users of the platform's", "",
			`{version: 3.7.3, schedulerName: a, runtimeClassName: b, securityContext: {idPolicy: Platform, fsGroupChangePolicy: Always, seLinuxOptions: {level: "s0:c1,c2"}, seccompProfile: {type: Localhost, localhostProfile: x.json}}}`,
			`{version: 3.7.3, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, schedulerName: a, runtimeClassName: b, securityContext: {idPolicy: Platform, fsGroupChangePolicy: Always, seLinuxOptions: {level: "s0:c1,c2"}, seccompProfile: {type: Localhost, localhostProfile: x.json}}}`},
		{"an own profile of a directory", "",
			`{version: 3.6.16, securityContext: {idPolicy: Fixed, seLinuxOptions: {level: s0}}, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			`{version: 3.6.16, replicas: 3, securityContext: {idPolicy: Fixed, seLinuxOptions: {level: s0}}, storage: {medium: HostPath, size: 1Gi, hostPath: {path: /data, nodes: [a, b, c]}}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}}`},
		{"image", "", `{version: 3.7.3, image: {}}`,
			`{version: 3.7.3, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, image: {pullPolicy: IfNotPresent}}`},
		{"options", "", `{version: 3.5.26, options: {autoCompaction: {}}}`,
			`{version: 3.5.26, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, options: {autoCompaction: {mode: Periodic}, heartbeatInterval: 100ms, electionTimeout: 1s, logLevel: info}}`},
		{"a revision is raised above all that were given out unless the spec says by how much", "",
			`{version: 3.6.16, bootstrap: {snapshot: {snapshotRef: {name: a}}}}`,
			`{version: 3.6.16, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, bootstrap: {snapshot: {snapshotRef: {name: a}}}}`},
		{"claims", "", `{version: 3.6.16, bootstrap: {claims: {names: [data-a-0, b.c]}}}`,
			`{version: 3.6.16, replicas: 3, storage: {medium: Persistent, size: 1Gi}, tls: {mode: Auto, clientAuth: Required, minVersion: TLS1.2}, bootstrap: {claims: {names: [data-a-0, b.c], path: data}}}`},
		{"claims with the data in their roots", "",
			`{version: 3.6.16, bootstrap: {claims: {names: [a], path: ., wal: true, withoutQuorum: true, bumpRevision: 0}}}`, ""},
		{"smallest versions", "", `{version: 3.6.4}`, ""},
		{"3.7.0", "", `{version: 3.7.0}`, ""},
		{"paused", "", `{version: 3.6.16, replicas: 0}`, ""},
		{"nine", "", `{version: 3.6.16, replicas: 9}`, ""},
		{"smallest size", "", `{version: 3.6.16, storage: {size: 128Mi}}`, ""},
		{"size in plain digits", "", `{version: 3.6.16, storage: {size: 1073741824}}`, ""},
		{"quota of 95 %", "", `{version: 3.6.16, storage: {size: 1Gi}, options: {quotaBackendBytes: 1020054732}}`, ""},
		{"exactly five heartbeats", "", `{version: 3.6.16, options: {heartbeatInterval: 200ms}}`, ""},
		{"compaction by revisions", "",
			`{version: 3.6.16, options: {autoCompaction: {mode: Revision, retention: "10000"}}}`, ""},
		{"compaction by a duration in parts", "", `{version: 3.6.16, options: {autoCompaction: {retention: 1h30m}}}`,
			""},
		{"schedule of every kind of field", "",
			`{version: 3.6.16, maintenance: {defragmentation: {schedule: "*/15 1-5 1,15 JAN-JUN Mon-Fri", fragmentationPercent: 100, minReclaim: 0}}}`, ""},
		{"windows of every length", "",
			`{version: 3.6.16, maintenance: {windows: [{schedule: "0 2 * * SAT", duration: 10m, timeZone: Europe/Berlin}, {schedule: "*/15 1-5 1,15 JAN-JUN Mon-Fri", duration: 168h}]}}`, ""},
		{"leaf of minutes, for tests", "", `{version: 3.6.16, tls: {auto: {leafDuration: 1m, caDuration: 2m}}}`, ""},
		{"plain text on purpose", "", `{version: 3.6.16, tls: {mode: Disabled}}`, ""},
		{"name of 48", strings.Repeat("n", 48), `{version: 3.6.16}`, ""},
		{"name with peers in it", "demo-peers-2", `{version: 3.6.16}`, ""},
	} {
		t.Run(c.reason, func(t *testing.T) {
			if c.name == "" {
				c.name = "demo"
			}
			object := cluster(t, c.name, c.spec)
			if fields := k.unknown(object); len(fields) > 0 {
				t.Errorf("unknown fields: %v", fields)
			}
			if errs := k.admit(object, nil); len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if c.want == "" {
				return
			}
			if want := parse(t, c.want); !equality.Semantic.DeepEqual(object["spec"], any(want)) {
				t.Errorf("defaulted to\n\t%v\nwant\n\t%v", object["spec"], want)
			}
			if errs := k.admit(object, object); len(errs) > 0 {
				t.Errorf("an update without a change is refused: %v", errs.ToAggregate())
			}
		})
	}
}

func TestChanges(t *testing.T) {
	k := etcdCluster(t)
	for _, c := range []struct{ reason, old, new, want string }{
		{"medium", `{version: 3.6.16}`, `{version: 3.6.16, storage: {medium: Memory}}`,
			"storage.medium can't be changed"},
		{"medium back", `{version: 3.6.16, storage: {medium: Memory}}`, `{version: 3.6.16}`,
			"storage.medium can't be changed"},
		{"smaller claim", `{version: 3.6.16, storage: {size: 2Gi}}`, `{version: 3.6.16, storage: {size: 1Gi}}`,
			"storage.size can't shrink"},
		{"smaller claim by leaving it out", `{version: 3.6.16, storage: {size: 2Gi}}`, `{version: 3.6.16}`,
			"storage.size can't shrink"},
		{"smaller claim in other units", `{version: 3.6.16, storage: {size: 2Gi}}`,
			`{version: 3.6.16, storage: {size: 2G}}`, "storage.size can't shrink"},
		{"smaller claim, members to be replaced", `{version: 3.6.16, storage: {size: 2Gi}}`,
			`{version: 3.6.16, storage: {size: 1Gi, migration: Replace}}`, ""},
		{"smaller claim, members never replaced", `{version: 3.6.16, storage: {size: 2Gi}}`,
			`{version: 3.6.16, storage: {size: 1Gi, migration: Never}}`, "set storage.migration to Replace"},
		{"smaller tmpfs", `{version: 3.6.16, storage: {medium: Memory, size: 2Gi}}`,
			`{version: 3.6.16, storage: {medium: Memory, size: 1Gi, migration: Replace}}`, "storage.size can't shrink"},
		{"another path", `{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			`{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /other, nodes: [a, b, c]}}}`,
			"storage.hostPath.path can't be changed"},
		{"other nodes", `{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			`{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [d, b, a, e]}}}`, ""},
		{"more members than nodes",
			`{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			`{version: 3.6.16, replicas: 5, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			"fewer nodes than replicas"},
		{"directories instead of claims", `{version: 3.6.16}`,
			`{version: 3.6.16, storage: {medium: HostPath, hostPath: {path: /data, nodes: [a, b, c]}}}`,
			"storage.medium can't be changed"},
		{"smaller log", `{version: 3.6.16, storage: {wal: {size: 2Gi}}}`,
			`{version: 3.6.16, storage: {wal: {size: 1Gi}}}`, "storage.wal.size can't shrink"},
		{"smaller log, members to be replaced", `{version: 3.6.16, storage: {wal: {size: 2Gi}}}`,
			`{version: 3.6.16, storage: {migration: Replace, wal: {size: 1Gi}}}`, ""},
		{"log on a volume of its own", `{version: 3.6.16}`, `{version: 3.6.16, storage: {wal: {}}}`, ""},
		{"log back where the data is", `{version: 3.6.16, storage: {wal: {}}}`, `{version: 3.6.16}`, ""},
		{"another migration", `{version: 3.6.16}`, `{version: 3.6.16, storage: {migration: Move}}`,
			"supported values: \"Never\", \"Replace\""},
		{"larger claim", `{version: 3.6.16}`, `{version: 3.6.16, storage: {size: 2Gi}}`, ""},
		{"same claim in other units", `{version: 3.6.16}`, `{version: 3.6.16, storage: {size: 1024Mi}}`, ""},
		{"pause", `{version: 3.6.16}`, `{version: 3.6.16, replicas: 0}`, ""},
		{"pause a tmpfs", `{version: 3.6.16, storage: {medium: Memory}}`,
			`{version: 3.6.16, replicas: 0, storage: {medium: Memory}}`, "it can't be paused with replicas 0"},
		{"plain text on a live cluster", `{version: 3.6.16}`, `{version: 3.6.16, tls: {mode: Disabled}}`,
			"tls.mode can only be changed from Disabled on a live cluster"},
		{"TLS on a live cluster", `{version: 3.6.16, tls: {mode: Disabled}}`, `{version: 3.6.16}`,
			"would lock all clients out at once"},
		{"TLS on a live cluster, clients to follow", `{version: 3.6.16, tls: {mode: Disabled}}`,
			`{version: 3.6.16, tls: {allowPlaintextClients: true}}`, ""},
		{"clients have followed", `{version: 3.6.16, tls: {allowPlaintextClients: true}}`, `{version: 3.6.16}`, ""},
		{"another authority's", `{version: 3.6.16}`,
			`{version: 3.6.16, tls: {mode: CertManager, certManager: {issuerRef: {name: x}}}}`,
			"tls.mode can only be changed from Disabled on a live cluster"},
		{"another duration", `{version: 3.6.16}`, `{version: 3.6.16, tls: {auto: {leafDuration: 24h}}}`, ""},
		{"another class", `{version: 3.6.16, clientService: {type: LoadBalancer, loadBalancerClass: a}}`,
			`{version: 3.6.16, clientService: {type: LoadBalancer, loadBalancerClass: b}}`,
			"loadBalancerClass can't be changed while the type is LoadBalancer"},
		{"another type", `{version: 3.6.16, clientService: {type: LoadBalancer, loadBalancerClass: a}}`,
			`{version: 3.6.16}`, ""},
		{"another class of members", `{version: 3.6.16, memberService: {type: LoadBalancer, domain: a.example, loadBalancerClass: a}}`,
			`{version: 3.6.16, memberService: {type: LoadBalancer, domain: a.example}}`,
			"memberService.loadBalancerClass can't be changed while the type is LoadBalancer"},
		{"members within again", `{version: 3.6.16, memberService: {type: LoadBalancer, domain: a.example, loadBalancerClass: a}}`,
			`{version: 3.6.16}`, ""},
		{"families forgotten", `{version: 3.6.16, clientService: {ipFamilyPolicy: PreferDualStack}}`,
			`{version: 3.6.16}`, "can be changed, and not removed"},
		{"one family less", `{version: 3.6.16, clientService: {ipFamilyPolicy: PreferDualStack}}`,
			`{version: 3.6.16, clientService: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]}}`, ""},
		{"a flag that the older release lacks", `{version: 3.6.16, options: {extraArgs: {log-format: json}}}`,
			`{version: 3.5.35, options: {extraArgs: {log-format: json}}}`, "which etcd 3.5 does not know"},
		{"upgrade", `{version: 3.5.26}`, `{version: 3.6.16}`, ""},
		{"downgrade", `{version: 3.6.16}`, `{version: 3.5.30}`, ""},
	} {
		t.Run(c.reason, func(t *testing.T) {
			before, after := cluster(t, "demo", c.old), cluster(t, "demo", c.new)
			if errs := k.admit(before, nil); len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			errs := k.admit(after, before)
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case c.want != "" && len(errs) == 0:
				t.Errorf("admitted, want: %s", c.want)
			case c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want):
				t.Errorf("refused with\n\t%v\nwant\n\t%s", errs.ToAggregate(), c.want)
			}
		})
	}
}

// TestABoundThatIsNewer: an EtcdCluster from a release without the bound of storage.size can be edited like any
// other; its size can become one that is allowed.
func TestABoundThatIsNewer(t *testing.T) {
	k := etcdCluster(t)
	for _, c := range []struct{ change, spec, want string }{
		{"none", `{version: 3.6.16, storage: {size: 64Mi}}`, ""},
		{"another field", `{version: 3.6.17, replicas: 5, storage: {size: 64Mi, migration: Replace}}`, ""},
		{"a size that is too small", `{version: 3.6.16, storage: {size: 100Mi}}`,
			"storage.size must be at least 128Mi"},
		{"a size that is allowed", `{version: 3.6.16, storage: {size: 1Gi}}`, ""},
	} {
		t.Run(c.change, func(t *testing.T) {
			before, after := cluster(t, "demo", `{version: 3.6.16, storage: {size: 64Mi}}`), cluster(t, "demo", c.spec)
			if errs := k.admit(before, nil); len(errs) == 0 {
				t.Fatal("a new one is admitted")
			}
			errs := k.admit(after, before)
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case c.want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want)):
				t.Errorf("%v, want: %s", errs.ToAggregate(), c.want)
			}
		})
	}
}
