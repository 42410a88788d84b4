//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// externalEtcd is an etcd whose members are processes on node 1, outside of Kubernetes, with an authority of their own.
// They resolve names by the cluster's DNS server, and pods reach them at the node's address.
type externalEtcd struct {
	t       *testing.T
	dir     string
	version string
	// from is the first of the ports: two for each member.
	from    int
	members int
	// spread puts one member on each of the lab's first nodes, where they outlive the test's process.
	spread bool
	// ca is nil for plain text.
	ca *forger
	// initial lists the members that new ones join; empty for a cluster of their own. Those don't look up who connects.
	initial string
	procs   map[int]*exec.Cmd
}

// newExternalEtcd starts three of them; with an authority they speak TLS and ask every caller for a certificate.
func newExternalEtcd(t *testing.T, version string, from int, encrypted bool) *externalEtcd {
	t.Helper()
	f := &externalEtcd{t: t, dir: t.TempDir(), version: version, from: from, members: 3, procs: map[int]*exec.Cmd{}}
	if encrypted {
		f.isOf(stranger(t, pkix.Name{CommonName: "the former authority"}), "member")
	}
	t.Cleanup(f.end)
	for n := range f.members {
		f.start(n)
	}
	eventually(t, "the external etcd serves", func() string {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := f.client("root").MemberList(ctx)
		return failure(err)
	})
	return f
}

// isOf has the members show certificates of this authority, in this name, for the address of each node that one is on.
func (f *externalEtcd) isOf(ca forger, commonName string) {
	f.t.Helper()
	f.ca = &ca
	addresses := []string{addressOf(1)}
	for n := 1; f.spread && n < f.members; n++ {
		addresses = append(addresses, addressOf(n+1))
	}
	cert, key := ca.issue(commonName, time.Now().Add(24*time.Hour), addresses...)
	for file, content := range map[string][]byte{"ca.crt": bundle(ca), "peer-ca.crt": bundle(ca), "tls.crt": cert,
		"tls.key": key} {
		require.NoError(f.t, os.WriteFile(f.dir+"/"+file, content, 0o600))
	}
}

// end stops all members, and shows their last words if the test has failed.
func (f *externalEtcd) end() {
	for n := range f.members {
		f.stop(n)
		if !f.t.Failed() {
			continue
		}
		log, err := os.ReadFile(fmt.Sprintf("%s/old-%d.log", f.dir, n))
		lines := strings.Split(string(log), "\n")
		f.t.Logf("--- old-%d\n%s%v", n, strings.Join(lines[max(0, len(lines)-25):], "\n"), err)
	}
}

func (f *externalEtcd) scheme() string {
	if f.ca == nil {
		return "http"
	}
	return "https"
}

func (f *externalEtcd) clientURL(n int) string { return f.url(n, 0) }
func (f *externalEtcd) peerURL(n int) string   { return f.url(n, 1) }

func (f *externalEtcd) url(n, port int) string {
	if f.spread {
		return f.scheme() + "://" + objects.HostPort(addressOf(n+1), f.from+port)
	}
	return f.scheme() + "://" + objects.HostPort(addressOf(1), f.from+2*n+port)
}

