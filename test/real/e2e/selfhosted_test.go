//go:build e2e

package e2e

import (
	"context"
	"flag"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// The lab of `make part PART=selfhosted-1`: all stories in here need one of their own, as its API server has its data
// in their EtcdClusters.
const labNodes = 5

// apiServerRestarted: what it refused at first says nothing of Metacontroller's rights.
var apiServerRestarted bool

var outageFlag = flag.Duration("outage", 0, "how long the self-hosted story has no API server, beyond what it needs")

// TestSelfHosted: a Kubernetes moves its own data into an EtcdCluster that it runs itself, while its API server writes
// all the time: into memory and out again, to an etcd with a member on each of three control-plane nodes, then onto
// disks. It lives with that: members are killed, replaced, restarted and upgraded, and all that the API server depends
// on is stopped except the members. It needs a lab of its own with five nodes (`make part PART=selfhosted-1`), whose
// API server has its data in the EtcdCluster afterwards.
func TestSelfHosted(t *testing.T) {
	apiServerRestarted = true
	kube(t, "create", "namespace", "load")
	w := loads(t, api, 5)
	stacked := &externalEtcd{t: t, dir: t.TempDir(), version: "3.6.16", from: 23790, members: 3, spread: true}
	c := &cluster{t: t, ns: "etcd"}
	t.Cleanup(func() { _ = os.RemoveAll("/var/tmp/quorate-selfhosted") })
	for _, story := range []struct {
		name  string
		tells func(*cluster, *load)
	}{
		{"InMemoryAndBack", func(c *cluster, w *load) {
			(&cluster{t: c.t, ns: "memory"}).livesInMemory(w, &externalEtcd{t: c.t, dir: stacked.dir, version: stacked.version,
				from: stacked.from, members: stacked.members, spread: true})
		}},
		{"FromStackedToDisks", func(c *cluster, w *load) { c.movesOntoDisks(w, stacked) }},
		{"WhatWouldStopItIsRefused", (*cluster).refusesWhatStopsIt},
		{"LeaderKilled", (*cluster).losesTheAPIServersLeader},
		{"ADiskIsLost", (*cluster).losesADisk},
		{"FiveMembersAndBack", beneath(change{`{"replicas":5}`, 5, "three members became five"},
			change{`{"replicas":3}`, 3, "five members became three"})},
		{"ARollingChange", beneath(change{`{"options":{"extraArgs":{"max-txn-ops":"200"}}}`, 3,
			"all members were restarted for a changed option"})},
		{"AnUpgrade", beneath(change{`{"version":"3.7.3"}`, 3, "all members were upgraded from 3.6 to 3.7"})},
		{"ADatabaseFillsUp", (*cluster).fillsUp},
		{"AnAuthorityIsSucceeded", (*cluster).succeedsTheAuthority},
		{"ANodeIsDrained", (*cluster).drainsANode},
		{"ANodeIsPoweredOff", (*cluster).losesANode},
		{"QuorateIsReplaced", (*cluster).replacesQuorate},
		{"MembersNeedNothing", (*cluster).membersNeedNothing},
		{"AllNodesAreOff", (*cluster).areRescued},
	} {
		if !t.Run(story.name, func(t *testing.T) {
			told := &cluster{t: t, ns: c.ns}
			t.Cleanup(func() {
				if t.Failed() {
					told.dump()
				}
			})
			w.t = t
			story.tells(told, w)
		}) {
			break
		}
	}
	w.t = t
	w.losesNothing()
}

// livesInMemory: members in memory take over from the etcd that the API server began with, and are upgraded. Then an
// etcd outside joins them, with a member on each of three nodes, and they leave it.
func (c *cluster) livesInMemory(w *load, outside *externalEtcd) {
	kube(c.t, "create", "namespace", c.ns)
	theirs := apiServersAuthority(c.t)
	c.putsTheirs(theirs, theirs)
	c.apply("  replicas: 3\n  version: 3.5.35\n  storage: {medium: Memory, size: 1Gi}\n  deletionProtection: true\n" +
		"  priorityClassName: system-node-critical\n" + hostNetwork(5379, labNodes) +
		"  tls: {mode: Secrets, secrets: " +
		"{serverSecretRef: {name: server}, peerSecretRef: {name: peer}, operatorSecretRef: {name: operator}}}\n  bootstrap: {external: {endpoints: ['https://" + objects.HostPort(addressOf(1), 2379) +
		"'], caSecretRef: {name: operator}, clientSecretRef: {name: operator}}}\n")
	c.takesOver(w)
	inLab(c.t, "stop", "1", "etcd")
	c.edit(`{"bootstrap":null,"selfHosted":true}`)
	c.converges(3)
	w.longest("memory: the former etcd was stopped")

	lost := c.leader()
	c.kills(lost)
	c.succeeds(lost, func() {})
	w.longest("memory: the leader's pod was deleted, and the member replaced")
	c.edit(`{"version":"3.6.16"}`)
	c.converges(3)
	w.longest("memory: all members were upgraded from 3.5 to 3.6")

	c.edit(`{"selfHosted":false}`)
	c.edit(`{"deletionProtection":false,"suspend":true}`)
	c.meets("etcdcluster/"+name, "Suspended")
	outside.isOf(theirs, name+":peers")
	for n := range outside.members {
		outside.moveIn(c, n)
	}
	w.longest("memory: members outside joined")
	inLab(c.t, append([]string{"etcd-servers"}, outside.urls()...)...)
	w.longest("memory: the API server was restarted, with its data outside")
	for member := range c.ids() {
		if strings.HasPrefix(member, name+"-") {
			outside.moveOut(c, member)
		}
	}
	w.longest("memory: our members left")
	c.kube("delete", "etcdcluster", name)
}

// movesOntoDisks: three API servers, each with the member of its own node, as kubeadm makes them, move into members on
// the nodes' disks. Two of them are stopped afterwards.
func (c *cluster) movesOntoDisks(w *load, stacked *externalEtcd) {
	kube(c.t, "create", "namespace", c.ns)
	theirs := apiServersAuthority(c.t)
	stacked.ca = &theirs
	servers := []*apiServer{api}
	for _, node := range []int{2, 3} {
		inLab(c.t, "api-server", strconv.Itoa(node), stacked.clientURL(node-1))
		servers = append(servers, apiServerAt(c.t, node, 6443))
	}
	w.writesTo(servers...)
	w.longest("there are three API servers")

	c.putsTheirs(theirs, theirs)
	c.fitted("selfhosted", "selfhosted.yaml")
	c.takesOver(w, 2, 3)
	w.writesTo(api)
	for n := range stacked.members {
		stacked.stop(n)
	}
	c.edit(`{"bootstrap":null,"selfHosted":true}`)
	c.converges(3)
	w.longest("the former members were stopped")
	for _, node := range []string{"2", "3"} {
		inLab(c.t, "stop", node, "kube-apiserver", "KILL")
	}
}

// apiServerAt is that at a port of a node of the lab, once it answers.
func apiServerAt(t *testing.T, node, port int) *apiServer {
	t.Helper()
	return api.inside(t, "https://"+objects.HostPort(addressOf(node), port))
}

// inside is the same administrator at an address inside the lab, once the API server there is ready.
func (a *apiServer) inside(t *testing.T, server string) *apiServer {
	t.Helper()
	transport := a.client.Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		return lab.dialContext(ctx, address)
	}
	other := &apiServer{server: server, client: &http.Client{Transport: transport, Timeout: time.Minute}}
	eventually(t, "the API server at "+server+" is ready", func() string {
		code, said, err := page(other.client, other.server+"/readyz")
		return while(err != nil || code != http.StatusOK, code, said, err)
	})
	return other
}

