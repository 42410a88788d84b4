package world

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// Members that run outside of Kubernetes, as processes: etcd knows no difference, and the hooks must find them by
// what they are told. They speak plain text.

// foreignHosts are those at which a world lets clusters join an etcd.
func foreignHosts() (names []string) {
	for n := range 10 {
		names = append(names, fmt.Sprintf("old-%d", n))
	}
	return names
}

// foreignUID stands in for that of a pod.
func foreignUID(name string) types.UID { return types.UID("foreign " + name) }

// ForeignCluster starts an etcd of this version with these members, which answer at http://<name>:2379.
func (w *World) ForeignCluster(version string, names ...string) {
	c := Cluster{Commit: uint64(len(names))}
	var ids []string
	for _, name := range names {
		url := fmt.Sprintf("http://%s:2380", name)
		m := observation.Member{ID: id(url, "foreign"), Name: name, PeerURLs: []string{url},
			ClientURLs: []string{fmt.Sprintf("http://%s:2379", name)}}
		c.Members = append(c.Members, m)
		ids = append(ids, fmt.Sprint(m.ID))
	}
	c.ID = id(ids...)
	w.store(c)
	for _, m := range c.Members {
		place := "disk of " + m.Name
		w.Dirs[place] = Dir{Cluster: c.ID, Member: m.ID, Index: c.Commit}
		w.Oracle.identities[m.ID] = place
		w.Foreign[m.Name] = true
		w.StartForeign(m.Name, version)
	}
	w.elect(c.ID)
}

// StartForeign starts a foreign member on its disk.
func (w *World) StartForeign(name, version string) {
	w.Starts++
	w.Procs[foreignUID(name)] = Proc{Pod: name, Dir: "disk of " + name, Since: w.Now, Start: w.Starts,
		Image: "etcd:v" + version, Version: version}
	w.Changes++
}

// StopForeign stops a foreign member.
func (w *World) StopForeign(name string) { w.stop(foreignUID(name)) }

// JoinForeign starts a foreign member that a person has added.
func (w *World) JoinForeign(name, version string) {
	for _, c := range w.clusters() {
		for _, m := range c.Members {
			if nameAt(m) == name {
				place := "disk of " + name
				w.storeDir(place, Dir{Cluster: c.ID, Member: m.ID, Behind: w.Etcd.LearnerPace})
				w.Oracle.identities[m.ID] = place
				w.StartForeign(name, version)
			}
		}
	}
}

// ForeignRuns reports whether a foreign member runs, and whether it has ever run.
func (w *World) ForeignRuns(name string) (runs, ran bool) {
	_, runs = w.Procs[foreignUID(name)]
	_, ran = w.Dirs["disk of "+name]
	return runs, ran
}