// start starts a member on its directory.
func (f *externalEtcd) start(n int) {
	f.t.Helper()
	var initial []string
	for i := range f.members {
		initial = append(initial, fmt.Sprintf("old-%d=%s", i, f.peerURL(i)))
	}
	state := "new"
	if f.initial != "" {
		initial, state = []string{f.initial}, "existing"
	}
	args := []string{fmt.Sprintf("%s/etcd-%s/etcd", os.Getenv("QUORATE_LAB_BIN"), f.version),
		fmt.Sprintf("--name=old-%d", n), fmt.Sprintf("--data-dir=%s/old-%d", f.dir, n),
		"--listen-client-urls=" + f.clientURL(n), "--advertise-client-urls=" + f.clientURL(n),
		"--listen-peer-urls=" + f.peerURL(n), "--initial-advertise-peer-urls=" + f.peerURL(n),
		"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-token=" + f.dir,
		"--initial-cluster-state=" + state,
	}
	if f.initial != "" {
		args = append(args, "--peer-skip-client-san-verification") // of 3.6 and later
	}
	if f.ca != nil {
		args = append(args, "--bcrypt-cost=4", "--cert-file="+f.dir+"/tls.crt", "--key-file="+f.dir+"/tls.key",
			"--trusted-ca-file="+f.dir+"/ca.crt", "--client-cert-auth",
			"--peer-cert-file="+f.dir+"/tls.crt", "--peer-key-file="+f.dir+"/tls.key", "--peer-trusted-ca-file="+f.dir+
				"/peer-ca.crt", "--peer-client-cert-auth")
	}
	if f.spread {
		inLab(f.t, append([]string{"start", strconv.Itoa(n + 1), fmt.Sprintf("old-%d", n)}, args...)...)
		return
	}
	log, err := os.OpenFile(fmt.Sprintf("%s/old-%d.log", f.dir, n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(f.t, err)
	defer func() { _ = log.Close() }()
	node := filepath.Dir(os.Getenv("QUORATE_LAB_NETNS"))
	cmd := exec.Command("nsenter", append([]string{"--mount=" + node + "/mnt", "--net=" + node + "/net"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(f.t, cmd.Start())
	f.procs[n] = cmd
}

// stop ends a member, if it runs.
func (f *externalEtcd) stop(n int) {
	if f.spread {
		inLab(f.t, "stop", strconv.Itoa(n+1), fmt.Sprintf("old-%d", n), "KILL")
		return
	}
	if cmd := f.procs[n]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	delete(f.procs, n)
}

// restart restarts all members, one at a time.
func (f *externalEtcd) restart() {
	f.t.Helper()
	for n := range f.members {
		f.stop(n)
		f.start(n)
		eventually(f.t, fmt.Sprintf("old-%d serves again", n), func() string {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_, err := f.clientOf("root", f.clientURL(n)).MemberList(ctx)
			return failure(err)
		})
	}
}

// shown is what a user with this name shows, and the authorities that it trusts besides; nil in plain text.
func (f *externalEtcd) shown(commonName string, trusts ...[]byte) *tls.Config {
	if f.ca == nil {
		return nil
	}
	pool := f.ca.Pool()
	for _, text := range trusts {
		pool.AppendCertsFromPEM(text)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool,
		Certificates: []tls.Certificate{f.ca.client(commonName, time.Now().Add(time.Hour))}}
}

func (f *externalEtcd) urls() []string {
	var urls []string
	for n := range f.members {
		urls = append(urls, f.clientURL(n))
	}
	return urls
}

func (f *externalEtcd) client(commonName string) *clientv3.Client {
	return f.clientOf(commonName, f.urls()...)
}

// app is an application that reaches the members, and a cluster of ours, by its Service.
func (f *externalEtcd) app(c *cluster, trusts ...[]byte) *clientv3.Client {
	f.t.Helper()
	service := fmt.Sprintf("%s.%s.svc:2379", name, c.ns)
	return labClient(c.t, f.shown("app", trusts...), map[string]string{service: c.service()},
		append(f.urls(), "https://"+service)...)
}

func (f *externalEtcd) clientOf(commonName string, urls ...string) *clientv3.Client {
	f.t.Helper()
	return labClient(f.t, f.shown(commonName), nil, urls...)
}

// stage waits until the condition ExternalMembers has this reason and nothing is left to do.
func (c *cluster) stage(reason string) {
	c.t.Helper()
	eventually(c.t, "ExternalMembers is "+reason, func() string {
		o := c.object()
		s := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ExternalMembers)
		p := meta.FindStatusCondition(o.Status.Conditions, v1beta1.Ready)
		if s == nil || p == nil || s.Reason != reason || o.Status.ObservedGeneration != o.Generation ||
			meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.Reconciling) {
			return fmt.Sprintf("%+v, %+v", s, p)
		}
		return ""
	})
}

// members are the names in etcd's list, sorted, as a client sees it.
func membersOf(t *testing.T, client *clientv3.Client) []string {
	t.Helper()
	list, err := answered(t, func(ctx context.Context) (*clientv3.MemberListResponse, error) {
		return client.MemberList(ctx)
	})
	require.NoError(t, err)
	var names []string
	for _, m := range list.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// hasMembers waits until these are the members. Etcd knows a new member's name when that has published it, and what
// got lost of that is repeated after seven seconds (publishV3 in etcd's server.go).
func hasMembers(t *testing.T, client *clientv3.Client, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the members are %q", want), func() string {
		got := membersOf(t, client)
		return while(!slices.Equal(got, want), fmt.Sprintf("they are %q", got))
	})
}

// TestJoinPlainAndBack: three of ours join an etcd in plain text, outside of Kubernetes, and leave it again, as
// replicas says and when they are deleted, and the application that writes all the time loses nothing.
func TestJoinPlainAndBack(t *testing.T) {
	beside(t)
	f := newExternalEtcd(t, "3.6.16", 23790, false)
	c := inNamespace(t)
	w := c.writesWith(f.client(""), "key")
	c.apply(three + "  tls: {mode: Disabled}\n  bootstrap: {external: {endpoints: ['" + f.clientURL(0) + "']}}\n")
	c.stage("ExternalMembers")
	hasMembers(t, f.client(""), "demo-0", "demo-1", "demo-2", "old-0", "old-1", "old-2")
	c.edit(`{"replicas":0}`)
	c.stage("Left")
	assert.NotContains(t, strings.Join(membersOf(t, f.client("")), " "), "demo")
	assert.Empty(t, c.pods())
	c.edit(`{"replicas":3}`)
	c.stage("ExternalMembers")
	c.kube("delete", "etcdcluster", name)
	hasMembers(t, f.client(""), "old-0", "old-1", "old-2")
	w.losesNothing()
}

// TestJoinByTLSAndStay: ours take the place of an etcd with an authority of its own, which asks for passwords. Each
// side is told to trust the other's authority, and the application that writes all the time with its old certificate
// loses nothing.
func TestJoinByTLSAndStay(t *testing.T) {
	beside(t)
	f := newExternalEtcd(t, "3.6.16", 23690, true)
	f.enableAuth()
	c := inNamespace(t)
	cert, key := f.ca.issue("no-user", time.Now().Add(time.Hour))
	c.puts("former", cert, key, bundle(*f.ca))
	c.putsLogin("former-root")
	c.rehearses(f)
	c.apply("  replicas: 0\n  version: 3.6.16\n  bootstrap: {external: {endpoints: ['" + f.clientURL(0) + "', '" +
		f.clientURL(1) + "'], caSecretRef: {name: former}, clientSecretRef: {name: former}, userSecretRef: {name: former-root}}}\n")

	// The external peers learn to trust our authority before any member joins.
	var ours []byte
	eventually(t, "there is an authority of ours", func() string {
		data, err := secretData(c.ns, name+"-ca")
		if err != nil {
			return err.Error()
		}
		ours = data["ca.crt"]
		return ""
	})
	require.NoError(t, os.WriteFile(f.dir+"/peer-ca.crt", append(bundle(*f.ca), ours...), 0o600))
	f.restart()

	w := c.writesWith(f.app(c, ours), "key")
	c.edit(`{"replicas":3}`)
	c.stage("ExternalMembers")
	hasMembers(t, f.client("root"), "demo-0", "demo-1", "demo-2", "old-0", "old-1", "old-2")
	ids := c.ids()

	c.edit(`{"removeExternalMembers":true}`)
	c.stage("Retired")
	c.converges(3)
	for _, pod := range c.pods() {
		assert.Contains(t, strings.Join(pod.Spec.Containers[0].Command, " "), "--peer-cert-allowed-cn="+name+":peers",
			"the peers' door is narrow again")
	}
	for member, id := range c.ids() {
		assert.Equal(t, ids[member], id, "the members that joined")
	}
	w.losesNothing()

	c.edit(`{"bootstrap":null}`)
	eventually(t, "the former authority is trusted no longer", func() string {
		if n := strings.Count(string(c.secretOf(name + "-peer-tls")["ca.crt"]), "BEGIN"); n != 1 {
			return fmt.Sprintf("%d authorities in ca.crt", n)
		}
		if err := knock(c.pods()[0], 2379, f.ca.client("app", time.Now().Add(time.Hour))); err == nil {
			return "its certificates are let in"
		}
		return c.notConverged(3)
	})
}

// rehearses takes a snapshot of an external etcd as it is, and begins a cluster of ours with it.
func (c *cluster) rehearses(f *externalEtcd) {
	c.t.Helper()
	require.NoError(c.t, putting(c.t, f.client("app"), "before", "Quorate"))
	c.adds(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: backups, namespace: %[1]s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: etcd.quorate.dev/v1beta1
kind: EtcdSnapshot
metadata: {name: former, namespace: %[1]s}
spec:
  external:
    name: former
    version: %[2]s
    endpoints: [%[3]q, %[4]q]
    caSecretRef: {name: former}
    clientSecretRef: {name: former}
    userSecretRef: {name: former-root}
  store: {claim: {name: backups}}
---
apiVersion: etcd.quorate.dev/v1beta1
kind: EtcdCluster
metadata: {name: rehearsal, namespace: %[1]s}
spec:
  version: %[2]s
  replicas: 1
  bootstrap: {snapshot: {snapshotRef: {name: former}}}
`, c.ns, f.version, f.clientURL(1), f.clientURL(2)))
	c.kube("label", "secret", "former", "former-root", "etcd.quorate.dev/external=")
	s := c.ends("former", v1beta1.SnapshotSucceeded)
	assert.False(c.t, s.Status.VerificationTime.IsZero())
	assert.Contains(c.t, s.Status.URI, c.ns+"/former/former-")
	c.meets("etcdcluster/rehearsal", "Available")
	value := c.asked("rehearsal-0", "--user=root:secret", "get", "before", "--print-value-only")
	assert.Equal(c.t, "Quorate", strings.TrimSpace(value))
	c.kube("delete", "etcdcluster/rehearsal", "etcdsnapshot/former")
}

// enableAuth makes the users root, with a password, and app, who may do everything with keys, and turns auth on.
func (f *externalEtcd) enableAuth() {
	f.t.Helper()
	root := f.client("root")
	makes(f.t, func(ctx context.Context) (any, error) { return root.UserAdd(ctx, "root", "secret") })
	makes(f.t, func(ctx context.Context) (any, error) { return root.RoleAdd(ctx, "root") })
	makes(f.t, func(ctx context.Context) (any, error) { return root.UserGrantRole(ctx, "root", "root") })
	makesUser(f.t, root, "app", "\x00", "\x00")
	makes(f.t, func(ctx context.Context) (any, error) { return root.AuthEnable(ctx) })
}

// TestJoinWithTheirAuthority: our members come with certificates of the external authority, so that no member there
// has to be told anything.
func TestJoinWithTheirAuthority(t *testing.T) {
	beside(t)
	f := newExternalEtcd(t, "3.6.16", 23590, true)
	c := inNamespace(t)
	c.putsThree(name, "their-", *f.ca, c.names(), []string{c.names()[0], c.names()[0] + ".lab.internal"})
	c.apply(three + "  tls: {mode: Secrets, secrets: {serverSecretRef: {name: their-server}, peerSecretRef: {name: their-peer}, " +
		"operatorSecretRef: {name: their-operator}}}\n  bootstrap: {external: {endpoints: ['" + f.clientURL(2) +
		"'], caSecretRef: {name: their-operator}, clientSecretRef: {name: their-operator}}}\n  removeExternalMembers: true\n")
	app := f.app(c)
	w := c.writesWith(app, "key")
	c.stage("Retired")
	c.converges(3)
	hasMembers(t, app, "demo-0", "demo-1", "demo-2")
	w.losesNothing()
}

// TestJoinAStatefulSet: members of a StatefulSet in the same namespace, as a chart makes it, hand their data over to
// ours and are then deleted.
func TestJoinAStatefulSet(t *testing.T) {
	beside(t)
	c := inNamespace(t)
	manifest, err := os.ReadFile("testdata/statefulset.yaml")
	require.NoError(t, err)
	c.adds(string(manifest))
	c.kube("rollout", "status", "statefulset/former")
	eventually(t, "the former etcd serves", func() string { // its pods are ready when they listen
		_, err := kubectl("", "-n", c.ns, "exec", "former-0", "--", "etcdctl", "put", "before", "the move")
		return failure(err)
	})

	// all of them: under the short names that they advertise, Quorate's namespace doesn't know them
	var endpoints []string
	for n := range 3 {
		endpoints = append(endpoints, fmt.Sprintf("'http://former-%d.former.%s.svc:2379'", n, c.ns))
	}
	c.apply(three + "  tls: {mode: Disabled}\n  bootstrap: {external: {endpoints: [" + strings.Join(endpoints, ", ") +
		"]}}\n  removeExternalMembers: true\n")
	c.stage("Retired")
	c.convergesBeside(3)
	c.kube("delete", "statefulset/former", "service/former")
	out := c.asked("demo-0", "get", "before")
	assert.Contains(t, out, "the move")
	c.converges(3)
}

// convergesBeside waits until the cluster is at rest, whatever other pods there are.
func (c *cluster) convergesBeside(n int) {
	c.t.Helper()
	eventually(c.t, "at rest", func() string {
		s := c.object().Status
		return while(s.Rule != "Converged" || int(s.ReadyReplicas) != n, s.Rule)
	})
}

// TestMoveOut: the way out, by etcd's own tools, while Quorate is suspended: members elsewhere join with certificates
// of our authority, ours are removed, and the application that writes all the time loses nothing.
func TestMoveOut(t *testing.T) {
	beside(t)
	c := newCluster(t, three)
	c.converges(3)
	ours := forgerWith(t, c.secretOf(name+"-ca"))
	f := &externalEtcd{t: t, dir: t.TempDir(), version: "3.6.16", from: 23490, members: 3, procs: map[int]*exec.Cmd{}}
	f.isOf(ours, name+":peers")
	t.Cleanup(f.end)
	app := f.app(c)
	w := c.writesWith(app, "key")

	c.edit(`{"suspend":true}`)
	c.meets("etcdcluster/"+name, "Suspended")
	for n := range f.members {
		f.moveIn(c, n)
	}
	for _, member := range []string{"demo-1", "demo-2", "demo-0"} {
		f.moveOut(c, member)
	}
	hasMembers(t, f.client("root"), "old-0", "old-1", "old-2")
	c.kube("delete", "etcdcluster", name)
	w.losesNothing()
}

// moveIn adds a member outside as a learner, starts it and promotes it, until the list says that it votes and how to
// reach it. What etcd says to a repeated request tells less: it "can only promote a learner member" where one votes
// already, and "can only promote a learner member which is in sync with leader" where one does not.
func (f *externalEtcd) moveIn(c *cluster, n int) {
	f.t.Helper()
	name := fmt.Sprintf("old-%d", n)
	eventually(f.t, name+" is added", func() string {
		list, err := c.listed()
		if err != nil {
			return err.Error()
		}
		var initial []string // as etcdctl member add prints it
		added := false
		for _, m := range list {
			if m.peerURL == f.peerURL(n) {
				m.name, added = name, true
			}
			initial = append(initial, m.name+"="+m.peerURL)
		}
		if f.initial = strings.Join(initial, ","); added {
			return ""
		}
		_, err = c.etcdctl(c.pods()[0].Name, "member", "add", name, "--learner", "--peer-urls="+f.peerURL(n))
		return fmt.Sprintf("it is not listed: %v", err)
	})
	f.start(n)
	eventually(f.t, name+" votes, and is listed as started", func() string {
		list, err := c.listed()
		if err != nil {
			return err.Error()
		}
		for _, m := range list {
			switch {
			case m.peerURL != f.peerURL(n):
			case m.learner:
				_, err := c.etcdctl(c.pods()[0].Name, "member", "promote", m.id)
				return fmt.Sprintf("it is a learner: %v", err)
			case m.status == "started":
				return ""
			}
		}
		return fmt.Sprint(list)
	})
}

// listedMember is a line of etcdctl member list.
type listedMember struct {
	id, status, name, peerURL string
	learner                   bool
}

// listed is what etcdctl member list prints.
func (c *cluster) listed() (all []listedMember, err error) {
	out, err := c.etcdctl(c.pods()[0].Name, "member", "list")
	for line := range strings.Lines(out) {
		if of := strings.Split(strings.TrimSpace(line), ", "); len(of) == 6 { // the fifth are its client URLs
			all = append(all, listedMember{of[0], of[1], of[2], of[3], of[5] == "true"})
		}
	}
	return all, err
}

// moveOut removes one of our members by way of an external one, after it has handed its leadership over.
func (f *externalEtcd) moveOut(c *cluster, member string) {
	f.t.Helper()
	root := f.clientOf("root", f.clientURL(0))
	eventually(f.t, member+" is removed", func() string {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		list, err := root.MemberList(ctx)
		if err != nil {
			return err.Error()
		}
		status, err := root.Status(ctx, f.clientURL(0))
		if err != nil {
			return err.Error()
		}
		for _, m := range list.Members {
			if m.Name != member {
				continue
			}
			if status.Leader == m.ID {
				_, err = c.etcdctl(member, "move-leader", fmt.Sprintf("%x", status.Header.MemberId))
			} else {
				_, err = root.MemberRemove(ctx, m.ID)
			}
			return fmt.Sprintf("still there: %v", err)
		}
		return ""
	})
}

// TestJoinEveryMinorVersion: an etcd of each minor version hands its data over.
func TestJoinEveryMinorVersion(t *testing.T) {
	beside(t)
	for i, version := range []string{"3.5.35", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			f := newExternalEtcd(t, version, 23390+10*i, false)
			w := (&cluster{t: t}).writesWith(f.client(""), "key")
			c := inNamespace(t)
			c.apply("  replicas: 3\n  version: " + version + "\n  tls: {mode: Disabled}\n  bootstrap: {external: " +
				"{endpoints: ['" + f.clientURL(1) + "']}}\n")
			c.stage("ExternalMembers")
			w.losesNothing()
			c.edit(`{"removeExternalMembers":true}`)
			c.stage("Retired")
			c.converges(3)
			out := c.asked(c.pods()[0].Name, "get", "key-first", "--print-value-only")
			assert.Equal(t, "value of key-first", strings.TrimSpace(out))
		})
	}
}
