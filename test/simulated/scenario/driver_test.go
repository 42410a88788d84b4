package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// story is a world and how much of it has been told.
type story struct {
	w        *world.World
	inFlight *world.Call
	held     *world.Held
	// last is the rule and message told last: stabilize does not repeat them.
	last   string
	broken int
}

func newStory() *story {
	w := world.New()
	w.Watch = true
	return &story{w: w}
}

// breaches are the rules broken since the last command.
func (s *story) breaches() []string {
	fresh := s.w.Oracle.Broken[s.broken:]
	s.broken = len(s.w.Oracle.Broken)
	return fresh
}

// verbs are what a story can say. In values, _ is a space.
var verbs = map[string]func(*story, args) string{
	// what people do
	// cluster [name=demo] [replicas=3] [medium=Memory | medium=HostPath nodes=a,b,c] [addresses nodes=a,b,c: on the hosts'
	// network] [version=3.6.16] [tls=Disabled] [leaf=100h] [ca=200h] [ready]: kubectl apply, and wait
	"cluster": (*story).cluster,
	// edit replicas=5 | suspend=true | priority-class=high | image=repository | version=3.6.17 | upgrade=Step |
	// after=1m | keep=1h | replacement=Manual | protected=true | deletion=Retain | txn-ops=1000 |
	// sans=example.com | tls=Auto plaintext=true | members=NodePort [domain=etcd.example.com] | members=inside |
	// auth=true client-auth=None
	"edit": (*story).edit,
	// also: edit restore=id from=s1|url=s3://bucket/s1 [bump=0] [stop-first=true] | restore=id epoch=1 | restore=none
	// | recovery=FromSurvivor wait=1m [bump=0] | keep-volumes=1h; and for a new cluster
	// bootstrap=s1|url=s3://bucket/s1 | claims=old-0,old-1 [without-quorum=true] also: edit existing=old-0,old-1 | existing=none | retire=true also: edit
	// size=2Gi | class=fast | migration=Replace | wal=1Gi | wal=none | nodes=a,b,c | quota=100Mi | compaction=Off |
	// schedule=0_3_*_*_* percent=50 reclaim=1Mi also: edit windows=0_2_*_*_6|4h|Europe/Berlin;0_3_*_*_0|30m |
	// windows=none delete pod=demo-1 | claim=demo-1 | configmap=demo-epoch-1 | secret=demo-ca | cluster [orphan]:
	// kubectl delete
	"delete": (*story).delete,
	// claim grow=demo-1 size=3Gi: kubectl edit; claim failed=demo-1 | count=demo-1: kubectl annotate
	"claim": (*story).claim,
	// secret server|peer|operator [life=1000h] [authority=theirs] [trusts=theirs,next] [flaw]: a person keeps it, for
	// tls=Secrets or tls=CertManager; secret unlabel=server | label=server: kubectl label
	"secret": (*story).secret,
	"status": (*story).status, // status wipe
	"fence":  (*story).fence,  // fence member=demo-1,demo-2 | fence: kubectl annotate
	// snapshot name=s1 url=s3://bucket/s1 [flaw=Damaged]: what clients have written is in a store, and an
	// EtcdSnapshot tells of it
	"snapshot": (*story).snapshot,
	// artifact url=s3://bucket/latest: what clients have written is in a store, in the place of what was there, and
	// no EtcdSnapshot tells of it
	"artifact": (*story).artifact,
	// stream [flaw=users_have_changed]: a stream has stored what clients have written; and why no more can be restored
	"stream":  (*story).stream,
	"recover": (*story).recoverBy, // recover by=FromSurvivor:1: kubectl annotate
	// write n=10 | data=10Mi over=10Mi deleted=10Mi | compact: clients write new keys, over old ones, delete; a
	// person compacts
	"write":  (*story).write,
	"defrag": (*story).defrag, // defrag now=1: kubectl annotate

	// what happens
	// kill pod=demo-1: gone at once
	"kill": fault((*world.World).KillPod),
	// empty pod=demo-1: its directory is emptied under it, the pod stays
	"empty": fault((*world.World).EmptyData),
	// crash pod=demo-1: its etcd dies, and whenever it is started again
	"crash": fault((*world.World).Crash),
	// full pod=demo-1: its volume is full, of which its etcd dies, until the volume has grown
	"full": fault((*world.World).FillDisk),
	// mend pod=demo-1: it no longer does
	"mend": fault((*world.World).Mend),
	// add voter=demo-7 | learner=demo-7 | voter=elsewhere: etcdctl member add
	"add": (*story).add,
	// restart pod=demo-1: its etcd dies
	"restart": fault((*world.World).Restart),
	// stillbirth pod=demo-1: its etcd died before its first entries were in its log
	"stillbirth": fault((*world.World).Stillbirth),
	// evict pod=demo-1: it ends for good
	"evict": fault((*world.World).Evict),
	// reboot node=demo-1: its memory is empty, the pod object stays
	"reboot": fault((*world.World).Reboot),
	// wipe claim=demo-1 | pod=demo-1: the disk is empty, the claim stays; or the directory on the node
	"wipe": fault((*world.World).WipeData),
	// exchange claim=demo-1: the volume under the claim is that of another etcd
	"exchange": fault((*world.World).ExchangeVolume),
	// reimage pod=demo-1: the node is set up again with an empty disk, the pod object stays
	"reimage": fault((*world.World).Reimage),
	// lose claim=demo-1 | node=demo-1: with the data, or without a word
	"lose": (*story).lose,
	// heal node=demo-1 | node=node-a
	"heal": fault((*world.World).HealNode),
	// image bad=repository | good=repository: it can't be pulled; or one image of it, repository:v3.6.18
	"image": (*story).image,
	// metacontroller apply=server-side | apply=dynamic: it starts with another --apply-strategy
	"metacontroller": func(s *story, a args) string { s.w.ServerSideApply = a["apply"] == "server-side"; return "" },
	// installation etcd-repository=mirror.example/etcd [new] | cert-manager=true | cert-manager=false: Quorate is
	// installed with another setting, and has begun to answer now
	"installation": (*story).installation,
	// volumes fixed=class | expandable=class | broken=demo-1 | mended=demo-1 | offline | no-class=fast | class=fast:
	// which storage class does not exist
	"volumes": (*story).volumes,
	// node full=demo-1 | room=demo-1: no node takes its pod; unplaced=high: nor any pod of this priority class
	"node": (*story).node,
	// refuse kind=pod | pod=demo-2 | priority-class=high: the API server makes none, as over a quota
	"refuse": (*story).refuse,
	// accept, with the same words: it does again
	"accept": (*story).accept,
	// foreign start=old-0,old-1 [version=3.6.16] | stop=old-0 | again=old-0: an etcd that runs outside of Kubernetes
	"foreign": (*story).foreign,
	// etcd down | up | tick | connected=5s | lose-reply | counts-late | pace=3 | caught-up=demo-3 | leader=demo-1 |
	// defragmentation=3 (passes) | db=900 used=100 (MiB) | auth=off: etcdctl auth disable
	"etcd": (*story).etcd,
	// corrupt pod=demo-1 [as=2] | checks: other data in a member's database; etcd compares the members' from now on
	"corrupt": (*story).corrupt,
	// network unreachable=demo-1 | reachable=demo-1 | isolated=demo-1 | joined=demo-1 | stranger=demo-1 | twin=demo-1
	// | healed
	"network": (*story).network,
	// cache freeze=pod,claim | thaw=pod | thaw
	"cache": (*story).cache,
	// tick 30s: time passes, and no call is made
	"tick": (*story).tick,
	// Kubernetes and etcd move one step
	"pass": func(s *story, _ args) string { s.w.Pass(); return "" },
	// the nodes alone do, or that of pod=demo-1; slow=demo-1 | prompt=demo-1: whether its files follow the Secrets
	"kubelet": (*story).kubelet,
	// every kubelet asks its etcd whether it is ready
	"probe": func(s *story, _ args) string { s.w.Probe(); return "" },
	// the garbage collector alone does
	"collect": func(s *story, _ args) string { s.w.Collect(); return "" },

	// what Quorate does
	// one call, applied [crash=before-step|step|deletes|before-status] [crash=writes n=2] [crash=before pod=demo-3
	// order=backwards]
	"sync":      (*story).sync,
	"call":      (*story).call,      // one call whose answer stays in flight
	"look":      (*story).look,      // one call that has decided, and whose step stays in flight
	"apply":     (*story).apply,     // the answer in flight arrives, or the step and then its answer
	"two-syncs": (*story).twoSyncs,  // two overlapping calls, both carrying out their step, both applied
	"stabilize": (*story).stabilize, // calls and passes until nothing moves any more [passes=n]
	// wait 5m: time passes, with a call and a pass every resync period; the one at its end is the next verb
	"wait":         (*story).wait,
	"check":        (*story).check,        // how things are
	"space":        (*story).space,        // how large the databases are, and what became of runs of defragmentation
	"revisions":    (*story).revisions,    // which revisions each epoch has given out
	"clients":      (*story).clients,      // where the client Service leads
	"endpoints":    (*story).endpoints,    // which URLs etcd lists, and where the members' own Services lead
	"certificates": (*story).certificates, // which there are, and what the members trust
	"converged":    (*story).converged,    // insists that the cluster is as the spec wants it
}

