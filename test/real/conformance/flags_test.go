//go:build unix

package conformance

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestListensInBothFamilies: where members listen, addresses of version 6 lead as well, although it is written as
// 0.0.0.0. Pods that have no others depend on that: for Go an unspecified address means all of both versions
// (favoriteAddrFamily in Go's net/ipsock_posix.go). Written so, etcd also starts where the kernel has no IPv6.
func TestListensInBothFamilies(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6: ", err)
	} else {
		require.NoError(t, l.Close())
	}
	eachVersion(t, func(t *testing.T, version string) {
		for _, everywhere := range []string{objects.AnyAddress(""), objects.AnyAddress("fd00::1")} {
			port := etcdproc.Port(t)
			etcdproc.Start(t, version, "demo", 1, "--listen-metrics-urls="+defaults.URLOn("http", everywhere, port))
			for _, at := range []string{"127.0.0.1", "::1"} {
				response, err := http.Get(defaults.URLOn("http", at, port) + "/health")
				require.NoError(t, err, "at %s, listening at %s", at, everywhere)
				require.NoError(t, response.Body.Close())
				require.Equal(t, http.StatusOK, response.StatusCode)
			}
		}
	})
}

// TestFlags starts real servers with the flags that pods get. FuzzFlags in package hooks knows how etcd reads each of
// them; here etcd itself does.
func TestFlags(t *testing.T) {
	kept := func(d time.Duration) v1beta1.Options {
		return v1beta1.Options{AutoCompaction: v1beta1.AutoCompaction{Retention: &metav1.Duration{Duration: d}}}
	}
	eachVersion(t, func(t *testing.T, version string) {
		fine := map[string]v1beta1.Options{
			"defaults":      {},
			"no compaction": kept(0),
			"by time":       kept(time.Hour + 30*time.Minute + 10*time.Second),
			"by revisions":  {AutoCompaction: v1beta1.AutoCompaction{Revisions: new(int64(math.MaxInt64))}},
			"smallest values": {QuotaBackendBytes: new(int64(16 << 20)),
				MaxRequestBytes: new(int64(1024)), HeartbeatInterval: millis(10),
				ElectionTimeout: millis(50), LogLevel: "error"},
			"largest values": {QuotaBackendBytes: new(int64(8 << 30)),
				MaxRequestBytes: new(int64(100 << 20)), HeartbeatInterval: millis(500),
				ElectionTimeout: millis(2500), LogLevel: "debug"},
			"every extra flag": extraArgs(version),
		}
		for name, options := range fine {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				etcdproc.Start(t, version, "demo", 1,
					flagsOf(t, version, v1beta1.EtcdClusterSpec{Options: options})...)
			})
		}
		for name, spec := range map[string]v1beta1.EtcdClusterSpec{
			"plain text": {TLS: v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled}},
			"newest TLS": {TLS: v1beta1.TLSSpec{MinVersion: "TLS1.3"}},
			"chosen suites": {TLS: v1beta1.TLSSpec{CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
				"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				etcdproc.Start(t, version, "demo", 1, flagsOf(t, version, spec)...)
			})
		}
		for name, refused := range map[string][]string{
			"a time that is too long": {"--auto-compaction-mode=periodic", "--auto-compaction-retention=99999999999h"},
			"more revisions than can be": {"--auto-compaction-mode=revision",
				"--auto-compaction-retention=99999999999999999999"},
			"no time for elections":        {"--heartbeat-interval=100", "--election-timeout=400"},
			"a flag that no etcd ever had": {"--no-such-flag=x"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := etcdproc.Start(t, version, "demo", 0, refused...)
				m := c.NewMember("demo-0")
				c.Bootstrap(m, m)
				require.NotZero(t, m.ExitCode(etcdproc.Patience))
			})
		}
	})
}

// flagsOf are the flags of a member with this spec, except its name, its directory and its addresses: those are of a
// pod. The certificates that they name are in a folder of the test.
func flagsOf(t *testing.T, version string, spec v1beta1.EtcdClusterSpec) []string {
	t.Helper()
	pod, secrets := podOf(t, version, spec)
	command, dir := pod.Spec.Containers[0].Command, mount(t, pod, secrets)
	var flags []string
	for _, flag := range command[1:] {
		name, _, _ := strings.Cut(flag, "=")
		if name != "--name" && name != "--data-dir" && !strings.HasSuffix(name, "-urls") {
			flags = append(flags, strings.ReplaceAll(flag, objects.CertificateDir, dir))
		}
	}
	require.GreaterOrEqual(t, len(flags), 5)
	return flags
}

