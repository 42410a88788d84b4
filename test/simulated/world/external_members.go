package world

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// Members that run outside of Kubernetes, as processes: etcd knows no difference, and the hooks must find them by
// what they are told. They speak plain text.

// externalHosts are those at which a world lets clusters join an etcd.
func externalHosts() (names []string) {
	for n := range 10 {
		names = append(names, fmt.Sprintf("old-%d", n))
	}
	return names
}

// externalUID stands in for that of a pod.
func externalUID(name string) types.UID { return types.UID("external " + name) }

// ExternalCluster starts an etcd of this version with these members, which answer at http://<name>:2379.
func (w *World) ExternalCluster(version string, names ...string) {
	c := Cluster{Commit: uint64(len(names))}
	var ids []string
	for _, name := range names {
		url := fmt.Sprintf("http://%s:2380", name)
		m := observation.Member{ID: id(url, "external"), Name: name, PeerURLs: []string{url},
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
		w.External[m.Name] = true
		w.StartExternal(m.Name, version)
	}
	w.elect(c.ID)
}

// StartExternal starts an external member on its disk.
func (w *World) StartExternal(name, version string) {
	w.Starts++
	w.Procs[externalUID(name)] = Proc{Pod: name, Dir: "disk of " + name, Since: w.Now, Start: w.Starts,
		Image: "etcd:v" + version, Version: version}
	w.Changes++
}

// StopExternal stops an external member.
func (w *World) StopExternal(name string) { w.stop(externalUID(name)) }

// JoinExternal starts an external member that a person has added.
func (w *World) JoinExternal(name, version string) {
	for _, c := range w.clusters() {
		for _, m := range c.Members {
			if nameAt(m) == name {
				place := "disk of " + name
				w.storeDir(place, Dir{Cluster: c.ID, Member: m.ID, Behind: w.Etcd.LearnerPace})
				w.Oracle.identities[m.ID] = place
				w.StartExternal(name, version)
			}
		}
	}
}

// ExternalRuns reports whether an external member runs, and whether it has ever run.
func (w *World) ExternalRuns(name string) (runs, ran bool) {
	_, runs = w.Procs[externalUID(name)]
	_, ran = w.Dirs["disk of "+name]
	return runs, ran
}