func (s *story) statuses() []recorded {
	c := s.w.Cluster()
	if c == nil {
		return nil
	}
	return []recorded{{Kind: "EtcdCluster", Object: c, Lacks: s.w.Lacked}}
}

// args are the words after the verb; those without a value have an empty one.
type args map[string]string

func (a args) has(key string) bool { _, set := a[key]; return set }

func (a args) number(key string, otherwise int) int {
	if !a.has(key) {
		return otherwise
	}
	n, err := strconv.Atoi(a[key])
	if err != nil {
		panic(err)
	}
	return n
}

// only is the value of the only word.
func (a args) only() string {
	for _, value := range a {
		return value
	}
	return ""
}

func fault(do func(*world.World, string)) func(*story, args) string {
	return func(s *story, a args) string {
		do(s.w, a.only())
		return ""
	}
}

// ---- people

func (s *story) cluster(a args) string {
	name := a["name"]
	if name == "" {
		name = "demo"
	}
	spec := v1alpha1.EtcdClusterSpec{Version: "3.6.16", Storage: v1alpha1.StorageSpec{Medium: v1alpha1.Persistent,
		Size: resource.MustParse("1Gi")}}
	change(&spec, a)
	s.w.CreateCluster(name, spec)
	s.askRestore(a)
	if a.has("ready") {
		s.stabilize(args{})
	}
	return ""
}