// takesOver: our members join, API servers are given the addresses of all nodes, that of node 1 and others, and the
// former members retire.
func (c *cluster) takesOver(w *load, others ...int) {
	c.stage("ExternalMembers")
	w.longest("three members joined")
	endpoints := c.everyNode()
	inLab(c.t, append([]string{"etcd-servers"}, endpoints...)...)
	for _, node := range others {
		inLab(c.t, append([]string{"api-server", strconv.Itoa(node)}, endpoints...)...)
		apiServerAt(c.t, node, 6443)
	}
	w.longest("the API servers were restarted, with their data at the members")
	c.edit(`{"removeExternalMembers":true}`)
	c.stage("Retired")
	w.longest("the former members were retired")
}

// everyNode is where API servers look for members: at every node that one may be on, now or next.
func (c *cluster) everyNode() (urls []string) {
	on := c.object().Spec.HostNetwork
	for _, node := range on.Nodes {
		urls = append(urls, "https://"+objects.HostPort(node.Address, int(on.ClientPort)))
	}
	return urls
}

func (c *cluster) refusesWhatStopsIt(*load) {
	for patch, why := range map[string]string{
		`{"replicas":0}`: "selfHosted needs replicas of 3 or more", `{"replicas":2}`: "selfHosted needs replicas",
		`{"recovery":{"quorumLoss":"Recreate"}}`:             "selfHosted needs recovery.quorumLoss Manual",
		`{"tls":{"mode":"Auto"}}`:                            "selfHosted needs tls.mode Secrets",
		`{"deletionProtection":false}`:                       "selfHosted needs deletionProtection",
		`{"selfHosted":false,"deletionProtection":false}`:    "can't be removed in one edit",
		`{"hostNetwork":null,"storage":{"medium":"Memory"}}`: "can't be",
	} {
		require.ErrorContains(c.t, c.edits(patch), why, patch)
	}
	c.operates("back", "type: Restore, restore: {epoch: 1}")
	require.Contains(c.t, c.hasOperation("back", v1beta1.OperationFailed), "not possible with spec.selfHosted")
	_, err := kubectl("", "-n", c.ns, "delete", "etcdcluster", name, "--wait=false")
	require.ErrorContains(c.t, err, "is protected against deletion")
}

// pki is where the lab's API server has its certificates.
func pki(file string) string {
	return filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "pki", file)
}

// apiServersAuthority is the authority that the API server trusts its etcd by.
func apiServersAuthority(t *testing.T) forger {
	t.Helper()
	data := map[string][]byte{}
	for key, file := range map[string]string{"tls.crt": "etcd-ca.crt", "tls.key": "etcd-ca.key"} {
		text, err := os.ReadFile(pki(file))
		require.NoError(t, err)
		data[key] = text
	}
	return forgerWith(t, data)
}

// putsTheirs puts certificates of an authority that the API server trusts, for the nodes' addresses.
func (c *cluster) putsTheirs(signer forger, trusted ...forger) {
	c.t.Helper()
	names := append(c.names(), "127.0.0.1") // for etcdctl in the pods
	for n := range labNodes {
		names = append(names, addressOf(n+1))
	}
	c.putsThree(name, "", signer, names, names, trusted...)
}

// processOf is the process of a member.
func (c *cluster) processOf(member string) int {
	c.t.Helper()
	pid := 0
	eventually(c.t, "etcd of "+member+" runs", func() string {
		pid, _ = c.dataOf(member)
		return while(pid == 0, "it does not")
	})
	return pid
}

// inLab runs a command of the lab's program.
func inLab(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("../../../bin/lab", args...).CombinedOutput()
	require.NoError(t, err, "lab %s: %s", strings.Join(args, " "), out)
	return string(out)
}
