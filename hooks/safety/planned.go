package safety

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
)

// asked: an epoch that answers a restore is asked for by that operation, or takes the place of one that was, and has
// the data that the operation names (S8).
func asked(j *judgement, e *state.Epoch) {
	if e.Restore == j.v.Epoch.Restore {
		return
	}
	again := j.v.Ending() && j.v.Next.Epoch.Restore == e.Restore
	r := j.v.Asked.Restore
	j.require(again || r != nil && r.ID == e.Restore, "S8", "epoch %d answers the restore %q, which no operation asks for",
		e.N, e.Restore)
	if r == nil || r.ID != e.Restore {
		return
	}
	named := r.Epoch != nil && e.SurvivorsOf == int(*r.Epoch) || r.Snapshot != nil && e.Source == record.SourceSnapshot
	j.require(named, "S8", "epoch %d begins with other data than the restore %q names", e.N, e.Restore)
}

// plannedVersion: an epoch that takes over has the version of the one before, or the spec's, unless that lies more
// minor versions away than a person has agreed to (S18).
func plannedVersion(j *judgement, e *state.Epoch) {
	if versions.SameMinor(e.Version, j.v.Epoch.Version) {
		return
	}
	from, err := spec.ParseRelease(j.v.Epoch.Version)
	to, err2 := spec.ParseRelease(e.Version)
	far := err != nil || err2 != nil || to.Minor() > from.Minor()+1 || to.Minor() < from.Minor()-1
	agreed := !far || !j.v.Epoch.HadQuorum() || j.o.Cluster.Spec.UpgradePolicy == v1alpha1.UpgradeStep
	j.require(e.Version == j.o.Cluster.Spec.Version && agreed, "S18", "epoch %d is to run %s, and epoch %d has %s", e.N,
		e.Version, j.v.Epoch.N, j.v.Epoch.Version)
}

// versionUnseen: before an epoch's first quorum its version goes to another minor one only when it is proven that none
// of its etcds has run, or when all that have run are of that one (S18).
func versionUnseen(j *judgement, old, now *state.Epoch) {
	ran := state.OtherMinor(old.Version, state.RanVersions(j.v))
	j.require(versions.SameMinor(old.Version, now.Version) || len(epochs.Unproven(j.v)) == 0 || now.Version == ran, "S18",
		"the version goes from %s to %s, and %v may have run", old.Version, now.Version, epochs.Unproven(j.v))
}

// members checks what the pods of an epoch's members are made with: all of it follows from the record.
func members(j *judgement, v *state.View) {
	if v.Epoch == nil || v.Epoch.Record == nil {
		return
	}
	for _, pod := range j.d.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name)
		if !ours || !state.InEpoch(v, pod.Name) {
			continue
		}
		if old := v.Children.Pods[pod.Name]; old != nil {
			otherImage(j, v, old, pod)
			continue
		}
		madeAsRecorded(j, v, pod)
	}
}

// otherImage: a pod is given another image only in an epoch that has begun, the one of the version that members are to
// run, and one that knows the flags that it was made with (S18).
func otherImage(j *judgement, v *state.View, old, pod *corev1.Pod) {
	image := EtcdImage(pod)
	if image == EtcdImage(old) {
		return
	}
	wanted := j.o.Settings.Etcd(&j.o.Cluster.Spec, versions.VersionNow(v))
	flags := spec.SameFlags(versions.MadeForVersion(old), objects.VersionOf(image))
	j.require(v.Epoch.Began() && image == wanted && flags, "S18", "%s is given the image %s, made for %s", pod.Name, image,
		versions.MadeForVersion(old))
}

func madeAsRecorded(j *judgement, v *state.View, pod *corev1.Pod) {
	version := versions.VersionNow(v)
	image := j.o.Settings.Etcd(&j.o.Cluster.Spec, version)
	j.require(EtcdImage(pod) == image, "S18", "a new pod %s has the image %s instead of %s", pod.Name, EtcdImage(pod),
		image)
	begins := state.PodStart(pod) == objects.StartBootstrap
	if now := records(j, v.Epoch.Record.Name); now != nil && begins {
		j.require(versions.SameMinor(now.Version, version), "S18", "a new pod %s is of etcd %s, and the record is to say %s",
			pod.Name, version, now.Version)
	}
	j.require(pod.Labels[objects.LabelRole] != pods.RoleVoter || begins && v.Epoch.Initial[pod.Name] != "", "S5",
		"a new pod %s is led clients to, and does not begin the epoch", pod.Name)
	url := flagOf(pod.Spec.Containers[0].Command, "--initial-advertise-peer-urls=")
	m := v.Find(pod.Name)
	switch {
	case begins:
		j.require(url == v.Epoch.Initial[pod.Name], "S8", "a new pod %s is at %s, and the record says %s", pod.Name, url,
			v.Epoch.Initial[pod.Name])
	case m != nil:
		j.require(slices.Contains(m.PeerURLs, url), "S9", "a new pod %s is at %s, and etcd lists %v", pod.Name, url,
			m.PeerURLs)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
			fits := c.Image == image && flagOf(c.Args, "--etcd-version=") == version &&
				flagOf(c.Args, "--peer-url=") == v.Epoch.Initial[pod.Name]
			j.require(fits, "S18", "a new pod %s is filled by %s as %q", pod.Name, c.Image, c.Args)
		}
	}
}

// flagOf is the value of a flag, named with its equals sign; empty without it.
func flagOf(args []string, name string) string {
	for _, arg := range args {
		if value, is := strings.CutPrefix(arg, name); is {
			return value
		}
	}
	return ""
}

// enableDowngrade: etcd goes down by one minor version, from the one that members run (S18).
func enableDowngrade(j *judgement, s decision.EnableDowngrade) {
	lower := versions.Release(j.v)
	lower[1]--
	j.require(s.Version == lower.Base(), "S18", "%s, and the members run %s", s, j.v.Epoch.Version)
}
