package scenario

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	rec "github.com/quorate-dev/quorate/hooks/record"
)

// clusterFields are the words of a cluster's spec that are a field of it.
var clusterFields = map[string]string{
	"after":          "MemberReplacement.After",
	"auth":           "Auth.Enabled",
	"avoid-slow":     "Leadership.AvoidSlowDisks",
	"ca":             "TLS.Auto.CADuration",
	"class":          "Storage.StorageClassName",
	"client-auth":    "TLS.ClientAuth",
	"retention":      "Options.AutoCompaction.Retention",
	"deletion":       "DeletionPolicy",
	"image":          "Image.Repository",
	"keep":           "MemberReplacement.KeepVolumesFor",
	"grow-to":        "Storage.AutoGrow.Max",
	"keep-volumes":   "Recovery.KeepVolumesFor",
	"leaf":           "TLS.Auto.LeafDuration",
	"medium":         "Storage.Medium",
	"members":        "MemberService.Type",
	"migration":      "Storage.Migration",
	"percent":        "Maintenance.Defragmentation.FragmentationPercent",
	"plaintext":      "TLS.AllowPlaintextClients",
	"prefer-zones":   "Leadership.PreferredZones",
	"priority-class": "PriorityClassName",
	"protected":      "DeletionProtection",
	"quota":          "Options.QuotaBackendBytes",
	"reclaim":        "Maintenance.Defragmentation.MinReclaim",
	"recovery":       "Recovery.QuorumLoss",
	"replacement":    "MemberReplacement.Policy",
	"replicas":       "Replicas",
	"retire":         "RemoveExternalMembers",
	"revoked":        "TLS.ClientCRLSecretRef.Name",
	"sans":           "TLS.ExtraSANs",
	"snapshot-first": "SnapshotBeforeUpgrade",
	"schedule":       "Maintenance.Defragmentation.Schedule",
	"self-hosted":    "SelfHosted",
	"spares":         "Spares",
	"size":           "Storage.Size",
	"suspend":        "Suspend",
	"tls":            "TLS.Mode",
	"upgrade":        "UpgradePolicy",
	"version":        "Version",
	"wait":           "Recovery.After",
	"wal":            "Storage.WAL.Size",
}

// put writes the fields of a spec that words name. The value none leaves out what may be left out on the way to one.
func put(spec any, fields map[string]string, a args) {
	for word, path := range fields {
		if a.has(word) {
			putField(reflect.ValueOf(spec).Elem(), path, a[word])
		}
	}
}

func putField(field reflect.Value, path, value string) {
	for name := range strings.SplitSeq(path, ".") {
		field = field.FieldByName(name)
		if field.Kind() != reflect.Pointer {
			continue
		}
		if value == "none" {
			field.SetZero()
			return
		}
		if field.IsNil() {
			field.Set(reflect.New(field.Type().Elem()))
		}
		field = field.Elem()
	}
	switch of := field.Addr().Interface().(type) {
	case *metav1.Duration:
		of.Duration = duration(value)
	case *resource.Quantity:
		*of = resource.MustParse(value)
	case *[]string:
		*of = strings.Split(value, ",")
	case *bool:
		*of = value == "true"
	default:
		if field.CanInt() {
			field.SetInt(whole(value))
		} else {
			field.SetString(value)
		}
	}
}

// whole is a number: as such, as seconds, or as bytes.
func whole(text string) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d.Seconds())
	}
	return bytes(text)
}

// change is what kubectl edit does with a cluster.
func change(spec *v1beta1.EtcdClusterSpec, a args) {
	if a.has("schedule") {
		spec.Maintenance.Defragmentation = nil
	}
	put(spec, clusterFields, a)
	if spec.MemberService != nil {
		spec.MemberService.Domain = cmp.Or(a["domain"], spec.MemberService.Domain, "etcd.example.com")
	}
	if spec.TLS.Mode == v1beta1.TLSSecrets {
		spec.TLS.Secrets = &v1beta1.SecretsTLS{ServerSecretRef: v1beta1.SecretRef{Name: "their-server"},
			PeerSecretRef:     v1beta1.SecretRef{Name: "their-peer"},
			OperatorSecretRef: v1beta1.SecretRef{Name: "their-operator"}}
	}
	if spec.TLS.Mode == v1beta1.TLSCertManager {
		spec.TLS.CertManager = &v1beta1.CertManagerTLS{IssuerRef: v1beta1.IssuerRef{Name: "theirs"}}
	}
	if a.has("txn-ops") {
		spec.Options.ExtraArgs = map[string]v1beta1.ExtraArg{"max-txn-ops": v1beta1.ExtraArg(a["txn-ops"])}
	}
	if a.has("windows") {
		spec.Maintenance.Windows = windows(a["windows"])
	}
	if a.has("nodes") {
		changeNodes(spec, a.has("addresses"), strings.Split(a["nodes"], ","))
	}
	if a.has("users") {
		changeUsers(spec, strings.Split(a["users"], ","))
	}
	changeBootstrap(spec, a)
}

