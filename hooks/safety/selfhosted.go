package safety

import (
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// selfHosted: where the API server has its data here, no answer stops this etcd as a whole, whatever the spec asks for:
// as many pods as a quorum of those that run stay, and no epoch takes over (S1, S8).
func selfHosted(j *judgement) {
	if !j.o.Cluster.Spec.SelfHosted {
		return
	}
	running := 0
	stay := 0
	for name, pod := range j.o.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		if !ours || pod.DeletionTimestamp != nil || !facts.Running(pod) {
			continue
		}
		running++
		if podIn(j, name) != nil {
			stay++
		}
	}
	if j.f.Ending() { // it was stopped before the spec said so
		return
	}
	j.require(running == 0 || stay >= facts.Quorum(running), "S1",
		"%d of %d members stay, and the API server has its data here", stay, running)
	j.require(len(begun(j)) == 0, "S8",
		"an epoch is recorded that takes over from the one that has the API server's data")
}
