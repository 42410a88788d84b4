package install

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// The policies that refuse what an installation does not allow.
const (
	allowedEtcdEndpoints = "quorate-allowed-etcd-endpoints"
	sharedIssuers        = "quorate-shared-issuers"
)

// Tenants says what an EtcdCluster may ask for that reaches beyond its namespace.
type Tenants struct {
	// Repositories of etcd's image that it may name, and beginnings of some that end with a slash; nil is all.
	Repositories []string
	// Endpoints at which it may join an etcd; nil is none.
	Endpoints *objects.AllowedEndpoints
	// SharedIssuers: it may have certificates of issuers that other namespaces can use too.
	SharedIssuers bool

	repositories, endpoints string // as they were given
}

// Flags are those of quorate install and of quorate serve.
func (t *Tenants) Flags(flags *flag.FlagSet) {
	flags.StringVar(&t.repositories, "allowed-image-repositories", "",
		"`repositories`, with commas between, that EtcdClusters may name in spec.image.repository: whole ones, or "+
			"beginnings that end with a slash. That of --etcd-repository always may be. Empty allows all")
	flags.StringVar(&t.endpoints, "allowed-etcd-endpoints", "",
		"`addresses`, with commas between, at which EtcdClusters may join an etcd (spec.bootstrap.external): networks "+
			"such as 10.1.2.0/24, names, and ends of names such as .etcd.example.com. Never loopback, link-local, or "+
			"a Service of another namespace. Empty allows none")
	flags.BoolVar(&t.SharedIssuers, "shared-issuers", false,
		"let EtcdClusters have certificates of issuers that other namespaces can use too, such as a ClusterIssuer: "+
			"who gets a certificate of it in the name of root may do everything in their etcds")
}

// Check reads what was given. Its error names the flag that can't be read.
func (t *Tenants) Check() error {
	var err error
	if t.Repositories, err = repositoriesIn(t.repositories); err != nil {
		return err
	}
	if t.Endpoints, err = objects.ParseAllowedEndpoints(t.endpoints); err != nil {
		return fmt.Errorf("--allowed-etcd-endpoints: %w", err)
	}
	return nil
}

// repositoriesIn are the repositories in a list with commas between, and beginnings of some.
func repositoriesIn(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	all := strings.Split(list, ",")
	for _, one := range all {
		if !objects.IsRepository(strings.TrimSuffix(one, "/")) {
			return nil, fmt.Errorf("--allowed-image-repositories must be repositories with commas between, such as "+
				"registry.example/etcd, or beginnings such as registry.example/mirror/, and %q is neither", one)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// repositoriesEnv is what the server is told of repositories.
func (t *Tenants) repositoriesEnv() []any {
	if t.Repositories == nil {
		return nil
	}
	return []any{object{"name": "QUORATE_ALLOWED_IMAGE_REPOSITORIES", "value": strings.Join(t.Repositories, ",")}}
}

// env is what the server is told of the rest.
func (t *Tenants) env() []any {
	var all []any
	if t.Endpoints != nil {
		all = append(all, object{"name": "QUORATE_ALLOWED_ETCD_ENDPOINTS", "value": t.Endpoints.String()})
	}
	if t.SharedIssuers {
		all = append(all, object{"name": "QUORATE_SHARED_ISSUERS", "value": "true"})
	}
	return all
}

// isFor reports whether an object of the manifests is one for this installation: all but the policy against what it
// allows.
func (t *Tenants) isFor(o object) bool {
	return !t.SharedIssuers || at(o, "metadata")["name"] != sharedIssuers
}

// adapt changes the policies of the manifests, which allow nothing. They look at the objects of this installation
// alone.
func (t *Tenants) adapt(policy object, s *scope) {
	name := at(policy, "metadata")["name"]
	if name != allowedEtcdEndpoints && name != sharedIssuers {
		return
	}
	if s.matches != nil {
		at(policy, "spec", "matchConstraints")["objectSelector"] = selectorObject(s.matches)
	}
	if name == allowedEtcdEndpoints && t.Endpoints != nil {
		validation := at(policy, "spec")["validations"].([]any)[0].(object)
		validation["expression"] = strings.Replace(validation["expression"].(string), "|| false)",
			"|| "+t.expression()+")", 1)
		validation["message"] = strings.Replace(validation["message"].(string), "nowhere",
			"at "+strings.ReplaceAll(t.Endpoints.String(), ",", ", ")+" alone", 1)
	}
}

// expression is what the policy asks of the host of an endpoint e: the same as hooks.AllowedEndpoints does, as far as
// the URL tells. Functions for addresses are there since Kubernetes 1.31, so they are in it only with networks.
func (t *Tenants) expression() string {
	const host = "url(e).getHostname().lowerAscii()"
	const services = host + ".split('.').filter(l, l == 'svc').size()"
	var networks []string
	for _, n := range t.Endpoints.Networks {
		networks = append(networks, n.String())
	}
	slices.Sort(networks)
	var all []string
	if len(t.Endpoints.Hosts) > 0 {
		all = append(all, services+" == 0 && ['"+strings.Join(t.Endpoints.Hosts,
			"', '")+"'].exists(n, "+host+" == n || n.startsWith('.') && "+host+".endsWith(n))")
	}
	if len(networks) > 0 {
		all = append(all, services+" == 1 && ("+host+" + '.').contains('.' + request.namespace + '.svc.')",
			"isIP("+host+") && ip("+host+").isGlobalUnicast() && ['"+strings.Join(networks,
				"', '")+"'].exists(n, cidr(n).containsIP("+host+"))")
	}
	return strings.Join(all, " || ")
}
