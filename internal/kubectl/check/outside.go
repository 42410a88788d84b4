package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Metacontroller retries what failed, and some failures are routine: its cache was behind. They are no reason for a
// warning.
var (
	failed  = regexp.MustCompile(`failed to sync "?(EtcdCluster|EtcdSnapshot|EtcdSnapshotSchedule|EtcdMirror)\b.*`)
	routine = regexp.MustCompile(`the object has been modified|already exists|is gone: got uid|" not found`)
)

// longestLine of the log that is shown.
const longestLine = 300

// lastFailure is the last line of Metacontroller's log about a call that failed; empty when there is none.
func (s *Seen) lastFailure() string {
	last := ""
	for _, line := range s.log {
		if m := failed.FindString(line); m != "" && !routine.MatchString(m) {
			last = m
		}
	}
	last, _, _ = strings.Cut(last, `","stacktrace"`) // Metacontroller 4 logs JSON
	if r := []rune(last); len(r) > longestLine {
		return string(r[:longestLine]) + "..."
	}
	return last
}

// untouched is how old an EtcdCluster without a status may be.
const untouched = time.Minute

func asked(s *Seen) Finding {
	look := command("kubectl -n %s logs statefulset/metacontroller --tail=50", s.Metacontroller)
	if w := s.metacontroller(); w != nil {
		look = command("kubectl -n %s logs %s/%s --tail=50", s.Metacontroller, strings.ToLower(w.Kind), w.Metadata.Name)
	}
	failure := s.lastFailure()
	if failure != "" {
		failure = "; the last error in its log: " + failure
	}
	var waiting []string
	for _, c := range s.clusters {
		if c.Status.Rule == "" && s.Now.Sub(c.CreationTimestamp.Time) > untouched && s.looksAfter(c) {
			waiting = append(waiting, c.Namespace+"/"+c.Name)
		}
	}
	switch {
	case len(waiting) > 0:
		return fail(fmt.Sprintf("Metacontroller does not call, or its calls fail: no status has %s%s", some(waiting),
			failure), "fix what is above; then "+look)
	case failure != "":
		return warn("calls have failed in the last five minutes"+failure, "if it continues: "+look)
	}
	well := ok("every EtcdCluster has a status (%d in all)", len(s.clusters))
	if _, read := s.answers[log]; !read { // there is no pod, which was said above
		return well
	}
	f := s.without([]string{log})
	if f.State == OK {
		return well
	}
	f.Found = well.Found + "; " + f.Found
	return f
}

// only are the namespaces that Quorate was told to look after; none for all.
func (s *Seen) only() []string {
	if w := s.deployment(); w != nil {
		if list, _ := env(containerOf(w), "QUORATE_NAMESPACES"); list != "" {
			return strings.Split(list, ",")
		}
	}
	return nil
}

// looksAfter reports whether a CompositeController that calls this Quorate is for the cluster.
func (s *Seen) looksAfter(c v1beta1.EtcdCluster) bool {
	if only := s.only(); len(only) > 0 && !slices.Contains(only, c.Namespace) {
		return false
	}
	return slices.ContainsFunc(s.ours(), func(o controller) bool {
		p := o.Spec.ParentResource
		return p.Resource == "etcdclusters" && (p.LabelSelector == nil || meets(p.LabelSelector, c.Labels))
	})
}

func storageClass(s *Seen) Finding {
	var names []string
	for _, c := range s.classes {
		if c.Metadata.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			names = append(names, c.Metadata.Name)
		}
	}
	if len(names) == 0 {
		return warn("no default exists", "name one in spec.storage.storageClassName of each EtcdCluster, or use the "+
			"medium Memory or HostPath")
	}
	return ok("%s", strings.Join(names, ", "))
}

func certManager(s *Seen) Finding {
	_, there := s.kinds[certificatesCRD]
	var want []string
	for _, c := range s.clusters {
		if c.Spec.TLS.Mode == v1beta1.TLSCertManager && s.looksAfter(c) {
			want = append(want, c.Namespace+"/"+c.Name)
		}
	}
	switch named := s.namesCertificates(); {
	case named && !there:
		return fail("the CompositeController names "+certificatesCRD+", which does not exist: it has stopped, and no "+
			"EtcdCluster is reconciled", "install cert-manager; or install Quorate without --cert-manager")
	case !named && len(want) > 0:
		return fail("cert-manager's Certificates are used by "+some(want)+
			", and the CompositeController has no rule "+
			"for them", strings.Replace(s.install(), "quorate install", "quorate install --cert-manager", 1))
	case named:
		return ok("there, and named")
	}
	return ok("not used")
}