func (s *story) edit(a args) string {
	s.w.EditSpec(func(spec *v1alpha1.EtcdClusterSpec) { change(spec, a) })
	s.askRestore(a)
	return ""
}

// askRestore has the cluster restored, or takes that back.
func (s *story) askRestore(a args) {
	if !a.has("restore") {
		return
	}
	r := v1alpha1.RestoreOperation{StopFirst: a["stop-first"] == "true"}
	switch {
	case a["restore"] == "none":
		s.w.Withdraw(v1alpha1.OperationRestore)
		return
	case a.has("epoch"):
		r.Epoch = new(int64(a.number("epoch", 1)))
	default:
		r.Snapshot = source(a, "from")
	}
	s.w.AskRestore(a["restore"], r)
}

func change(spec *v1alpha1.EtcdClusterSpec, a args) {
	if a.has("replicas") {
		spec.Replicas = new(int32(a.number("replicas", 3)))
	}
	if a.has("medium") {
		spec.Storage.Medium = v1alpha1.Medium(a["medium"])
	}
	if a.has("tls") {
		spec.TLS.Mode = v1alpha1.TLSMode(a["tls"])
	}
	if a.has("plaintext") {
		spec.TLS.AllowPlaintextClients = a["plaintext"] == "true"
	}
	if a.has("client-auth") {
		spec.TLS.ClientAuth = v1alpha1.ClientAuth(a["client-auth"])
	}
	if a.has("auth") {
		spec.Auth = &v1alpha1.AuthSpec{Enabled: a["auth"] == "true"}
	}
	if a.has("leaf") {
		spec.TLS.Auto.LeafDuration.Duration, spec.TLS.Auto.CADuration.Duration = duration(a["leaf"]), duration(a["ca"])
	}
	if a.has("members") {
		spec.MemberService = &v1alpha1.MemberService{Type: corev1.ServiceType(a["members"]), Domain: cmp.Or(a["domain"],
			"etcd.example.com")}
		if a["members"] == "inside" {
			spec.MemberService = nil
		}
	}
	if a.has("sans") {
		spec.TLS.ExtraSANs = strings.Split(a["sans"], ",")
	}
	if spec.TLS.Mode == v1alpha1.TLSSecrets {
		spec.TLS.Secrets = &v1alpha1.SecretsTLS{ServerSecretRef: v1alpha1.SecretRef{Name: "their-server"},
			PeerSecretRef:     v1alpha1.SecretRef{Name: "their-peer"},
			OperatorSecretRef: v1alpha1.SecretRef{Name: "their-operator"}}
	}
	if spec.TLS.Mode == v1alpha1.TLSCertManager {
		spec.TLS.CertManager = &v1alpha1.CertManagerTLS{IssuerRef: v1alpha1.IssuerRef{Name: "theirs"}}
	}
	if a.has("version") {
		spec.Version = a["version"]
	}
	if a.has("protected") {
		spec.DeletionProtection = a["protected"] == "true"
	}
	if a.has("deletion") {
		spec.DeletionPolicy = v1alpha1.DeletionPolicy(a["deletion"])
	}
	if a.has("upgrade") {
		spec.UpgradePolicy = v1alpha1.UpgradePolicy(a["upgrade"])
	}
	if a.has("image") {
		spec.Image.Repository = a["image"]
	}
	if a.has("txn-ops") {
		spec.Options.MaxTxnOps = new(int64(a.number("txn-ops", 0)))
	}
	changeStorage(&spec.Storage, a)
	changeEpoch(spec, a)
	if a.has("priority-class") {
		spec.PriorityClassName = a["priority-class"]
	}
	changeSpace(spec, a)
	changeWindows(&spec.Maintenance, a)
	if a.has("after") {
		spec.MemberReplacement.After.Duration = duration(a["after"])
	}
	if a.has("keep") {
		spec.MemberReplacement.KeepClaimFor = &metav1.Duration{Duration: duration(a["keep"])}
	}
	if a.has("replacement") {
		spec.MemberReplacement.Policy = v1alpha1.ReplacementPolicy(a["replacement"])
	}
	if a.has("existing") {
		var endpoints []string
		for name := range strings.SplitSeq(a["existing"], ",") {
			endpoints = append(endpoints, "http://"+name+":2379")
		}
		spec.Bootstrap = &v1alpha1.Bootstrap{Existing: &v1alpha1.ExistingCluster{Endpoints: endpoints}}
		if a["existing"] == "none" {
			spec.Bootstrap = nil
		}
	}
	if a.has("retire") {
		spec.Bootstrap.Existing.RetireForeign = a["retire"] == "true"
	}
	if a.has("nodes") && (a.has("addresses") || spec.HostNetwork != nil) {
		changeAddresses(spec, strings.Split(a["nodes"], ","))
	}
	if a.has("suspend") {
		spec.Suspend = a["suspend"] == "true"
	}
}

