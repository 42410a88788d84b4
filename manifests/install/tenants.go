package install

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks"
)

// The policies that refuse what an installation does not allow.
const (
	existingEndpoints = "quorate-existing-endpoints"
	sharedIssuers     = "quorate-shared-issuers"
)

// tenants says what an EtcdCluster may ask for that reaches beyond its namespace. The zero value is nothing.
type tenants struct {
	endpoints     string // as it was given
	sharedIssuers bool

	allowed *hooks.AllowedEndpoints
}

func (t *tenants) flags(flags *flag.FlagSet) {
	flags.StringVar(&t.endpoints, "existing-endpoints", "", "`addresses`, with commas between, at which EtcdClusters may join an etcd (spec.bootstrap.existing): networks such as 10.1.2.0/24, "+
		"names, and ends of names such as .etcd.example.com. Never loopback, link-local, or a Service of another namespace. Empty allows none")
	flags.BoolVar(&t.sharedIssuers, "shared-issuers", false, "let EtcdClusters have certificates of issuers that other namespaces can use too, such as a ClusterIssuer: "+
		"who gets a certificate of it in the name of root may do everything in their etcds")
}

func (t *tenants) check() error {
	var err error
	if t.allowed, err = hooks.ParseAllowedEndpoints(t.endpoints); err != nil {
		return fmt.Errorf("--existing-endpoints: %w", err)
	}
	return nil
}

// env is what the server is told.
func (t *tenants) env() []any {
	var all []any
	if t.allowed != nil {
		all = append(all, object{"name": "QUORATE_EXISTING_ENDPOINTS", "value": t.allowed.String()})
	}
	if t.sharedIssuers {
		all = append(all, object{"name": "QUORATE_SHARED_ISSUERS", "value": "true"})
	}
	return all
}

// isFor reports whether an object of the manifests is one for this installation: all but the policy against what it
// allows.
func (t *tenants) isFor(o object) bool {
	return !t.sharedIssuers || at(o, "metadata")["name"] != sharedIssuers
}

// adapt changes the policies of the manifests, which allow nothing. They look at the objects of this installation
// alone.
func (t *tenants) adapt(policy object, s *scope) {
	name := at(policy, "metadata")["name"]
	if name != existingEndpoints && name != sharedIssuers {
		return
	}
	if s.matches != nil {
		at(policy, "spec", "matchConstraints")["objectSelector"] = selectorObject(s.matches)
	}
	if name == existingEndpoints && t.allowed != nil {
		validation := at(policy, "spec")["validations"].([]any)[0].(object)
		validation["expression"] = strings.Replace(validation["expression"].(string), "|| false)", "|| "+t.expression()+")", 1)
		validation["message"] = strings.Replace(validation["message"].(string), "nowhere", "at "+strings.ReplaceAll(t.allowed.String(), ",", ", ")+" alone", 1)
	}
}

// expression is what the policy asks of the host of an endpoint e: the same as hooks.AllowedEndpoints does, as far as
// the URL tells. Functions for addresses are there since Kubernetes 1.31, so they are in it only with networks.
func (t *tenants) expression() string {
	const host = "url(e).getHostname().lowerAscii()"
	const services = host + ".split('.').filter(l, l == 'svc').size()"
	var networks []string
	for _, n := range t.allowed.Networks {
		networks = append(networks, n.String())
	}
	slices.Sort(networks)
	var all []string
	if len(t.allowed.Hosts) > 0 {
		all = append(all, services+" == 0 && ['"+strings.Join(t.allowed.Hosts, "', '")+"'].exists(n, "+host+" == n || n.startsWith('.') && "+host+".endsWith(n))")
	}
	if len(networks) > 0 {
		all = append(all, services+" == 1 && ("+host+" + '.').contains('.' + request.namespace + '.svc.')",
			"isIP("+host+") && ip("+host+").isGlobalUnicast() && ['"+strings.Join(networks, "', '")+"'].exists(n, cidr(n).containsIP("+host+"))")
	}
	return strings.Join(all, " || ")
}
