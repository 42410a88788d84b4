package scenario

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// TestRevisionsNeverGoBack takes a cluster through epochs of all sources, with up to a thousand million writes
// between any two looks at it, and half of these unseen. Each epoch must begin above every revision that an earlier
// one gave out (S21, which the world watches).
func TestRevisionsNeverGoBack(t *testing.T) {
	wanders(t, 1, func(s *story, r *rand.Rand, tell func(string)) string {
		j := &journey{story: s, r: r, tell: tell}
		j.begin()
		for range 8 {
			j.live()
			j.turn()
			if j.settle(); len(s.w.Oracle.Broken) > 0 || s.w.Cluster().Status.Rule != "Converged" {
				return "it stays in " + s.w.Cluster().Status.Rule + "\n"
			}
		}
		return ""
	})
}

// journey is a cluster on its way from epoch to epoch.
type journey struct {
	*story
	r                *rand.Rand
	tell             func(string)
	snapshots, turns int
}

func (j *journey) begin() {
	medium := []string{"Persistent", "Persistent", "Memory", "HostPath"}[j.r.IntN(4)]
	a := args{"replicas": fmt.Sprint(1 + j.r.IntN(3)), "medium": medium, "tls": "Disabled"}
	if medium == "HostPath" {
		a["nodes"] = "a,b,c,d,e,f"
	}
	if j.r.IntN(3) == 0 { // it moves in, with revisions of its own
		j.w.ForeignCluster("3.6.16", "old-0")
		j.clientsWrite()
		j.clientsWrite()
		a["existing"] = "old-0"
		a["retire"] = "true"
	}
	j.note("cluster %v", a)
	j.cluster(a)
	j.settle()
}

func (j *journey) note(format string, a ...any) { j.tell(fmt.Sprintf(format+"\n", a...)) }

// clientsWrite is what clients do between two looks at the most.
func (j *journey) clientsWrite() {
	n := j.r.IntN(999_000_000)
	j.note("write n=%d: %t", n, j.w.Write(n))
}

// live lets clients write and people take snapshots, while Quorate looks on.
func (j *journey) live() {
	for range 1 + j.r.IntN(3) {
		j.clientsWrite()
		j.w.Sync(world.Crash{})
		if j.snapshots == 0 || j.r.IntN(2) == 0 {
			j.snapshots++
			name := fmt.Sprint("s", j.snapshots)
			j.w.TakeSnapshot(name, "s3://bucket/"+name, "")
			j.note("snapshot name=%s", name)
		}
		j.w.Now = j.w.Now.Add(time.Minute)
	}
	if j.r.IntN(4) == 0 {
		j.w.WipeStatus()
		record := objects.EpochName("demo", int(j.epoch()))
		j.note("status wipe, delete configmap=%s: %v", record, j.w.Delete(world.ConfigMapKind, record))
		j.settle()
	}
}

// epoch that runs, by what there is.
func (j *journey) epoch() (n int64) {
	for _, record := range j.records() {
		var of int64
		if _, err := fmt.Sscanf(record.Name, "demo-epoch-%d", &of); err != nil {
			panic(err)
		}
		n = max(n, of)
	}
	return n
}

// turn asks for the next epoch.
func (j *journey) turn() {
	j.turns++
	wish := v1alpha1.RestoreOperation{}
	epoch := j.epoch()
	onClaims := j.w.Cluster().Spec.Storage.Medium == v1alpha1.Persistent
	switch n := j.r.IntN(5); {
	case n == 0 && epoch > 1 && onClaims:
		wish.Epoch = new(1 + int64(j.r.IntN(int(epoch-1))))
		if !j.left(*wish.Epoch) {
			wish.Epoch, wish.Snapshot = nil, j.anySnapshot()
		}
	case n <= 2:
		wish.Snapshot = j.anySnapshot()
	default:
		j.loseQuorum(epoch, n == 4 && onClaims)
		return
	}
	j.note("restore %+v", wish)
	j.w.AskRestore(fmt.Sprint("r", j.turns), wish)
	if j.r.IntN(2) == 0 {
		j.clientsWrite() // while it is made ready
	}
}

func (j *journey) anySnapshot() *v1alpha1.SnapshotSource {
	return &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: fmt.Sprint("s", 1+j.r.IntN(j.snapshots))}}
}

// left reports whether a volume of the epoch is left.
func (j *journey) left(epoch int64) bool {
	for _, claim := range j.w.Claims() {
		if claim.Annotations[objects.AnnotationEpoch] == fmt.Sprint(epoch) {
			return true
		}
	}
	return false
}

// loseQuorum takes the data of most members away right after writes that Quorate does not see, and asks for one of
// the ways back.
func (j *journey) loseQuorum(epoch int64, survivor bool) {
	j.clientsWrite()
	pods, _ := j.names()
	lost := pods[len(pods)/2:]
	if len(pods) == 1 {
		survivor = false
	}
	for _, name := range lost {
		if j.w.Claim(name) != nil {
			j.w.LoseClaim(name)
		} else {
			j.w.WipeData(name)
			j.w.KillPod(name)
		}
	}
	policies := []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSnapshot, v1alpha1.RecoverRecreate}
	if survivor {
		policies = []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor}
	}
	policy := policies[j.r.IntN(len(policies))]
	j.note("lose %v of %v; recover by=%s:%d", lost, pods, policy, epoch)
	j.w.Sync(world.Crash{})
	j.w.AskRecover(policy, epoch)
}

// settle lets everything run until the cluster is as it should be, for so long that no wait is forgotten.
func (j *journey) settle() {
	writes := 2 // while the next epoch is made ready, and while the one before is stopped
	for range 150 {
		j.w.Sync(world.Crash{})
		if writes > 0 && len(j.records()) > 1 && j.r.IntN(3) == 0 {
			writes--
			n := j.r.IntN(499_000_000)
			j.note("write n=%d: %t", n, j.w.Write(n))
		}
		j.w.Pass()
		j.w.Now = j.w.Now.Add(10 * time.Second)
		if c := j.w.Cluster(); c.Status.Rule == "Converged" && len(j.records()) == 1 && j.restored() {
			return
		}
	}
}

// restored reports whether nothing that was asked for is still to come.
func (j *journey) restored() bool {
	return len(j.w.Operations(v1alpha1.OperationRestore)) == 0 &&
		len(j.w.Operations(v1alpha1.OperationRecover)) == 0
}