// changeAddresses puts a cluster on the hosts' network: node a has the address 10.1.0.97, by its letter.
func changeAddresses(spec *v1alpha1.EtcdClusterSpec, nodes []string) {
	spec.HostNetwork = &v1alpha1.HostNetworkSpec{}
	for _, node := range nodes {
		spec.HostNetwork.Nodes = append(spec.HostNetwork.Nodes,
			v1alpha1.NodeAddress{Name: node, Address: fmt.Sprintf("10.1.0.%d", node[0])})
	}
	if spec.Storage.HostPath != nil {
		spec.Storage.HostPath.Nodes = nil
	}
}

func changeStorage(storage *v1alpha1.StorageSpec, a args) {
	if a.has("size") {
		storage.Size = resource.MustParse(a["size"])
	}
	if a.has("class") {
		storage.StorageClassName = new(a["class"])
	}
	if a.has("wal") {
		storage.WAL = nil
		if a["wal"] != "none" {
			storage.WAL = &v1alpha1.WALSpec{Size: resource.MustParse(a["wal"])}
		}
	}
	if a.has("nodes") && storage.Medium == v1alpha1.HostPath {
		storage.HostPath = &v1alpha1.HostPathSpec{Path: "/data", Nodes: strings.Split(a["nodes"], ",")}
	}
	if a.has("migration") {
		storage.Migration = v1alpha1.StorageMigration(a["migration"])
	}
}

func changeEpoch(spec *v1alpha1.EtcdClusterSpec, a args) {
	if a.has("bootstrap") || a.has("url") && !a.has("restore") {
		spec.Bootstrap = &v1alpha1.Bootstrap{Snapshot: source(a, "bootstrap")}
	}
	if a.has("claims") {
		spec.Bootstrap = &v1alpha1.Bootstrap{Claims: &v1alpha1.FormerClaims{Names: strings.Split(a["claims"], ","),
			WithoutQuorum: a["without-quorum"] == "true", BumpRevision: bump(a)}}
	}
	if a.has("recovery") {
		spec.Recovery.QuorumLoss = v1alpha1.QuorumLoss(a["recovery"])
		spec.Recovery.BumpRevision = bump(a)
	}
	if a.has("wait") {
		spec.Recovery.After.Duration = duration(a["wait"])
	}
	if a.has("keep-volumes") {
		spec.Recovery.KeepVolumesFor = &metav1.Duration{Duration: duration(a["keep-volumes"])}
	}
}

