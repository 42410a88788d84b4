package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
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
	for seed := range uint64(walks()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			j := newJourney(seed)
			for range 8 {
				j.live()
				j.turn()
				j.settle()
				if broken := j.s.breaches(); len(broken) > 0 {
					t.Fatalf("VIOLATION %s\n%s", broken, strings.Join(j.told, "\n"))
				}
				if phase := j.s.w.Cluster().Status.Rule; phase != "Converged" {
					t.Fatalf("it stays in %s\n%s\n%s", phase, strings.Join(j.told, "\n"), j.s.check(args{}))
				}
			}
		})
	}
}

// journey is a cluster on its way from epoch to epoch.
type journey struct {
	s         *story
	r         *rand.Rand
	told      []string
	snapshots int
	turns     int
}

func newJourney(seed uint64) *journey {
	j := &journey{s: newStory(), r: rand.New(rand.NewPCG(seed, 1))}
	j.s.w.Watch = false
	medium := []string{"Persistent", "Persistent", "Memory", "HostPath"}[j.r.IntN(4)]
	a := args{"replicas": fmt.Sprint(1 + j.r.IntN(3)), "medium": medium, "tls": "Disabled"}
	if medium == "HostPath" {
		a["nodes"] = "a,b,c,d,e,f"
	}
	if j.r.IntN(3) == 0 { // it moves in, with revisions of its own
		j.s.w.ForeignCluster("3.6.16", "old-0")
		j.write()
		j.write()
		a["existing"] = "old-0"
		a["retire"] = "true"
	}
	j.note("cluster %v", a)
	j.s.cluster(a)
	j.settle()
	return j
}

func (j *journey) note(format string, a ...any) { j.told = append(j.told, fmt.Sprintf(format, a...)) }

// write is what clients do between two looks at the most.
func (j *journey) write() {
	n := j.r.IntN(999_000_000)
	j.note("write n=%d: %t", n, j.s.w.Write(n))
}

// live lets clients write and people take snapshots, while Quorate looks on.
func (j *journey) live() {
	for range 1 + j.r.IntN(3) {
		j.write()
		j.s.w.Sync(world.Crash{})
		if j.snapshots == 0 || j.r.IntN(2) == 0 {
			j.snapshots++
			name := fmt.Sprint("s", j.snapshots)
			j.s.w.TakeSnapshot(name, "s3://bucket/"+name, "")
			j.note("snapshot name=%s", name)
		}
		j.s.w.Now = j.s.w.Now.Add(time.Minute)
	}
	if j.r.IntN(4) == 0 {
		j.s.w.WipeStatus()
		record := objects.EpochName("demo", int(j.epoch()))
		j.note("status wipe, delete configmap=%s: %v", record, j.s.w.Delete(world.ConfigMapKind, record))
		j.settle()
	}
}

// epoch that runs, by what there is.
func (j *journey) epoch() (n int64) {
	for _, record := range j.s.records() {
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
	onClaims := j.s.w.Cluster().Spec.Storage.Medium == v1alpha1.Persistent
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
	j.s.w.AskRestore(fmt.Sprint("r", j.turns), wish)
	if j.r.IntN(2) == 0 {
		j.write() // while it is made ready
	}
}

func (j *journey) anySnapshot() *v1alpha1.SnapshotSource {
	return &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: fmt.Sprint("s", 1+j.r.IntN(j.snapshots))}}
}

// left reports whether a volume of the epoch is left.
func (j *journey) left(epoch int64) bool {
	for _, claim := range j.s.w.Claims() {
		if claim.Annotations[objects.AnnotationEpoch] == fmt.Sprint(epoch) {
			return true
		}
	}
	return false
}

// loseQuorum takes the data of most members away right after writes that Quorate does not see, and asks for one of
// the ways back.
func (j *journey) loseQuorum(epoch int64, survivor bool) {
	j.write()
	pods, _ := j.s.names()
	lost := pods[len(pods)/2:]
	if len(pods) == 1 {
		survivor = false
	}
	for _, name := range lost {
		if j.s.w.Claim(name) != nil {
			j.s.w.LoseClaim(name)
		} else {
			j.s.w.WipeData(name)
			j.s.w.KillPod(name)
		}
	}
	policies := []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSnapshot, v1alpha1.RecoverRecreate}
	if survivor {
		policies = []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor}
	}
	policy := policies[j.r.IntN(len(policies))]
	j.note("lose %v of %v; recover by=%s:%d", lost, pods, policy, epoch)
	j.s.w.Sync(world.Crash{})
	j.s.w.AskRecover(policy, epoch)
}

// settle lets everything run until the cluster is as it should be, for so long that no wait is forgotten.
func (j *journey) settle() {
	writes := 2 // while the next epoch is made ready, and while the one before is stopped
	for range 150 {
		j.s.w.Sync(world.Crash{})
		if writes > 0 && len(j.s.records()) > 1 && j.r.IntN(3) == 0 {
			writes--
			n := j.r.IntN(499_000_000)
			j.note("write n=%d: %t", n, j.s.w.Write(n))
		}
		j.s.w.Pass()
		j.s.w.Now = j.s.w.Now.Add(10 * time.Second)
		if c := j.s.w.Cluster(); c.Status.Rule == "Converged" && len(j.s.records()) == 1 && j.restored() {
			return
		}
	}
}

// restored reports whether nothing that was asked for is still to come.
func (j *journey) restored() bool {
	return len(j.s.w.Operations(v1alpha1.OperationRestore)) == 0 &&
		len(j.s.w.Operations(v1alpha1.OperationRecover)) == 0
}