// mount writes what the pod's projected volume holds into a folder, as the kubelet does.
func mount(t *testing.T, pod *corev1.Pod, secrets map[string]map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			for _, item := range source.Secret.Items {
				path := filepath.Join(dir, item.Path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, secrets[source.Secret.Name][item.Key], 0o600))
			}
		}
	}
	return dir
}

// podOf is the first pod of a new cluster, and its Secrets: what is answered is fed back until it is there.
func podOf(t *testing.T, version string, spec v1beta1.EtcdClusterSpec) (*corev1.Pod, map[string]map[string][]byte) {
	t.Helper()
	spec.Version, spec.Replicas = version, new(int32(1))
	if spec.Storage.Size.IsZero() {
		spec.Storage = v1beta1.StorageSpec{Medium: v1beta1.Persistent, Size: resource.MustParse("100Gi")}
	}
	o := observation.Observation{
		Cluster: &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid"},
			Spec: spec},
		Now: time.Now(),
	}
	secrets := map[string]map[string][]byte{}
	for range 5 {
		d := hooks.Decide(o)
		if len(d.Children.Pods) > 0 {
			return d.Children.Pods[0], secrets
		}
		o.Children.Secrets = made(t, d.Children.Secrets, secrets)
		o.Children.ConfigMaps = stored(d.Children.ConfigMaps)
		o.Children.Claims = stored(d.Children.Claims)
	}
	t.Fatal("no pod is ever made")
	return nil, nil
}

// made carries the recipes out into secrets, and is what decisions see of it.
func made(t *testing.T, wanted []*decision.DesiredSecret,
	secrets map[string]map[string][]byte) map[string]*observation.Secret {
	t.Helper()
	observed, before := map[string]*observation.Secret{}, maps.Clone(secrets)
	for _, s := range wanted {
		data, err := pki.Make(s.Name, s.Make, before)
		require.NoError(t, err)
		secrets[s.Name] = data
		observed[s.Name] = pki.Read(&corev1.Secret{ObjectMeta: s.ObjectMeta, Type: s.Type, Data: data})
	}
	return observed
}

func stored[T any, P interface {
	*T
	metav1.Object
}](wanted []P) map[string]P {
	all := map[string]P{}
	for _, p := range slices.Clone(wanted) {
		p.SetUID(types.UID(fmt.Sprintf("uid-%T-%s", p, p.GetName())))
		p.SetOwnerReferences([]metav1.OwnerReference{{UID: "uid"}})
		all[p.GetName()] = p
	}
	return all
}

// plainFlags are what pods of this version get, without TLS.
func plainFlags(t *testing.T, version string) []string {
	t.Helper()
	return flagsOf(t, version, v1beta1.EtcdClusterSpec{TLS: v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled}})
}

// quiet are those flags, with a log of warnings only.
func quiet(t *testing.T, version string) []string {
	t.Helper()
	return append(plainFlags(t, version), "--log-level=warn")
}

func millis(n int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Millisecond}
}

// extraArgs are all that a spec may say beside its fields, with a value each.
func extraArgs(version string) v1beta1.Options {
	o := v1beta1.Options{ExtraArgs: map[string]v1beta1.ExtraArg{}}
	for name, arg := range defaults.ExtraArgs {
		if arg.KnownTo(version) {
			o.ExtraArgs[name] = v1beta1.ExtraArg(arg.Example)
		}
	}
	return o
}

// TestDefaultsOfEtcd: who writes one of these into a spec says what etcd does anyway, and no member is restarted for
// it (options and snapshotCount in hooks/facts/templates.go).
func TestDefaultsOfEtcd(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		out, err := etcdproc.Command(t, version, "--help").CombinedOutput()
		require.NoError(t, err)
		counts := map[bool]string{true: "--snapshot-count '100000'", false: "--snapshot-count '10000'"}
		for _, flag := range []string{counts[version[:4] == "3.5."], "--max-request-bytes '1572864'",
			"--max-txn-ops '128'"} {
			assert.Contains(t, string(out), flag+"\n")
		}
	})
}