// source of a snapshot: an EtcdSnapshot's name, or a URL.
func source(a args, name string) *v1alpha1.SnapshotSource {
	from := &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: a[name]},
		Artifact: strings.TrimPrefix(a["url"], "s3://bucket/"), BumpRevision: bump(a)}
	if from.Artifact != "" {
		from.Store = &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "bucket"}}
	}
	return from
}

func bump(a args) *int64 {
	if !a.has("bump") {
		return nil
	}
	return new(int64(a.number("bump", 0)))
}

func (s *story) artifact(a args) string {
	s.w.StoreArtifact(a["url"], "")
	return ""
}

func (s *story) stream(a args) string {
	s.w.Stream(a["flaw"])
	return ""
}

func (s *story) snapshot(a args) string {
	s.w.TakeSnapshot(a["name"], a["url"], a["flaw"])
	return ""
}

func (s *story) recoverBy(a args) string {
	policy, epoch, _ := strings.Cut(a["by"], ":")
	n, _ := strconv.ParseInt(epoch, 10, 64)
	s.w.AskRecover(v1alpha1.QuorumLoss(policy), n)
	return ""
}

func (s *story) claim(a args) string {
	if !a.has("grow") {
		s.w.MarkFailed(a.only(), a.has("failed"))
		return ""
	}
	s.w.GrowClaim(a["grow"], resource.MustParse(a["size"]))
	return ""
}

func (s *story) volumes(a args) string {
	for what, name := range a {
		switch what {
		case "fixed":
			s.w.FixedClasses[name] = true
		case "expandable":
			delete(s.w.FixedClasses, name)
		case "broken":
			s.w.BrokenVolumes[name] = true
		case "mended":
			delete(s.w.BrokenVolumes, name)
		case "offline":
			s.w.OfflineVolumes = true
		case "no-class":
			s.w.NoStorage[name] = true
		case "class":
			delete(s.w.NoStorage, name)
		}
	}
	return ""
}

func changeSpace(spec *v1alpha1.EtcdClusterSpec, a args) {
	if a.has("compaction") {
		spec.Options.AutoCompaction.Mode = v1alpha1.AutoCompactionMode(a["compaction"])
	}
	if a.has("quota") {
		spec.Options.QuotaBackendBytes = new(bytes(a["quota"]))
	}
	if !a.has("schedule") {
		return
	}
	d := &v1alpha1.Defragmentation{Schedule: a["schedule"]}
	if a.has("percent") {
		percent, err := strconv.ParseInt(a["percent"], 10, 32)
		if err != nil {
			panic(err)
		}
		d.FragmentationPercent = new(int32(percent))
	}
	if a.has("reclaim") {
		d.MinReclaim = new(resource.MustParse(a["reclaim"]))
	}
	spec.Maintenance.Defragmentation = d
}

func changeWindows(m *v1alpha1.Maintenance, a args) {
	if !a.has("windows") {
		return
	}
	m.Windows = nil
	for text := range strings.SplitSeq(a["windows"], ";") {
		if fields := append(strings.Split(text, "|"), ""); text != "none" {
			length := metav1.Duration{Duration: duration(fields[1])}
			m.Windows = append(m.Windows, v1alpha1.MaintenanceWindow{Schedule: fields[0], Duration: length,
				TimeZone: fields[2]})
		}
	}
}

// provided is the name of a Secret that Quorate does not keep: by the spec, or as cert-manager is asked for it.
func (s *story) provided(what string) string {
	if s.w.Cluster().Spec.TLS.Mode == v1alpha1.TLSCertManager {
		return "demo-" + what + "-tls"
	}
	return "their-" + what
}

