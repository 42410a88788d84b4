package scenario

import (
	"fmt"
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
	wanders(t, 1, func(w *walker) string {
		j := &journey{walker: w}
		j.begins()
		for range 8 {
			j.lives()
			j.turns()
			if j.settle(); len(j.w.Oracle.Broken) > 0 || j.w.Cluster().Status.Rule != "Converged" {
				return "it stays in " + j.w.Cluster().Status.Rule + "\n"
			}
		}
		return ""
	})
}

// journey is a cluster on its way from epoch to epoch.
type journey struct {
	*walker
	restores int
}

// clientsWrite is what clients do between two looks at the most.
const clientsWrite = "write n=0..998999999"

func (j *journey) begins() {
	medium := of(j.walker, "Persistent", "Persistent", "Memory", "HostPath nodes=a,b,c,d,e,f")
	existing := ""
	if j.oneIn(3) { // it moves in, with revisions of its own
		j.foreign(args{"start": "old-0"})
		existing = " existing=old-0 retire=true"
		j.tell("write n=" + fmt.Sprint(j.r.IntN(999_000_000)))
		j.tell("write n=" + fmt.Sprint(j.r.IntN(999_000_000)))
	}
	j.happens("cluster replicas=1..3 tls=Disabled medium=" + medium + existing)
	j.settle()
}

// lives lets clients write and people take snapshots, while Quorate looks on.
func (j *journey) lives() {
	for range 1 + j.r.IntN(3) {
		j.happens(clientsWrite + "; sync")
		if len(j.w.Artifacts) == 0 || j.oneIn(2) {
			j.happens("snapshot name=NEXT url=s3://bucket/NEXT")
		}
		j.tell("tick 1m")
	}
	if j.oneIn(4) {
		j.happens("status wipe; delete configmap=" + objects.EpochName("demo", int(j.epoch())))
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

// turns asks for the next epoch.
func (j *journey) turns() {
	j.restores++
	epoch := j.epoch()
	onClaims := j.w.Cluster().Spec.Storage.Medium == v1alpha1.Persistent
	n := j.r.IntN(5)
	if n > 2 {
		j.losesQuorum(epoch, n == 4 && onClaims)
		return
	}
	from := fmt.Sprintf("from=s1..%d", len(j.w.Artifacts))
	if n == 0 && epoch > 1 && onClaims {
		if former := 1 + j.r.Int64N(epoch-1); j.left(former) {
			from = fmt.Sprintf("epoch=%d", former)
		}
	}
	j.happens(fmt.Sprintf("edit restore=j%d %s", j.restores, from))
	if j.oneIn(2) {
		j.happens(clientsWrite) // while it is made ready
	}
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

// losesQuorum takes the data of most members away right after writes that Quorate does not see, and asks for one of the
// ways back.
func (j *journey) losesQuorum(epoch int64, survivor bool) {
	j.happens(clientsWrite)
	pods, _ := j.names()
	for _, name := range pods[len(pods)/2:] {
		if j.w.Claim(name) != nil {
			j.tell("lose claim=" + name)
		} else {
			j.w.WipeData(name)
			j.tell("kill pod=" + name)
		}
	}
	policy := of(j.walker, v1alpha1.RecoverFromSnapshot, v1alpha1.RecoverRecreate)
	if survivor && len(pods) > 1 {
		policy = v1alpha1.RecoverFromSurvivor
	}
	j.happens(fmt.Sprintf("sync; recover by=%s:%d", policy, epoch))
}

// settle lets everything run until the cluster is as it should be, for so long that no wait is forgotten.
func (j *journey) settle() {
	writes := 2 // while the next epoch is made ready, and while the one before is stopped
	for range 150 {
		j.w.Sync(world.Crash{})
		if writes > 0 && len(j.records()) > 1 && j.oneIn(3) {
			writes--
			j.happens("write n=0..498999999")
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
