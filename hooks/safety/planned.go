package safety

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// asked: an epoch that answers a restore is asked for by that operation, or takes the place of one that was, and has
// the data that the operation names (S8).
func asked(j *judgement, e *facts.Epoch) {
	if e.Restore == j.f.Epoch.Restore {
		return
	}
	again := j.f.Ending() && j.f.Next.Epoch.Restore == e.Restore
	r := j.f.Asked.Restore
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
func plannedVersion(j *judgement, e *facts.Epoch) {
	if facts.SameMinor(e.Version, j.f.Epoch.Version) {
		return
	}
	from, err := defaults.ParseRelease(j.f.Epoch.Version)
	to, err2 := defaults.ParseRelease(e.Version)
	far := err != nil || err2 != nil || to.Minor() > from.Minor()+1 || to.Minor() < from.Minor()-1
	agreed := !far || !j.f.Epoch.HadQuorum() || j.o.Cluster.Spec.UpgradePolicy == v1beta1.UpgradeStep
	j.require(e.Version == j.o.Cluster.Spec.Version && agreed, "S18", "epoch %d is to run %s, and epoch %d has %s", e.N,
		e.Version, j.f.Epoch.N, j.f.Epoch.Version)
}

// versionUnseen: before an epoch's first quorum its version goes to another minor one only when it is proven that none
// of its etcds has run, or when all that have run are of that one (S18).
func versionUnseen(j *judgement, old, now *facts.Epoch) {
	ran := facts.OtherMinor(old.Version, j.f.RanVersions())
	j.require(facts.SameMinor(old.Version, now.Version) || len(j.f.Unproven()) == 0 || now.Version == ran, "S18",
		"the version goes from %s to %s, and %v may have run", old.Version, now.Version, j.f.Unproven())
}

// members checks what the pods of an epoch's members are made with: all of it follows from the record.
func members(j *judgement, f *facts.Facts) {
	if f.Epoch == nil || f.Epoch.Record == nil {
		return
	}
	for _, pod := range j.d.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name)
		if !ours || !f.InEpoch(pod.Name) {
			continue
		}
		if old := f.Children.Pods[pod.Name]; old != nil {
			otherImage(j, f, old, pod)
			continue
		}
		madeAsRecorded(j, f, pod)
	}
}

// otherImage: a pod is given another image only in an epoch that has begun, the one of the version that members are to
// run, and one that knows the flags that it was made with (S18).
func otherImage(j *judgement, f *facts.Facts, old, pod *corev1.Pod) {
	image := etcdImage(pod)
	if image == etcdImage(old) {
		return
	}
	wanted := j.o.Settings.Etcd(&j.o.Cluster.Spec, f.VersionNow())
	flags := defaults.SameFlags(facts.MadeForVersion(old), objects.VersionOf(image))
	j.require(f.Epoch.Began() && image == wanted && flags, "S18", "%s is given the image %s, made for %s", pod.Name, image,
		facts.MadeForVersion(old))
}

func madeAsRecorded(j *judgement, f *facts.Facts, pod *corev1.Pod) {
	version := f.VersionNow()
	image := j.o.Settings.Etcd(&j.o.Cluster.Spec, version)
	j.require(etcdImage(pod) == image, "S18", "a new pod %s has the image %s instead of %s", pod.Name, etcdImage(pod),
		image)
	begins := facts.PodStart(pod) == objects.StartBootstrap
	if now := records(j, f.Epoch.Record.Name); now != nil && begins {
		j.require(facts.SameMinor(now.Version, version), "S18", "a new pod %s is of etcd %s, and the record is to say %s",
			pod.Name, version, now.Version)
	}
	j.require(pod.Labels[objects.LabelRole] != facts.RoleVoter || begins && f.Epoch.Initial[pod.Name] != "", "S5",
		"a new pod %s is led clients to, and does not begin the epoch", pod.Name)
	url := flagOf(pod.Spec.Containers[0].Command, "--initial-advertise-peer-urls=")
	m := f.Find(pod.Name)
	switch {
	case begins:
		j.require(url == f.Epoch.Initial[pod.Name], "S8", "a new pod %s is at %s, and the record says %s", pod.Name, url,
			f.Epoch.Initial[pod.Name])
	case m != nil:
		j.require(slices.Contains(m.PeerURLs, url), "S9", "a new pod %s is at %s, and etcd lists %v", pod.Name, url,
			m.PeerURLs)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
			fits := c.Image == image && flagOf(c.Args, "--etcd-version=") == version &&
				flagOf(c.Args, "--peer-url=") == f.Epoch.Initial[pod.Name]
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
	lower := j.f.Release()
	lower[1]--
	j.require(s.Version == lower.Base(), "S18", "%s, and the members run %s", s, j.f.Epoch.Version)
}