func (s *story) secret(a args) string {
	if a.has("label") || a.has("unlabel") {
		labels := map[string]string{a["label"]: "demo", a["unlabel"]: ""}
		delete(labels, "")
		for what, cluster := range labels {
			s.w.LabelSecret(s.provided(what), cluster)
		}
		return ""
	}
	life := 1000 * time.Hour
	if a.has("life") {
		life = duration(a["life"])
	}
	c := observation.Certificate{NotBefore: s.w.Now, NotAfter: s.w.Now.Add(life), Client: true}
	for _, what := range []string{"server", "peer", "operator"} {
		if !a.has(what) {
			continue
		}
		switch what {
		case "operator":
			c.CommonName = "root"
		case "peer":
			c.CommonName = "demo:peers"
			fallthrough
		default:
			c.Server, c.Names = true, []string{"*.demo-peers.default.svc", "demo.default.svc"}
		}
		authority := cmp.Or(a["authority"], "theirs")
		s.w.Provide(s.provided(what), "demo", authority, strings.Split(cmp.Or(a["trusts"], authority), ","), c,
			a.has("flaw"))
	}
	return ""
}

func (s *story) delete(a args) string {
	if a.has("cluster") {
		s.w.DeleteCluster(a.has("orphan"))
		return ""
	}
	for kind, name := range a {
		if err := s.w.Delete(world.Kind(kind), name); err != nil {
			return err.Error() + "\n"
		}
	}
	return ""
}

func (s *story) defrag(a args) string {
	s.w.Defragment(a["now"])
	return ""
}

func bytes(text string) int64 {
	if text == "" {
		return 0
	}
	q := resource.MustParse(text)
	return q.Value()
}

func (s *story) status(args) string { s.w.WipeStatus(); return "" }

func (s *story) fence(a args) string {
	s.w.Fence(strings.FieldsFunc(a["member"], func(r rune) bool { return r == ',' })...)
	return ""
}

func (s *story) write(a args) string {
	if a.has("compact") {
		s.w.Compact()
		return ""
	}
	if !a.has("n") && len(a) > 0 {
		if err := s.w.Fill(bytes(a["data"]), bytes(a["over"]), bytes(a["deleted"])); err != nil {
			return err.Error() + "\n"
		}
		return ""
	}
	if !s.w.Write(a.number("n", 1)) {
		return "no leader\n"
	}
	return ""
}

// ---- faults

func (s *story) add(a args) string {
	for _, role := range []string{"voter", "learner"} {
		if name := a[role]; name != "" {
			url := "http://" + name + ":2380"
			if strings.HasPrefix(name, "demo-") {
				url = objects.PeerURL(s.w.Cluster(), name, "")
			}
			s.w.AddByHand(url, role == "learner")
		}
	}
	return ""
}

func (s *story) refuse(a args) string { return refusals(a, s.w.RefuseClass, s.w.Refuse) }

func (s *story) accept(a args) string { return refusals(a, s.w.AcceptClass, s.w.Accept) }

func refusals(a args, class func(string), object func(world.Kind, string)) string {
	for what, name := range a {
		switch what {
		case "kind":
			object(world.Kind(name), "")
		case "priority-class":
			class(name)
		default:
			object(world.Kind(what), name)
		}
	}
	return ""
}

func (s *story) foreign(a args) string {
	version := cmp.Or(a["version"], "3.6.16")
	switch {
	case a.has("start"):
		s.w.ForeignCluster(version, strings.Split(a["start"], ",")...)
	case a.has("stop"):
		s.w.StopForeign(a["stop"])
	case a.has("again"):
		s.w.StartForeign(a["again"], version)
	}
	return ""
}

func (s *story) lose(a args) string {
	if a.has("claim") {
		s.w.LoseClaim(a["claim"])
	}
	if a.has("node") {
		s.w.LoseNode(a["node"])
	}
	return ""
}

func (s *story) node(a args) string {
	if a.has("full") {
		s.w.Full[a["full"]] = true
	}
	delete(s.w.Full, a["room"])
	if a.has("unplaced") {
		s.w.Unplaced[a["unplaced"]] = true
	}
	return ""
}

func (s *story) kubelet(a args) string {
	switch {
	case a.has("slow"):
		s.w.SlowFiles[a["slow"]] = true
	case a.has("prompt"):
		delete(s.w.SlowFiles, a["prompt"])
	case a.has("pod"):
		s.w.Kubelet(a["pod"])
	default:
		s.w.Kubelets()
	}
	return ""
}

func (s *story) image(a args) string {
	for _, repository := range slices.Sorted(maps.Values(a)) {
		s.w.BadImages[repository] = a.has("bad")
	}
	return ""
}

func (s *story) installation(a args) string {
	if a.has("cert-manager") {
		s.w.CertManager = a["cert-manager"] == "true"
		return ""
	}
	s.w.Settings.EtcdRepository, s.w.Settings.Since = a["etcd-repository"], time.Time{}
	if a.has("new") {
		s.w.Settings.Since = s.w.Now
	}
	return ""
}

