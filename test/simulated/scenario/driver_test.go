package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// story is a world and how much of it has been told.
type story struct {
	w        *world.World
	inFlight []*world.Call // the oldest first
	held     *world.Held
	broken   int
	words    // stabilize does not repeat the last
}

func newStory(told words) *story {
	w := world.New()
	w.Watch = true
	return &story{w: w, words: told}
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
	// cluster [name=demo] [replicas=3] [medium=Memory | medium=HostPath nodes=a,b,c] [addresses nodes=a,b,c: on the
	// hosts' network] [version=3.6.16] [tls=Disabled] [leaf=100h] [ca=200h] [ready]: kubectl apply, and wait
	"cluster": does((*story).cluster),
	// elsewhere: what follows is told of another world, in which nothing has happened yet
	"elsewhere": does((*story).elsewhere),
	// edit replicas=5: kubectl edit, with the words of clusterFields (none takes away what may be missing) and
	// members=NodePort [domain=etcd.example.com] | nodes=a,b,c | windows=0_2_*_*_6|4h|Europe/Berlin;0_3_*_*_0|30m |
	// external=old-0,old-1 | users=app,ops; and what is asked by EtcdOperations:
	// restore=id from=s1|url=s3://bucket/s1 [stop-first=true] | restore=id epoch=1 | restore=none;
	// for a new cluster: bootstrap=s1 | url=s3://bucket/s1 | claims=old-0,old-1 [without-quorum=true]
	// | latest=BeginEmpty|Wait [folder=default/old]
	"edit": does((*story).edit),
	// delete pod=demo-1 | claim=demo-1 | configmap=demo-epoch-1 | secret=demo-ca | cluster [orphan]: kubectl delete
	"delete": (*story).delete,
	// claim grow=demo-1 size=3Gi: kubectl edit; claim failed=demo-1 | count=demo-1: kubectl annotate
	"claim": does((*story).claim),
	// record forge=2 | gone=2 | keep | again | set=next-member to=0: who may write ConfigMaps makes the record of an
	// epoch with all that one has, keeps the records that there are, puts them back, or edits that of the epoch that
	// runs
	"record": does((*story).record),
	// key lost | next | turn | spent: installed with another key for records; with the next one as well, which seals
	// then, and which alone is left
	"key": does((*story).key),
	// secret server|peer|operator [life=1000h] [authority=theirs] [trusts=theirs,next] [flaw]: a person keeps it, for
	// tls=Secrets or tls=CertManager; secret revoked=L1 [serials=7,8] [flaw]: a list, for revoked=; secret
	// unlabel=server | label=server: kubectl label
	"secret": does((*story).secret),
	// velero [owners=stripped] [without=claims] [by=kubectl]: the namespace is gone, and is made again from a backup of
	// before, with its claims on the same volumes
	"velero": does((*story).velero),
	"status": does(func(s *story, _ args) { s.w.WipeStatus() }), // status wipe
	"fence":  does((*story).fence),                              // fence member=demo-1,demo-2 | fence: kubectl annotate
	// snapshot name=s1 url=s3://bucket/s1 [flaw=Damaged] [schedule=nightly] | name=s1 fails=why schedule=nightly: what
	// clients have written is in a store, and an EtcdSnapshot tells of it
	"snapshot": does(func(s *story, a args) {
		if a.has("fails") {
			s.w.FailSnapshot(a["name"], a["fails"], a["schedule"])
			return
		}
		s.w.TakeSnapshot(a["name"], a["url"], a["flaw"], a["schedule"])
	}),
	// artifact url=s3://bucket/latest: what clients have written is in a store, in the place of what was there, and
	// no EtcdSnapshot tells of it
	"artifact": does(func(s *story, a args) { s.w.StoreArtifact(a["url"], "") }),
	// store down=why | up: no store answers a pod that looks into it, or all do again
	"store": does(func(s *story, a args) { s.w.StoreDown = a["down"] }),
	// stream [flaw=users_have_changed]: a stream has stored what clients have written; and why no more can be restored
	"stream":  does(func(s *story, a args) { s.w.Stream(a["flaw"]) }),
	"ask":     does((*story).ask),       // ask recover=Recreate:1: as recover, and what was asked before stays
	"recover": does((*story).recoverBy), // recover by=FromSurvivor:1: an EtcdOperation
	"move":    does((*story).move),      // move leader=demo-1: an EtcdOperation
	// write n=10 | data=10Mi over=10Mi deleted=10Mi | compact: clients write new keys, over old ones, delete; a
	// person compacts
	"write":  (*story).write,
	"defrag": does(func(s *story, a args) { s.w.Defragment(a["now"]) }), // defrag now=1: kubectl annotate

	// what happens
	// kill pod=demo-1: gone at once
	"kill": fault((*world.World).KillPod),
	// empty pod=demo-1: its directory is emptied under it, the pod stays
	"empty": fault((*world.World).EmptyData),
	// crash pod=demo-1: its etcd dies, and whenever it is started again
	"crash": fault((*world.World).Crash),
	// full pod=demo-1: its volume is full, of which its etcd dies, until the volume has grown
	"full": fault((*world.World).FillDisk),
	// disk demo-1 fsync=200ms: so long a sync of etcd's log takes on the member's disk
	"disk": does((*story).disk),
	// zone demo-1=eu-1a: where the node is that takes the member's pod next
	"zone": does(func(s *story, a args) { maps.Copy(s.w.Zones, a) }),
	// mend pod=demo-1: it no longer does
	"mend": fault((*world.World).Mend),
	// add voter=demo-7 | learner=demo-7 | voter=elsewhere: etcdctl member add
	"add": does((*story).add),
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
	"lose": does((*story).lose),
	// heal node=demo-1 | node=node-a
	"heal": fault((*world.World).HealNode),
	// image bad=repository | good=repository: it can't be pulled; or one image of it, repository:v3.6.18
	"image": does((*story).image),
	// metacontroller apply=server-side | apply=dynamic: it starts with another --apply-strategy
	"metacontroller": does(func(s *story, a args) { s.w.ServerSideApply = a["apply"] == "server-side" }),
	// installation etcd-repository=mirror.example/etcd [new] | cert-manager=true | cert-manager=false: Quorate is
	// installed with another setting, and has begun to answer now
	"installation": does((*story).installation),
	// volumes fixed=class | expandable=class | broken=demo-1 | mended=demo-1 | offline | no-class=fast | class=fast:
	// which storage class does not exist
	"volumes": (*story).mark,
	// admission class=slow | size=1Gi | admission: a webhook puts that into claims that are made, or nothing any more
	"admission": does(func(s *story, a args) { s.w.Admitted.Class, s.w.Admitted.Size = a["class"], a["size"] }),
	// node full=demo-1 | room=demo-1: no node takes its pod; unplaced=high: nor any pod of this priority class
	"node": (*story).mark,
	// refuse kind=pod | pod=demo-2 | priority-class=high: the API server makes none, as over a quota
	"refuse": does(func(s *story, a args) { s.refuses(a, true) }),
	// accept, with the same words: it does again; without any: it makes everything
	"accept": does((*story).accept),
	// external start=old-0,old-1 [version=3.6.16] | stop=old-0 | again=old-0: an etcd that runs outside of Kubernetes
	"external": does((*story).external),
	// etcd down | up | tick | connected=5s | lose-reply | counts-late | pace=3 | caught-up=demo-3 | leader=demo-1 |
	// lagging=demo-1 (a voter: clients write so much that it needs a snapshot, which is long on its way) |
	// defragmentation=3 (passes) | db=900 used=100 (MiB) | auth=off: etcdctl auth disable
	"etcd": does((*story).etcd),
	// corrupt pod=demo-1 [as=2] | checks: other data in a member's database; etcd compares the members' from now on
	"corrupt": does((*story).corrupt),
	// network unreachable=demo-1 | reachable=demo-1 | isolated=demo-1 | joined=demo-1 | another-etcd=demo-1 |
	// twin=demo-1 | healed
	"network": (*story).mark,
	// cache freeze=pod,claim | thaw=pod | thaw
	"cache": does((*story).cache),
	// tick 30s: time passes, and no call is made
	"tick": does((*story).tick),
	// clock ahead=1500h | ahead=-200h | ahead=0s: that of Quorate alone is wrong, or right again
	"clock": does(func(s *story, a args) { s.w.Ahead = duration(a["ahead"]) }),
	// Kubernetes and etcd move one step
	"pass": does(func(s *story, _ args) { s.w.Pass() }),
	// the nodes alone do, or that of pod=demo-1; slow=demo-1 | prompt=demo-1: whether its files follow the Secrets
	"kubelet": (*story).kubelet,
	// probe [fails]: every kubelet asks its etcd whether it is ready, or is kept from asking
	"probe": does((*story).probe),
	// the garbage collector alone does
	"collect": does(func(s *story, _ args) { s.w.Collect() }),

	// what Quorate does
	// one call, applied [crash=before-step|step|deletes|before-status] [crash=writes n=2] [crash=before pod=demo-3
	// order=backwards]
	"sync": (*story).sync,
	"call": (*story).call, // one call whose answer stays in flight
	// one call that has decided, and whose step stays in flight
	"look":      does(func(s *story, _ args) { s.held = s.w.Look() }),
	"apply":     (*story).apply,     // the answer in flight arrives, or the step and then its answer
	"two-syncs": (*story).twoSyncs,  // two overlapping calls, both carrying out their step, both applied
	"replay":    (*story).replay,    // and below it a journal (quorate replay --as-story): it is decided once more
	"stabilize": (*story).stabilize, // calls and passes until nothing moves any more [passes=n]
	// wait 5m: time passes, with a call and a pass every resync period; the one at its end is the next verb
	"wait":         (*story).wait,
	"check":        (*story).check,        // how things are
	"space":        (*story).space,        // how large the databases are, and what became of runs of defragmentation
	"revisions":    (*story).revisions,    // which revisions each epoch has given out
	"clients":      (*story).clients,      // where the client Service leads
	"endpoints":    (*story).endpoints,    // which URLs etcd lists, and where the members' own Services lead
	"certificates": (*story).certificates, // which there are, and what the members trust
	"operations":   (*story).operations,   // how far EtcdOperations have come, and whether they wait for a person
	"users":        (*story).users,        // which etcd has, and whether it asks clients who they are
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

// does makes a verb of what says nothing.
func does[S any](do func(S, args)) func(S, args) string {
	return func(s S, a args) string {
		do(s, a)
		return ""
	}
}

func fault(do func(*world.World, string)) func(*story, args) string {
	return does(func(s *story, a args) { do(s.w, a.only()) })
}

// ---- people

func (s *story) cluster(a args) {
	name := a["name"]
	if name == "" {
		name = "demo"
	}
	spec := v1beta1.EtcdClusterSpec{Version: "3.6.16", Storage: v1beta1.StorageSpec{Medium: v1beta1.Persistent,
		Size: resource.MustParse("1Gi")}}
	change(&spec, a)
	s.w.CreateCluster(name, spec)
	s.askRestore(a)
	if a.has("ready") {
		s.stabilize(args{})
	}
}

func (s *story) elsewhere(args) {
	other := world.New()
	other.Watch, other.Mesh, other.Journal = s.w.Watch, s.w.Mesh, s.w.Journal
	s.w, s.broken, s.last = other, 0, ""
}

func (s *story) edit(a args) {
	s.w.EditSpec(func(spec *v1beta1.EtcdClusterSpec) { change(spec, a) })
	s.askRestore(a)
}

// askRestore has the cluster restored, or takes that back.
func (s *story) askRestore(a args) {
	if !a.has("restore") {
		return
	}
	r := v1beta1.RestoreOperation{StopFirst: a["stop-first"] == "true"}
	switch {
	case a["restore"] == "none":
		s.w.Withdraw(v1beta1.OperationRestore)
		return
	case a.has("epoch"):
		r.Epoch = new(int64(a.number("epoch", 1)))
	default:
		r.Snapshot = source(a, "from")
	}
	s.w.AskRestore(a["restore"], r)
}

func (s *story) recoverBy(a args) {
	policy, epoch, _ := strings.Cut(a["by"], ":")
	n, _ := strconv.ParseInt(epoch, 10, 64)
	s.w.AskRecover(v1beta1.QuorumLoss(policy), n)
}

func (s *story) velero(a args) {
	labels := map[string]string{objects.LabelRestored: "friday"}
	if a["by"] == "kubectl" {
		labels = nil
	}
	s.w.RestoreNamespace(labels, a["owners"] == "stripped", a["without"] != "claims")
}

// ask creates an operation, and leaves those that there are.
func (s *story) ask(a args) {
	policy, epoch, _ := strings.Cut(a["recover"], ":")
	n, _ := strconv.ParseInt(epoch, 10, 64)
	s.w.Operate("recover-"+strings.ToLower(policy), v1beta1.EtcdOperationSpec{Type: v1beta1.OperationRecover,
		Recover: &v1beta1.RecoverOperation{Policy: v1beta1.QuorumLoss(policy), Epoch: n}})
}

func (s *story) move(a args) {
	s.w.Operate("move-to-"+a["leader"], v1beta1.EtcdOperationSpec{Type: v1beta1.OperationMoveLeader,
		MoveLeader: &v1beta1.MoveLeaderOperation{To: a["leader"]}})
}

func (s *story) claim(a args) {
	if !a.has("grow") {
		s.w.MarkFailed(a.only(), a.has("failed"))
		return
	}
	s.w.GrowClaim(a["grow"], resource.MustParse(a["size"]))
}

// provided is the name of a Secret that Quorate does not keep: by the spec, or as cert-manager is asked for it.
func (s *story) provided(what string) string {
	if s.w.Cluster().Spec.TLS.Mode == v1beta1.TLSCertManager {
		return "demo-" + what + "-tls"
	}
	return "their-" + what
}

func (s *story) secret(a args) {
	if a.has("label") || a.has("unlabel") {
		labels := map[string]string{a["label"]: "demo", a["unlabel"]: ""}
		delete(labels, "")
		for what, cluster := range labels {
			s.w.LabelSecret(s.provided(what), cluster)
		}
		return
	}
	if a.has("revoked") {
		list := observation.CRL{ID: a["revoked"], Serials: strings.Split(a["serials"], ",")}
		if a.has("flaw") {
			list.Flaw = "ca.crl is no list"
		}
		s.w.Revoke("revoked", "demo", list)
		return
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

func bytes(text string) int64 {
	if text == "" {
		return 0
	}
	q := resource.MustParse(text)
	return q.Value()
}

func (s *story) fence(a args) {
	s.w.Fence(strings.FieldsFunc(a["member"], func(r rune) bool { return r == ',' })...)
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

func (s *story) add(a args) {
	for _, role := range []string{"voter", "learner"} {
		if name := a[role]; name != "" {
			url := "http://" + name + ":2380"
			if strings.HasPrefix(name, "demo-") {
				url = objects.PeerURL(s.w.Cluster(), name, "")
			}
			s.w.AddByHand(url, role == "learner")
		}
	}
}

// mark notes of what has a name that something holds for it from now on, or no longer.
func (s *story) mark(a args) string {
	w, net := s.w, &s.w.Net
	holds := map[string]map[string]bool{
		"broken": w.BrokenVolumes, "fixed": w.FixedClasses, "full": w.Full, "isolated": net.Isolated,
		"no-class": w.NoStorage, "slow": w.SlowFiles, "unplaced": w.Unplaced, "unreachable": net.Unreachable,
	}
	holdsNot := map[string]map[string]bool{
		"class": w.NoStorage, "expandable": w.FixedClasses, "joined": net.Isolated, "mended": w.BrokenVolumes,
		"prompt": w.SlowFiles, "reachable": net.Unreachable, "room": w.Full,
	}
	for what, name := range a {
		switch {
		case holds[what] != nil:
			holds[what][name] = true
		case holdsNot[what] != nil:
			delete(holdsNot[what], name)
		case what == "another-etcd":
			net.OtherEtcds[w.Pod(name).Status.PodIP] = true
		case what == "twin":
			net.Twins[w.Pod(name).Status.PodIP] = true
		case what == "offline":
			w.OfflineVolumes = true
		case what == "healed":
			clear(net.Unreachable)
			clear(net.Isolated)
			clear(net.OtherEtcds)
			clear(net.Twins)
		default:
			return "nothing can be " + what + "\n"
		}
	}
	return ""
}

// refuses notes that the API server makes none of these from now on, or that it does again.
func (s *story) refuses(a args, none bool) {
	for what, name := range a {
		switch what {
		case "priority-class":
			s.w.NoPriority[name] = none
		case "kind":
			s.w.Refused[world.Key{Kind: world.Kind(name)}] = none
		default:
			s.w.Refused[world.Key{Kind: world.Kind(what), Name: name}] = none
		}
	}
}

func (s *story) accept(a args) {
	if len(a) == 0 {
		clear(s.w.Refused)
	}
	s.refuses(a, false)
}

func (s *story) external(a args) {
	version := cmp.Or(a["version"], "3.6.16")
	switch {
	case a.has("start"):
		s.w.ExternalCluster(version, strings.Split(a["start"], ",")...)
	case a.has("stop"):
		s.w.StopExternal(a["stop"])
	case a.has("again"):
		s.w.StartExternal(a["again"], version)
	}
}

func (s *story) lose(a args) {
	if a.has("claim") {
		s.w.LoseClaim(a["claim"])
	}
	if a.has("node") {
		s.w.LoseNode(a["node"])
	}
}

func (s *story) kubelet(a args) string {
	switch {
	case a.has("slow"), a.has("prompt"):
		return s.mark(a)
	case a.has("pod"):
		s.w.Kubelet(a["pod"])
	default:
		s.w.Kubelets()
	}
	return ""
}

func (s *story) probe(a args) {
	if a.has("fails") {
		s.w.ProbesFail()
	} else {
		s.w.Probe()
	}
}

func (s *story) image(a args) {
	for _, repository := range slices.Sorted(maps.Values(a)) {
		s.w.BadImages[repository] = a.has("bad")
	}
}

func (s *story) installation(a args) {
	if a.has("cert-manager") {
		s.w.CertManager = a["cert-manager"] == "true"
		return
	}
	s.w.Settings.EtcdRepository, s.w.Settings.Since = a["etcd-repository"], time.Time{}
	if a.has("new") {
		s.w.Settings.Since = s.w.Now
	}
}

func (s *story) disk(a args) {
	for word := range a {
		if word != "fsync" {
			s.w.SetDisk(word, duration(a["fsync"]))
		}
	}
}

func (s *story) etcd(a args) {
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
	case a.has("lagging"):
		s.w.Lag(a["lagging"])
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
}

func (s *story) corrupt(a args) {
	if a.has("pod") {
		s.w.Corrupt(a["pod"], uint32(a.number("as", 1)))
	}
	if a.has("checks") {
		s.w.Etcd.HashChecks = true
		s.w.CheckHashes()
	}
}

func (s *story) cache(a args) {
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
}

func (s *story) tick(a args) {
	for d := range a {
		s.w.Now = s.w.Now.Add(duration(d))
	}
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

func (s *story) call(args) string {
	c := s.w.Begin(world.Crash{})
	s.inFlight = append(s.inFlight, c)
	return s.told(c)
}

func (s *story) apply(args) string {
	if s.held != nil {
		c := s.w.Act(s.held)
		s.held = nil
		s.w.Apply(c)
		return s.told(c)
	}
	s.w.Apply(s.inFlight[0])
	s.inFlight = s.inFlight[1:]
	return s.writes()
}

func (s *story) twoSyncs(args) string {
	first, second := s.w.BeginTwo()
	s.w.Apply(second)
	out := "second call:\n" + s.told(second)
	s.w.Apply(first)
	return out + "first call:\n" + s.told(first)
}

// told is a call in words.
func (s *story) told(c *world.Call) string {
	if c == nil {
		return "no cluster\n"
	}
	out := step(c.Outcome)
	if c.Outcome != nil {
		s.shown[fired{"EtcdCluster", facts.ModeHasQuorum, c.Outcome.Rule}] = true // no step is taken in another mode
	}
	if c.Finalizing {
		s.last = verdict(c)
		out += s.last + "\n"
	} else {
		out += s.decided("EtcdCluster", c.Decision.Mode, c.Decision.Reason)
	}
	if c.Lost {
		out += "  the answer is lost\n"
	}
	return out + s.writes()
}

func verdict(c *world.Call) string {
	if c.Finalizing {
		return fmt.Sprintf("finalize: finalized %t", c.Finalized)
	}
	return aloud(c.Decision.Reason.Rule, c.Decision.Reason.Message)
}

// step is what the call had etcd do before it decided about the children.
func step(o *decision.Outcome) string {
	switch {
	case o == nil:
		return ""
	case o.Err != "":
		return fmt.Sprintf("step: %s (%s): %s\n", o.Step, o.Rule, o.Err)
	}
	return fmt.Sprintf("step: %s (%s)\n", o.Step, o.Rule)
}

// writes are the children that were made, deleted and changed; in one line where the same becomes of several.
func (s *story) writes() string {
	var all strings.Builder
	for _, line := range together(s.w.TakeLog(), ofChild) {
		all.WriteString("  " + line + "\n")
	}
	return all.String()
}

var child = regexp.MustCompile(`^((?:! )?[-+~] \w+) ([^ :]+)(.*)$`)

// ofChild parts a line of the log: sign and kind, name, and what more there is.
func ofChild(line string) (what, name, rest string) {
	words := child.FindStringSubmatch(line)
	if words == nil {
		return line, "", ""
	}
	return words[1], words[2], words[3]
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
	c := s.w.Sync(world.Crash{})
	if c == nil || s.last == verdict(c) && !changed(c) && len(s.w.Log) == 0 {
		return ""
	}
	return s.told(c)
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
