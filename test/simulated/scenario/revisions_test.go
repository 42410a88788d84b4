package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// TestRevisionsNeverGoBack takes a cluster through epochs of all sources, with up to a thousand million writes
// between any two looks at it, and half of these unseen. Each epoch must begin above every revision that an earlier
// one gave out (S21, which the world watches).
func TestRevisionsNeverGoBack(t *testing.T) {
	wanders(t, 1, func(w *walker) string {
		where := of(w, "Persistent", "Persistent", "Memory", "HostPath nodes=a,b,c,d,e,f")
		if w.oneIn(3) { // it moves in, with revisions of its own
			w.happens("external start=old-0; " + clientsWrite + "; " + clientsWrite)
			where += " external=old-0 retire=true"
		}
		w.happens("cluster replicas=1..3 tls=Disabled medium=" + where)
		w.settle()
		for turn := range 8 {
			w.lives()
			w.turns(turn)
			if w.settle(); len(w.w.Oracle.Broken) > 0 || w.w.Cluster().Status.Rule != "Converged" {
				return "it stays in " + w.w.Cluster().Status.Rule + "\n"
			}
		}
		return ""
	})
}

// clientsWrite is what clients do between two looks at the most.
const clientsWrite = "write n=0..998999999"

// lives lets clients write and people take snapshots, while Quorate looks on.
func (w *walker) lives() {
	for range 1 + w.r.IntN(3) {
		w.happens(clientsWrite + "; sync")
		if len(w.w.Artifacts) == 0 || w.oneIn(2) {
			w.happens("snapshot name=NEXT url=s3://bucket/NEXT")
		}
		w.tell("tick 1m")
	}
	if w.oneIn(4) {
		w.happens("status wipe; delete configmap=demo-epoch-EPOCH")
		w.settle()
	}
}

// turns asks for the next epoch.
func (w *walker) turns(turn int) {
	onClaims := w.w.Cluster().Spec.Storage.Medium == v1beta1.Persistent
	n := w.r.IntN(5)
	if n > 2 {
		w.losesQuorum(n == 4 && onClaims)
		return
	}
	from := fmt.Sprintf("from=s1..%d", len(w.w.Artifacts))
	if former := w.formerEpochs(); n == 0 && onClaims && len(former) > 0 {
		from = "epoch=" + of(w, former...)
	}
	w.happens(fmt.Sprintf("edit restore=j%d %s", turn, from))
	if w.oneIn(2) {
		w.happens(clientsWrite) // while it is made ready
	}
}

// formerEpochs are those that ran before, one for each volume that is left of it.
func (w *walker) formerEpochs() (all []string) {
	for _, claim := range w.w.Claims() {
		of := claim.Annotations[objects.AnnotationEpoch]
		if of != "" && of != fmt.Sprint(w.w.Cluster().Status.Epoch) {
			all = append(all, of)
		}
	}
	return all
}

// losesQuorum takes the data of most members away right after writes that Quorate does not see, and asks for one of the
// ways back.
func (w *walker) losesQuorum(survivor bool) {
	w.happens(clientsWrite)
	pods, _ := w.names()
	for _, name := range pods[len(pods)/2:] {
		if w.w.Claim(name) != nil {
			w.tell("lose claim=" + name)
		} else {
			w.happens("wipe pod=" + name + "; kill pod=" + name)
		}
	}
	policy := of(w, v1beta1.RecoverFromSnapshot, v1beta1.RecoverRecreate)
	if survivor && len(pods) > 1 {
		policy = v1beta1.RecoverFromSurvivor
	}
	w.happens(fmt.Sprintf("sync; recover by=%s:EPOCH", policy))
}

// settle lets everything run until the cluster is as it should be, for so long that no wait is forgotten.
func (w *walker) settle() {
	writes := 2 // while the next epoch is made ready, and while the one before is stopped
	for range 150 {
		w.w.Sync(world.Crash{})
		if writes > 0 && len(w.records()) > 1 && w.oneIn(3) {
			writes--
			w.happens("write n=0..498999999")
		}
		w.w.Pass()
		w.w.Now = w.w.Now.Add(10 * time.Second)
		asked := len(w.w.Operations(v1beta1.OperationRestore)) + len(w.w.Operations(v1beta1.OperationRecover))
		if w.w.Cluster().Status.Rule == "Converged" && len(w.records()) == 1 && asked == 0 {
			return
		}
	}
}