func (s *story) etcd(a args) string {
	switch {
	case a.has("down"):
		s.w.Net.Down = true
	case a.has("up"):
		s.w.Net.Down = false
	case a.has("counts-late"):
		s.w.Etcd.CountsLate = true
	case a.has("lose-reply"):
		s.w.Etcd.LoseReply = true
	case a.has("pace"):
		s.w.Etcd.LearnerPace = a.number("pace", 0)
	case a.has("tick"):
		s.w.TickEtcd()
	case a.has("caught-up"):
		s.w.CatchUp(a["caught-up"])
	case a.has("leader"):
		s.w.Lead(a["leader"])
	case a.has("defragmentation"):
		s.w.Etcd.DefragmentPasses = a.number("defragmentation", 0)
	case a.has("db"):
		s.w.Etcd.DBSize, s.w.Etcd.DBInUse = int64(a.number("db", 0))<<20, int64(a.number("used", a.number("db", 0)))<<20
	case a.has("auth"):
		s.w.DisableAuth()
	case a.has("connected"):
		s.w.Etcd.ConnectedFor = duration(a["connected"])
	}
	return ""
}

func (s *story) corrupt(a args) string {
	if a.has("pod") {
		s.w.Corrupt(a["pod"], uint32(a.number("as", 1)))
	}
	if a.has("checks") {
		s.w.Etcd.HashChecks = true
		s.w.CheckHashes()
	}
	return ""
}

func (s *story) network(a args) string {
	for what, name := range a {
		switch what {
		case "unreachable":
			s.w.Net.Unreachable[name] = true
		case "isolated":
			s.w.Net.Isolated[name] = true
		case "reachable":
			delete(s.w.Net.Unreachable, name)
		case "joined":
			delete(s.w.Net.Isolated, name)
		case "stranger":
			s.w.Net.Strangers[s.w.Pod(name).Status.PodIP] = true
		case "twin":
			s.w.Net.Twins[s.w.Pod(name).Status.PodIP] = true
		case "healed":
			clear(s.w.Net.Unreachable)
			clear(s.w.Net.Isolated)
			clear(s.w.Net.Strangers)
			clear(s.w.Net.Twins)
		}
	}
	return ""
}

func (s *story) cache(a args) string {
	for kind := range strings.SplitSeq(a["freeze"], ",") {
		if kind != "" {
			s.w.Freeze(world.Kind(kind))
		}
	}
	for kind := range maps.Keys(maps.Clone(s.w.Frozen)) {
		if a.has("thaw") && (a["thaw"] == "" || strings.Contains(a["thaw"], string(kind))) {
			s.w.Thaw(kind)
		}
	}
	return ""
}

func (s *story) tick(a args) string {
	for d := range a {
		s.w.Now = s.w.Now.Add(duration(d))
	}
	return ""
}

