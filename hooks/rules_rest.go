package hooks

import (
	"fmt"
	"slices"
	"strings"
)

// The rules for when there is nothing to change.

func heal(v *view) *verdict {
	silent := names(filter(v.members, func(m *member) bool { return !m.serving() }))
	if len(silent) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("waiting for %s to serve again", strings.Join(silent, ", ")), resync: patience}
}

func roll(v *view) *verdict {
	if !v.restartable() || !slices.ContainsFunc(v.voters, func(m *member) bool { _, must := v.mustRestart(m); return must }) {
		return nil
	}
	if going := filter(v.voters, func(m *member) bool { return m.pod == nil || m.pod.DeletionTimestamp != nil }); len(going) > 0 {
		return &verdict{message: fmt.Sprintf("waiting for the pod of %s to stop before the next is restarted", strings.Join(names(going), ", ")), resync: soon}
	}
	for _, leads := range []bool{false, true} {
		for _, m := range v.voters {
			reason, must := v.mustRestart(m)
			switch {
			case !must || (m.ID == v.Etcd.Leader) != leads:
			case leads:
				return v.change(v.handOver(m), fmt.Sprintf("restarting %s: %s; it leads and hands over first", m.name, reason))
			default:
				return &verdict{message: fmt.Sprintf("restarting %s: %s", m.name, reason), roll: m.name, resync: soon}
			}
		}
	}
	return nil
}

func readdress(v *view) *verdict {
	if !encrypted(v.Cluster) || !v.restartable() || !v.everyoneDials() || len(v.lacking) > 0 {
		return nil
	}
	for _, leads := range []bool{false, true} {
		for _, m := range v.voters {
			if m.name != "" && !byTLS(m.PeerURLs...) && (m.ID == v.Etcd.Leader) == leads {
				return v.change(Readdress{ID: m.ID, Name: m.name, PeerURL: PeerURL(v.Cluster, m.name)}, fmt.Sprintf("listing %s with the URL by which its peers reach it by TLS", m.name))
			}
		}
	}
	return nil
}

func alarm(v *view) *verdict {
	if who := v.alarmed("NOSPACE"); len(who) > 0 {
		return &verdict{message: fmt.Sprintf("%s has no space left (alarm NOSPACE): etcd refuses writes; see NOSPACE in docs/failure-modes.md", strings.Join(who, ", ")), resync: patience}
	}
	return nil
}

func versionPending(v *view) *verdict {
	if v.epoch.version == v.Cluster.Spec.Version {
		return nil
	}
	return &verdict{message: fmt.Sprintf("the members run %s and stay there: this release of Quorate does not change the version of running members; set spec.version back to %s", v.epoch.version, v.epoch.version), settled: true}
}

func volumePending(v *view) *verdict {
	want := storageSize(&v.Cluster.Spec)
	class := v.Cluster.Spec.Storage.StorageClassName
	other := names(filter(v.members, func(m *member) bool {
		return m.claim != nil && (m.claim.Spec.Resources.Requests.Storage().Cmp(want) < 0 ||
			class != nil && m.claim.Spec.StorageClassName != nil && *m.claim.Spec.StorageClassName != *class)
	}))
	if len(other) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("serving; the claims of %s keep their size and class: this release of Quorate gives changed storage to new members only", strings.Join(other, ", ")), settled: true}
}

func templatePending(v *view) *verdict {
	wanted := image(&v.Cluster.Spec, v.epoch.version)
	old := names(filter(v.members, func(m *member) bool {
		return m.pod != nil && (m.pod.Annotations[AnnotationTemplate] != v.template || m.pod.Annotations[AnnotationImage] != wanted)
	}))
	if len(old) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("serving; %s keep the pod template that they were made from: this release of Quorate gives a changed template to new pods only (delete a pod to have it made anew)", strings.Join(old, ", ")), settled: true}
}

func converged(v *view) *verdict {
	return &verdict{message: fmt.Sprintf("serving as the spec wants, with %s", count(len(v.voters), "voter")), settled: true}
}
