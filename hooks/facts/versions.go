package facts

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// What an epoch's etcd has run as, before its record can be sure of that: the version that the spec asks for may be
// edited between the record and the first quorum, and a record may be lost.

// OtherMinor is the lowest of the versions that members run, when all of them are of another minor version than the
// one that is recorded; empty else. None of a lower one can start on what they have agreed on, and one that is two
// higher finds a log that it can't read.
func OtherMinor(recorded string, runs []string) string {
	lowest := LowestVersion(runs)
	is, err := defaults.ParseRelease(recorded)
	if lowest == "" || err == nil && slices.ContainsFunc(runs, func(version string) bool {
		r, err := defaults.ParseRelease(version)
		return err == nil && r.Base() == is.Base()
	}) {
		return ""
	}
	return lowest
}

// LowestVersion is the lowest of these; empty for none that can be read.
func LowestVersion(of []string) string {
	var all []defaults.Release
	for _, version := range of {
		if r, err := defaults.ParseRelease(version); err == nil {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, defaults.Release.Compare).String()
}

// RunVersions are the versions that the members run, as those of ours tell that answer in this call; else those of the
// images that their pods were given last.
func (f *Facts) RunVersions() []string {
	if told := f.runs(); len(told) > 0 {
		return told
	}
	var all []string
	for _, name := range f.Names {
		if pod := f.Children.Pods[name]; pod != nil {
			all = append(all, objects.VersionOf(pod.Annotations[objects.AnnotationImage]))
		}
	}
	return all
}

// RanVersions are those of the images of initial members' pods whose etcd has started.
func (f *Facts) RanVersions() []string {
	started := objects.Filter(f.Epoch.InitialNames(), func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && !NeverRan(pod)
	})
	var all []string
	for _, name := range started {
		all = append(all, objects.VersionOf(f.Children.Pods[name].Annotations[objects.AnnotationImage]))
	}
	return all
}