func podSecurity(s *Seen) Finding {
	var flaws []Finding
	for _, c := range s.clusters {
		level := s.namespaces[c.Namespace]["pod-security.kubernetes.io/enforce"]
		what := "keeps its data in directories of nodes"
		instead := "choose another medium"
		switch {
		case level == "" || level == "privileged":
			continue
		case c.Spec.HostNetwork != nil:
			what = "is on the hosts' network"
			instead = "create it without spec.hostNetwork"
		case c.Spec.Storage.Medium != v1beta1.HostPath:
			continue
		}
		flaws = append(flaws, fail(fmt.Sprintf("EtcdCluster %s/%s %s, and its namespace enforces %s", c.Namespace,
			c.Name,
			what, level), command("kubectl label namespace %s --overwrite "+
			"pod-security.kubernetes.io/enforce=privileged",
			c.Namespace)+", or "+instead+" ("+v1beta1.Docs+"explanation/security.md)"))
	}
	return together(ok("nothing in the way"), flaws)
}

// selfHosted compares where API servers have their data with where members are.
func selfHosted(s *Seen) Finding {
	var flaws []Finding
	for _, c := range s.clusters {
		if c.Status.Connection == nil {
			continue
		}
		known := s.etcdServers(c.Status.Connection.Endpoints)
		if known == nil {
			continue
		}
		unknown := slices.DeleteFunc(everyAddress(&c), func(url string) bool { return slices.Contains(known, url) })
		switch {
		case !c.Spec.SelfHosted:
			flaws = append(flaws, fail(fmt.Sprintf("the API server has its data in EtcdCluster %s/%s, which may be "+
				"paused, restored and deleted like any other", c.Namespace, c.Name),
				command(`kubectl patch etcdcluster -n %s %s `+
					`--type=merge -p '{"spec":{"selfHosted":true,"deletionProtection":true}}'`, c.Namespace, c.Name)))
		case c.Spec.HostNetwork == nil:
			flaws = append(flaws, warn(fmt.Sprintf("the API server has its data in EtcdCluster %s/%s, whose members "+
				"can't be reached without kube-proxy and the pods' network", c.Namespace, c.Name),
				"move to an EtcdCluster with spec.hostNetwork ("+v1beta1.Docs+"how-to/self-hosted.md)"))
		case len(unknown) > 0:
			flaws = append(flaws, fail(fmt.Sprintf("an API server has its data in EtcdCluster %s/%s, and does not "+
				"know where its members may be next: once all have been replaced, it finds none", c.Namespace, c.Name),
				"add to --etcd-servers of every API server: "+strings.Join(unknown, ",")))
		}
	}
	return together(ok("nothing in the way"), flaws)
}

// everyAddress is the URL for clients on every node that a member may be on.
func everyAddress(c *v1beta1.EtcdCluster) (urls []string) {
	if c.Spec.HostNetwork == nil {
		return nil
	}
	scheme, _, _ := strings.Cut(c.Status.Connection.Endpoints[0], "://")
	client, _, _ := objects.Ports(c)
	for _, node := range c.Spec.HostNetwork.Nodes {
		urls = append(urls, scheme+"://"+objects.HostPort(node.Address, client))
	}
	return urls
}

// etcdServers is where an API server has its data, if that is at one of these URLs; nil for none.
func (s *Seen) etcdServers(urls []string) []string {
	for i := range s.apiServers {
		for j := range s.apiServers[i].Spec.Containers {
			c := &s.apiServers[i].Spec.Containers[j]
			for _, flag := range slices.Concat(c.Command, c.Args) {
				servers, is := strings.CutPrefix(flag, "--etcd-servers=")
				all := strings.Split(servers, ",")
				if is && slices.ContainsFunc(all, func(url string) bool { return slices.Contains(urls, url) }) {
					return all
				}
			}
		}
	}
	return nil
}