// changeUsers declares users without roles, whose passwords are generated.
func changeUsers(spec *v1beta1.EtcdClusterSpec, names []string) {
	spec.Auth.Users = nil
	for _, name := range names {
		spec.Auth.Users = append(spec.Auth.Users, v1beta1.UserSpec{Name: name})
	}
}

// changeNodes says on which nodes members may be; with addresses they are on the hosts' network: node a has the address
// 10.1.0.97, by its letter.
func changeNodes(spec *v1beta1.EtcdClusterSpec, addresses bool, nodes []string) {
	if spec.Storage.Medium == v1beta1.HostPath {
		spec.Storage.HostPath = &v1beta1.HostPathSpec{Path: "/data", Nodes: nodes}
	}
	if !addresses && spec.HostNetwork == nil {
		return
	}
	spec.HostNetwork = &v1beta1.HostNetworkSpec{}
	for _, node := range nodes {
		spec.HostNetwork.Nodes = append(spec.HostNetwork.Nodes,
			v1beta1.NodeAddress{Name: node, Address: fmt.Sprintf("10.1.0.%d", node[0])})
	}
	if spec.Storage.HostPath != nil {
		spec.Storage.HostPath.Nodes = nil
	}
}

// changeBootstrap says what a new cluster begins with.
func changeBootstrap(spec *v1beta1.EtcdClusterSpec, a args) {
	switch {
	case a["external"] == "none":
		spec.Bootstrap = nil
	case a.has("external"):
		external := &v1beta1.ExternalCluster{}
		for name := range strings.SplitSeq(a["external"], ",") {
			external.Endpoints = append(external.Endpoints, "http://"+name+":2379")
		}
		spec.Bootstrap = &v1beta1.Bootstrap{External: external}
	case a.has("bootstrap"), a.has("url") && !a.has("restore"):
		spec.Bootstrap = &v1beta1.Bootstrap{Snapshot: source(a, "bootstrap")}
	case a.has("latest"):
		spec.Bootstrap = &v1beta1.Bootstrap{LatestSnapshot: &v1beta1.LatestSnapshot{IfNone: v1beta1.IfNone(a["latest"]),
			Store: v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}, Folder: a["folder"]}}
	case a.has("claims"):
		spec.Bootstrap = &v1beta1.Bootstrap{Claims: &v1beta1.FormerClaims{Names: strings.Split(a["claims"], ","),
			WithoutQuorum: a["without-quorum"] == "true"}}
	}
}

// windows are schedule|length|zone, and a semicolon between two of them.
func windows(text string) (all []v1beta1.MaintenanceWindow) {
	if text == "none" {
		return nil
	}
	for window := range strings.SplitSeq(text, ";") {
		fields := append(strings.Split(window, "|"), "")
		length := metav1.Duration{Duration: duration(fields[1])}
		all = append(all, v1beta1.MaintenanceWindow{Schedule: fields[0], Duration: length, TimeZone: fields[2]})
	}
	return all
}

// source of a snapshot: an EtcdSnapshot's name, or a URL.
func source(a args, name string) *v1beta1.SnapshotSource {
	from := &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: a[name]},
		Artifact: strings.TrimPrefix(a["url"], "s3://bucket/")}
	if from.Artifact != "" {
		from.Store = &v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "bucket"}}
	}
	return from
}

// record is what who may write ConfigMaps does to records.
func (s *story) record(a args) {
	switch {
	case a.has("forge"):
		s.w.ForgeRecord(a.number("forge", 0))
	case a.has("gone"):
		s.delete(args{"configmap": "demo-epoch-" + a["gone"]})
	case a.has("keep"):
		s.w.KeepRecords()
	case a.has("again"):
		s.w.RecordsAgain()
	case a["set"] == "cluster-id":
		s.w.EditRecord(func(r *rec.Record) { r.ClusterID = 0 })
	default:
		s.w.EditRecord(func(r *rec.Record) { r.NextOrdinal = a.number("to", 0) })
	}
}

// key is another key for records.
func (s *story) key(a args) {
	next := []byte("the next key of this installation")
	switch keys := s.w.RecordKeys; {
	case a.has("lost"):
		s.w.RecordKeys = [][]byte{next}
	case a.has("next"):
		s.w.RecordKeys = append(slices.Clone(keys), next)
	case a.has("turn"):
		s.w.RecordKeys = [][]byte{next, keys[0]}
	case a.has("spent"):
		s.w.RecordKeys = keys[:1]
	}
}
