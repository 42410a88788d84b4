package check

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// settings of Metacontroller below which clusters wait for each other; otherwise is its own default, in 1.5.20 and in
// 4.x.
var settings = []struct {
	flag             string
	otherwise, least float64
}{
	{"workers", 5, 10},
	{"client-go-qps", 5, 50},
	{"client-go-burst", 10, 100},
}

// longestDiscovery is how long a new kind may stay unknown to Metacontroller.
const longestDiscovery = time.Minute

func metacontrollerFlags(s *Seen) Finding {
	w := s.metacontroller()
	c := containerOf(w)
	var flaws []Finding
	var has, want []string
	for _, f := range settings {
		is, err := strconv.ParseFloat(flag(c, f.flag), 64)
		if err != nil {
			is = f.otherwise
		}
		has = append(has, fmt.Sprintf("--%s=%g", f.flag, is))
		if is < f.least {
			want = append(want, fmt.Sprintf("--%s=%g is less than %g", f.flag, is, f.least))
		}
	}
	if len(want) > 0 {
		do := "set --workers=20 --client-go-qps=100 --client-go-burst=200 in " + w.title()
		if s.own() { // what is set there by hand goes with the next installation
			do = "install with --metacontroller-workers=20 --metacontroller-qps=100 or more, or with these values of the chart"
		}
		flaws = append(flaws, warn(strings.Join(want, ", ")+": a dozen clusters wait for each other", do))
	}
	if strategy := flag(c, "apply-strategy"); strategy == "server-side-apply" {
		flaws = append(flaws, fail("--apply-strategy="+strategy+": with it Metacontroller recreates what was just "+
			"deleted, takes over objects of others and never releases volumes; Quorate refuses it and does nothing",
			"set --apply-strategy=dynamic-apply in "+w.title()+", its default, before you create an EtcdCluster "+
				"("+v1beta1.Docs+"how-to/install.md#server-side-apply)"))
	}
	if d, err := time.ParseDuration(flag(c, "discovery-interval")); err == nil && d > longestDiscovery {
		flaws = append(flaws, warn(fmt.Sprintf("--discovery-interval=%s: kinds that are new, Quorate's first, stay "+
			"unknown for so long", d), "set --discovery-interval=20s in "+w.title()))
	}
	if by := logs(c); by != "" {
		flaws = append(flaws, fail(by+" has it log what children hold: private keys and passwords of every cluster, "+
			"and "+
			"tokens",
			"take it out, with --zap-log-level=info (1.5: -v=4), in "+w.title()+
				"; then whatever its logs have reached has "+
				"the keys: change them and the token ("+v1beta1.Docs+"how-to/certificates.md#when-something-was-stolen)"))
	}
	return together(ok("%s", strings.Join(has, " ")), flaws)
}

// logs is the flag by which it logs what Secrets hold; empty for none. From level 5 on it logs what changes in
// children, and from 6 on whole calls. With --zap-devel objects are logged whole, and it logs each child that it makes
// or changes, at any level (updateChildren in pkg/controller/common of 4.17.2; KubeAwareEncoder of controller-runtime).
// 1.5 takes levels for single files, too (glog).
func logs(c corev1.Container) string {
	for _, name := range []string{"v", "zap-log-level", "vmodule"} {
		for one := range strings.SplitSeq(flag(c, name), ",") {
			_, level, assigned := strings.Cut(one, "=")
			if !assigned {
				level = one
			}
			if v, err := strconv.Atoi(level); err == nil && v >= 5 {
				return "--" + name + "=" + flag(c, name)
			}
		}
	}
	if whole := flag(c, "zap-devel"); whole != "" && whole != "false" {
		return "--zap-devel"
	}
	return ""
}