// wait lets time pass as it does while Metacontroller runs. The call at its end is the next verb.
func (s *story) wait(a args) string {
	var b strings.Builder
	for text := range a {
		end := s.w.Now.Add(duration(text))
		for end.Sub(s.w.Now) > s.w.Resync {
			b.WriteString(s.next())
			s.w.Pass()
			s.w.Now = s.w.Now.Add(s.w.Resync)
		}
		s.w.Now = end
	}
	return b.String()
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

// ---- Quorate

func (s *story) sync(a args) string {
	crash := world.Crash{At: world.Point(a["crash"]), Writes: a.number("n", 0), Backwards: a["order"] == "backwards"}
	for _, kind := range []world.Kind{world.PodKind, world.ClaimKind, world.ConfigMapKind, world.SecretKind} {
		if a.has(string(kind)) {
			crash.Object = world.Key{Kind: kind, Name: a[string(kind)]}
		}
	}
	return s.told(s.w.Sync(crash))
}

func (s *story) look(args) string { s.held = s.w.Look(); return "" }

func (s *story) call(args) string {
	s.inFlight = s.w.Begin(world.Crash{})
	return s.told(s.inFlight)
}

func (s *story) apply(args) string {
	if s.held != nil {
		c := s.w.Act(s.held)
		s.held = nil
		s.w.Apply(c)
		return s.told(c)
	}
	s.w.Apply(s.inFlight)
	s.inFlight = nil
	return s.writes()
}

func (s *story) twoSyncs(args) string {
	first, second := s.w.BeginTwo()
	s.w.Apply(second)
	out := "second: " + s.told(second)
	s.w.Apply(first)
	return out + "first: " + s.told(first)
}

// told is a call in words.
func (s *story) told(c *world.Call) string {
	if c == nil {
		return "no cluster\n"
	}
	s.last = verdict(c)
	return s.last + outcome(c.Outcome) + lost(c) + s.writes()
}

func verdict(c *world.Call) string {
	if c.Finalizing {
		return fmt.Sprintf("finalize: finalized %t\n", c.Finalized)
	}
	return fmt.Sprintf("%s: %s\n", c.Decision.Reason.Rule, c.Decision.Reason.Message)
}

func outcome(o *decision.Outcome) string {
	switch {
	case o == nil:
		return ""
	case o.Err != "":
		return fmt.Sprintf("  step: %s (%s): %s\n", o.Step, o.Rule, o.Err)
	}
	return fmt.Sprintf("  step: %s (%s)\n", o.Step, o.Rule)
}

func lost(c *world.Call) string {
	if c.Lost {
		return "  the answer is lost\n"
	}
	return ""
}

func (s *story) writes() string {
	var b strings.Builder
	for _, line := range shortened(s.w.TakeLog()) {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// shortened tells what is made of several Secrets in one line, and what is the same about several that change, or
// about pods whose certificates do.
func shortened(log []string) []string {
	var lines []string
	last := ""
	for _, line := range log {
		verb, name, rest := parts(line)
		what := verb + " " + rest
		if n := len(lines) - 1; n >= 0 && what == last && (strings.HasSuffix(verb, " secret") || rest == "serves") {
			lines[n] = strings.TrimSuffix(lines[n], rest)
			lines[n] = strings.TrimSpace(strings.TrimSuffix(lines[n], " ") + ", " + name + " " + rest)
			continue
		}
		lines, last = append(lines, line), what
	}
	return lines
}

// parts of a line of the log: sign and kind, name, and what more there is.
func parts(line string) (verb, name, rest string) {
	words := strings.SplitN(line, " ", 4)
	if words[0] == "!" || len(words) < 3 {
		return line, "", ""
	}
	return words[0] + " " + words[1], words[2], strings.Join(words[3:], "")
}

const (
	enough    = 300 // passes, of a second each or more
	stillness = 5   // of them, 35 seconds in all
)

// stabilize lets everything run until nothing has happened for longer than any rule waits, while time goes faster;
// after that one more call must be quiet (S16).
func (s *story) stabilize(a args) string {
	var b strings.Builder
	still := 0
	for n := range a.number("passes", enough) {
		before := s.w.Changes + s.w.Writes
		b.WriteString(s.next())
		s.w.Pass()
		s.w.Now = s.w.Now.Add(time.Second)
		if still++; s.w.Changes+s.w.Writes != before || s.pauses() {
			still = 0
		}
		s.w.Now = s.w.Now.Add(time.Duration(still) * 2 * time.Second)
		if still == stillness {
			return b.String() + s.quiet()
		}
		if n == enough-1 {
			s.w.Oracle.Broken = append(s.w.Oracle.Broken, "S16: still busy")
		}
	}
	return b.String()
}

// pauses reports whether a run of defragmentation is under way: it pauses for longer than that.
func (s *story) pauses() bool {
	return s.w.Cluster() != nil && s.w.Cluster().Status.Rule == "Defragment"
}

// next is one call, told only when it does or says something new.
func (s *story) next() string {
	last := s.last
	c := s.w.Sync(world.Crash{})
	if c == nil {
		return ""
	}
	if s.last = verdict(c); s.last == last && !changed(c) && len(s.w.Log) == 0 {
		return ""
	}
	return s.last + outcome(c.Outcome) + s.writes()
}

func (s *story) converged(args) string {
	if phase := s.w.Cluster().Status.Rule; phase != "Converged" {
		s.w.Oracle.Broken = append(s.w.Oracle.Broken, "liveness: nothing fails any more, and the cluster stays in "+
			phase)
	}
	return ""
}

// changed reports whether the call changed etcd; a step that was refused did not.
func changed(c *world.Call) bool { return c.Outcome != nil && c.Outcome.Err == "" }

func (s *story) quiet() string {
	before := s.w.Writes
	c := s.w.Sync(world.Crash{})
	if wrote := s.writes(); s.w.Writes != before || c != nil && changed(c) {
		s.w.Oracle.Broken = append(s.w.Oracle.Broken, "S16: a call after everything is stable writes "+wrote)
	}
	return ""
}
