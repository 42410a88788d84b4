// Package check judges whether Kubernetes, Metacontroller and Quorate fit together, by what was read of them.
//
// The list [Checks] is what is looked at, in order, and reads as the documentation of `quorate check`. The list of
// [Options.Readings] is everything that has to be read for it. The package itself reads nothing: it is given what
// kubectl answered, and the time.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// State is what became of a check.
type State string

// The states, from good to bad. Unknown is a check that could not be made: it may be well or not.
const (
	OK      State = "ok"
	Warn    State = "warn"
	Unknown State = "unknown"
	Fail    State = "fail"
)

var order = []State{OK, Warn, Unknown, Fail}

// Finding is what one check found, and what to do about it.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// Check is one thing that is looked at.
type Check struct {
	// Name is how people speak of it.
	Name string
	// Looks is the sentence that documents it.
	Looks string
	// needs are the readings without which nothing can be said.
	needs []string
	judge func(s *Seen) Finding
}

// Checks are all checks in order: what the others stand on comes first.
var Checks = []Check{
	{"Kubernetes", "kubectl reaches the API server, whose version is one that the kinds' validation rules and the " +
		"tests know.", []string{version}, kubernetes},

	{"Installed", "The kinds of Metacontroller and of Quorate, the CompositeControllers that call this Quorate, and " +
		"the admission policies are there, and all that matters of them is as in this release.", nil, installed},
	{"Metacontroller", "Metacontroller runs: a StatefulSet or Deployment with its label, its service account or its " +
		"image, all of it ready.", []string{metacontroller}, metacontrollerRuns},
	{"OneMetacontroller", "Exactly one Metacontroller serves Quorate's CompositeControllers: two would undo each " +
		"other's changes. Others may be there, for others.", []string{metacontroller, workloads}, oneMetacontroller},
	{"MetacontrollerVersion", "Its version, by the tag of its image, is one that the tests run with, or one that has " +
		"what is needed by its documentation.", []string{metacontroller},
		about(metacontrollerVersion, aMetacontroller)},
	{"MetacontrollerFlags", "Its flags allow many clusters at once, log no keys and passwords, and let it merge " +
		"objects itself.", []string{metacontroller}, about(metacontrollerFlags, aMetacontroller)},
	{"MetacontrollerRights", "Its service account may do what Metacontroller can't work without, and all that " +
		"Quorate's answers ask for.", []string{metacontroller, rights},
		about(metacontrollerRights, aMetacontroller)},

	{"OneQuorate", "No two CompositeControllers decide about the same objects.", []string{controllers}, oneQuorate},
	{"Quorate", "Quorate's Deployment is there, and all its pods are available.", []string{quorate}, quorateRuns},
	{"QuorateVersion", "Quorate's image has the version of this program, and members' pods use the same image.",
		[]string{quorate}, about(quorateVersion, aQuorate)},
	{"Service", "The addresses of the hooks lead to Quorate's Service, and that to pods that are ready.",
		[]string{controllers, quorate}, about(service, aController)},
	{"NetworkPolicy", "Quorate's NetworkPolicy lets Metacontroller in.", []string{quorate, metacontroller},
		about(networkPolicy, aQuorate, aMetacontroller)},

	{"Certificate", "The hooks' certificate is valid for the names by which they are called, and will be for 30 days.",
		[]string{controllers, quorate}, about(certificate, aController)},
	{"Trust", "Metacontroller trusts the authority that signed it, and has read that since it last changed.",
		[]string{controllers, metacontroller}, about(trust, aController, aMetacontroller)},
	{"Token", "Metacontroller sends a token that Quorate takes. It is not shown.", []string{controllers, quorate},
		about(token, aQuorate, aController)},
	{"Asked", "Every EtcdCluster that is older than a minute has a status, and Metacontroller's log of the last five " +
		"minutes has no call that failed.", []string{controllers, clusters}, asked},

	{"StorageClass", "There is a default StorageClass, for EtcdClusters that name none.", []string{classes},
		storageClass},
	{"CertManager", "cert-manager's kinds exist if the CompositeController names them, and it names them if an " +
		"EtcdCluster uses them.", []string{kinds, controllers}, certManager},
	{"PodSecurity", "Namespaces of EtcdClusters on the medium HostPath or the hosts' network allow that.",
		[]string{clusters, namespaces}, podSecurity},
	{"SelfHosted", "An EtcdCluster with the data of an API server has spec.selfHosted, so that nothing stops it. " +
		"Only API servers that are pods in kube-system are seen.", []string{clusters, apiServers}, selfHosted},
}

// Judge makes all checks. Without an API server there is the first alone.
func Judge(s *Seen) []Finding {
	if f := s.without([]string{version}); f.State != OK {
		return []Finding{{Name: Checks[0].Name, State: Fail, Found: f.Found, Do: f.Do}}
	}
	var all []Finding
	for _, c := range Checks {
		f := s.without(c.needs)
		if f.State == OK {
			f = c.judge(s)
		}
		f.Name = c.Name
		all = append(all, f)
	}
	return all
}

// Fine reports whether nothing failed and everything could be looked at.
func Fine(all []Finding) bool {
	return !slices.ContainsFunc(all, func(f Finding) bool { return f.State == Fail || f.State == Unknown })
}

// A thing is what a check is about: without it there is nothing to judge.
type thing struct {
	is    func(s *Seen) bool
	lacks string
}

var (
	aMetacontroller = thing{func(s *Seen) bool { return s.metacontroller() != nil }, "no Metacontroller was found"}
	aQuorate        = thing{func(s *Seen) bool { return s.deployment() != nil }, "no Quorate was found"}
	aController     = thing{func(s *Seen) bool { return len(s.called()) > 0 },
		"no CompositeController calls this Quorate"}
)

// about is a check about these things.
func about(judge func(s *Seen) Finding, things ...thing) func(s *Seen) Finding {
	return func(s *Seen) Finding {
		for _, t := range things {
			if !t.is(s) {
				return unchecked(t.lacks)
			}
		}
		return judge(s)
	}
}

// unchecked is what a check says that can't be made because of what another has found.
func unchecked(why string) Finding {
	return Finding{State: Unknown, Found: "not checked: " + why, Do: "first fix what is above"}
}

func ok(format string, args ...any) Finding {
	return Finding{State: OK, Found: fmt.Sprintf(format, args...)}
}

func warn(found, do string) Finding { return Finding{State: Warn, Found: found, Do: do} }

func fail(found, do string) Finding { return Finding{State: Fail, Found: found, Do: do} }

// together is what all flaws say, as bad as the worst; without flaws it is well.
func together(well Finding, flaws []Finding) Finding {
	flaws = slices.DeleteFunc(slices.Clone(flaws), func(f Finding) bool { return f.State == OK })
	if len(flaws) == 0 {
		return well
	}
	slices.SortStableFunc(flaws, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, b.State), slices.Index(order, a.State))
	})
	var found, do []string
	for _, f := range flaws {
		found = append(found, f.Found)
		if f.Do != "" && !slices.Contains(do, f.Do) {
			do = append(do, f.Do)
		}
	}
	return Finding{State: flaws[0].State, Found: strings.Join(found, "; "), Do: strings.Join(do, "; ")}
}
