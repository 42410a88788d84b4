//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// foreigners is an etcd whose members are processes on node 1, outside of Kubernetes, with an authority of their own. They resolve names by the
// cluster's DNS server, and pods reach them at the node's address.
type foreigners struct {
	t       *testing.T
	dir     string
	version string
	// from is the first of the ports: two for each member.
	from    int
	members int
	// ca is nil for plain text.
	ca *forger
	// extra are flags that all members get.
	extra []string
	procs map[int]*exec.Cmd
}

const nodeAddress = "172.30.0.1"

// newForeigners starts three of them; with an authority they speak TLS and ask everybody for a certificate.
func newForeigners(t *testing.T, from int, encrypted bool, extra ...string) *foreigners {
	t.Helper()
	f := &foreigners{t: t, dir: t.TempDir(), version: "3.6.16", from: from, members: 3, extra: extra, procs: map[int]*exec.Cmd{}}
	if encrypted {
		ca := stranger(t, pkix.Name{CommonName: "the former authority"})
		f.ca = &ca
		cert, key := ca.issue("member", time.Now().Add(time.Hour), nodeAddress)
		for file, content := range map[string][]byte{"ca.crt": bundle(ca), "peer-ca.crt": bundle(ca), "tls.crt": cert, "tls.key": key} {
			require.NoError(t, os.WriteFile(f.dir+"/"+file, content, 0o600))
		}
	}
	t.Cleanup(func() {
		for n := range f.procs {
			f.stop(n)
		}
		if t.Failed() {
			for n := range f.members {
				log, err := os.ReadFile(fmt.Sprintf("%s/old-%d.log", f.dir, n))
				lines := strings.Split(string(log), "\n")
				t.Logf("--- old-%d\n%s%v", n, strings.Join(lines[max(0, len(lines)-25):], "\n"), err)
			}
		}
	})
	for n := range f.members {
		f.start(n)
	}
	eventually(t, 30*time.Second, "the foreign etcd serves", func() string {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if _, err := f.client("root").MemberList(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	return f
}

func (f *foreigners) scheme() string {
	if f.ca == nil {
		return "http"
	}
	return "https"
}

func (f *foreigners) clientURL(n int) string {
	return fmt.Sprintf("%s://%s:%d", f.scheme(), nodeAddress, f.from+2*n)
}

func (f *foreigners) peerURL(n int) string {
	return fmt.Sprintf("%s://%s:%d", f.scheme(), nodeAddress, f.from+2*n+1)
}

// start starts a member on its directory.
func (f *foreigners) start(n int) {
	f.t.Helper()
	var initial []string
	for i := range f.members {
		initial = append(initial, fmt.Sprintf("old-%d=%s", i, f.peerURL(i)))
	}
	node := filepath.Dir(os.Getenv("QUORATE_LAB_NETNS"))
	args := []string{"--mount=" + node + "/mnt", "--net=" + node + "/net", fmt.Sprintf("%s/etcd-%s/etcd", os.Getenv("QUORATE_LAB_BIN"), f.version),
		fmt.Sprintf("--name=old-%d", n), fmt.Sprintf("--data-dir=%s/old-%d", f.dir, n),
		"--listen-client-urls=" + f.clientURL(n), "--advertise-client-urls=" + f.clientURL(n),
		"--listen-peer-urls=" + f.peerURL(n), "--initial-advertise-peer-urls=" + f.peerURL(n),
		"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-token=" + f.dir,
	}
	if f.ca != nil {
		args = append(args, "--cert-file="+f.dir+"/tls.crt", "--key-file="+f.dir+"/tls.key", "--trusted-ca-file="+f.dir+"/ca.crt", "--client-cert-auth",
			"--peer-cert-file="+f.dir+"/tls.crt", "--peer-key-file="+f.dir+"/tls.key", "--peer-trusted-ca-file="+f.dir+"/peer-ca.crt", "--peer-client-cert-auth")
	}
	log, err := os.OpenFile(fmt.Sprintf("%s/old-%d.log", f.dir, n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(f.t, err)
	defer func() { _ = log.Close() }()
	cmd := exec.Command("nsenter", append(args, f.extra...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(f.t, cmd.Start())
	f.procs[n] = cmd
}

// stop ends a member, if it runs.
func (f *foreigners) stop(n int) {
	if cmd := f.procs[n]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	delete(f.procs, n)
}

// restart restarts all members, one at a time.
func (f *foreigners) restart() {
	f.t.Helper()
	for n := range f.members {
		f.stop(n)
		f.start(n)
		eventually(f.t, 30*time.Second, fmt.Sprintf("old-%d serves again", n), func() string {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			if _, err := f.clientOf("root", f.clientURL(n)).MemberList(ctx); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// shown is what a user with this name shows, and whom he trusts besides; nil in plain text.
func (f *foreigners) shown(commonName string, trusts ...[]byte) *tls.Config {
	if f.ca == nil {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AddCert(f.ca.ca)
	for _, text := range trusts {
		pool.AppendCertsFromPEM(text)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{f.ca.client(commonName, time.Now().Add(time.Hour))}}
}

func (f *foreigners) urls() []string {
	var urls []string
	for n := range f.members {
		urls = append(urls, f.clientURL(n))
	}
	return urls
}

func (f *foreigners) client(commonName string) *clientv3.Client {
	return f.clientOf(commonName, f.urls()...)
}

func (f *foreigners) clientOf(commonName string, urls ...string) *clientv3.Client {
	f.t.Helper()
	return labClient(f.t, f.shown(commonName), nil, urls...)
}

// labClient is a client at URLs inside the lab, of which the hosts of some are looked up here.
func labClient(t *testing.T, config *tls.Config, hosts map[string]string, urls ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: urls, TLS: config, DialTimeout: 5 * time.Second, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			address = strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
			if known := hosts[address]; known != "" {
				address = known
			}
			return lab.DialContext(ctx, address)
		})},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// stage waits until the condition ForeignMembers has this reason and nothing is left to do.
func (c *cluster) stage(reason string, within time.Duration) {
	c.t.Helper()
	eventually(c.t, within, "ForeignMembers is "+reason, func() string {
		o := c.object()
		s := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ForeignMembers)
		p := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Progressing)
		if s == nil || p == nil || s.Reason != reason || o.Status.ObservedGeneration != o.Generation || p.Status == "True" {
			return fmt.Sprintf("%+v, %+v", s, p)
		}
		return ""
	})
}

// members are the names in etcd's list, sorted, as a client sees it.
func membersOf(t *testing.T, client *clientv3.Client) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := client.MemberList(ctx)
	require.NoError(t, err)
	var names []string
	for _, m := range list.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// TestJoinPlainAndBack: three of ours join an etcd in plain text, outside of Kubernetes; one of its members is retired, then all is taken back,
// and the application that writes all the time loses nothing.
func TestJoinPlainAndBack(t *testing.T) {
	t.Parallel()
	f := newForeigners(t, 23790, false)
	c := inNamespace(t)
	w := c.writesWith(f.client(""), "key")
	c.apply(three + "  tls: {mode: Disabled}\n  bootstrap: {existing: {endpoints: ['" + f.clientURL(0) + "']}}\n")
	c.stage("Beside", 120*time.Second)
	assert.Equal(t, []string{"demo-0", "demo-1", "demo-2", "old-0", "old-1", "old-2"}, membersOf(t, f.client("")))

	c.edit(`{"bootstrap":{"existing":{"retireForeign":true}}}`)
	eventually(t, 60*time.Second, "the first of them is removed", func() string {
		if n := len(membersOf(t, f.client(""))); n > 5 {
			return fmt.Sprintf("%d members", n)
		}
		return ""
	})
	c.edit(`{"bootstrap":{"existing":{"retireForeign":false}}}`)
	c.stage("Beside", 60*time.Second)
	left := membersOf(t, f.client(""))
	t.Logf("left: %v", left)

	c.edit(`{"replicas":0}`)
	c.stage("Left", 180*time.Second)
	assert.NotContains(t, strings.Join(membersOf(t, f.client("")), " "), "demo")
	assert.Empty(t, c.pods())
	w.losesNothing()
	kube(t, "-n", c.ns, "delete", "etcdcluster", name, "--timeout=60s")
}

// TestJoinByTLSAndStay: ours take the place of an etcd with an authority of its own, which asks for passwords. Each side is told to trust the
// other's authority, and the application that writes all the time with its old certificate loses nothing.
func TestJoinByTLSAndStay(t *testing.T) {
	t.Parallel()
	f := newForeigners(t, 23690, true)
	f.enableAuth()
	c := inNamespace(t)
	cert, key := f.ca.issue("nobody", time.Now().Add(time.Hour))
	c.puts("former", cert, key, bundle(*f.ca))
	kube(t, "-n", c.ns, "create", "secret", "generic", "former-root", "--from-literal=username=root", "--from-literal=password=secret")
	kube(t, "-n", c.ns, "label", "secret", "former-root", "etcd.quorate.dev/cluster="+name)
	c.apply("  replicas: 0\n  version: 3.6.16\n  bootstrap: {existing: {endpoints: ['" + f.clientURL(0) + "', '" + f.clientURL(1) + "'], tls: {secretName: former}, auth: {secretName: former-root}}}\n")

	// The foreign peers learn to trust our authority before anybody joins.
	var ours []byte
	eventually(t, 30*time.Second, "there is an authority of ours", func() string {
		data, err := secretData(c.ns, name+"-ca")
		if err != nil {
			return err.Error()
		}
		ours = data["ca.crt"]
		return ""
	})
	require.NoError(t, os.WriteFile(f.dir+"/peer-ca.crt", append(bundle(*f.ca), ours...), 0o600))
	f.restart()

	service := fmt.Sprintf("%s.%s.svc:2379", name, c.ns)
	app := labClient(t, f.shown("app", ours), map[string]string{service: c.service()}, append(f.urls(), "https://"+service)...)
	w := c.writesWith(app, "key")
	c.edit(`{"replicas":3}`)
	c.stage("Beside", 180*time.Second)
	assert.Equal(t, []string{"demo-0", "demo-1", "demo-2", "old-0", "old-1", "old-2"}, membersOf(t, f.client("root")))
	ids := c.ids()

	c.edit(`{"bootstrap":{"existing":{"retireForeign":true}}}`)
	c.stage("Retired", 240*time.Second)
	c.converges(3, 120*time.Second)
	for _, pod := range c.pods() {
		assert.Contains(t, strings.Join(pod.Spec.Containers[0].Command, " "), "--peer-cert-allowed-cn="+name+":peers", "the peers' door is narrow again")
	}
	for member, id := range c.ids() {
		assert.Equal(t, ids[member], id, "the members that joined")
	}
	w.losesNothing()

	c.edit(`{"bootstrap":null}`)
	eventually(t, 180*time.Second, "the former authority is trusted no longer", func() string {
		if n := strings.Count(string(c.secretOf(name + "-peer-tls")["ca.crt"]), "BEGIN"); n != 1 {
			return fmt.Sprintf("%d authorities in ca.crt", n)
		}
		if err := knock(c.pods()[0], 2379, f.ca.client("app", time.Now().Add(time.Hour))); err == nil {
			return "its certificates are let in"
		}
		return c.notConverged(3)
	})
}

// enableAuth makes the users root, with a password, and app, who may do everything with keys, and turns auth on.
func (f *foreigners) enableAuth() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	root := f.client("root")
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error {
			_, err := root.UserAddWithOptions(ctx, "app", "", &clientv3.UserAddOptions{NoPassword: true})
			return err
		},
		func() error { _, err := root.RoleAdd(ctx, "app"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "app", "\x00", "\x00", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserGrantRole(ctx, "app", "app"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(f.t, step())
	}
}

// TestJoinWithTheirAuthority: our members come with certificates of the foreign authority, so that nobody there has to be told anything.
func TestJoinWithTheirAuthority(t *testing.T) {
	t.Parallel()
	f := newForeigners(t, 23590, true)
	c := inNamespace(t)
	until := time.Now().Add(time.Hour)
	peerNames := []string{"*." + name + "-peers." + c.ns + ".svc", "*." + name + "-peers." + c.ns + ".svc.cluster.local"}
	for secret, issued := range map[string][2][]byte{
		"their-server":   pairOf(f.ca.issue("", until, c.names()...)),
		"their-peer":     pairOf(f.ca.issue(name+":peers", until, peerNames...)),
		"their-operator": pairOf(f.ca.issue("root", until)),
	} {
		c.puts(secret, issued[0], issued[1], bundle(*f.ca))
	}
	c.apply(three + "  tls: {mode: Secrets, secrets: {server: their-server, peer: their-peer, operator: their-operator}}\n" +
		"  bootstrap: {existing: {endpoints: ['" + f.clientURL(2) + "'], tls: {secretName: their-operator}, retireForeign: true}}\n")
	eventually(t, 30*time.Second, "there is a client Service", func() string {
		if _, found := get[corev1.Service](t, c.ns, "svc", name); !found {
			return "none"
		}
		return ""
	})
	service := fmt.Sprintf("%s.%s.svc:2379", name, c.ns)
	app := labClient(t, f.shown("app"), map[string]string{service: c.service()}, append(f.urls(), "https://"+service)...)
	w := c.writesWith(app, "key")
	c.stage("Retired", 240*time.Second)
	c.converges(3, 120*time.Second)
	assert.Equal(t, []string{"demo-0", "demo-1", "demo-2"}, membersOf(t, app))
	w.losesNothing()
}

func pairOf(a, b []byte) [2][]byte { return [2][]byte{a, b} }
