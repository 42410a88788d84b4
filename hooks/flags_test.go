package hooks

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

var (
	flagName  = regexp.MustCompile(`^--[a-z]+(-[a-z]+)*$`)
	flagValue = regexp.MustCompile(`^[^\s[:cntrl:]]+$`) // not empty, no blanks
)

// etcdReads is how etcd reads the flags that we give it. A flag that is not here was not thought about.
var etcdReads = map[string]func(value string) error{
	"--name":                               anything,
	"--data-dir":                           anything,
	"--listen-client-urls":                 address,
	"--advertise-client-urls":              address,
	"--listen-peer-urls":                   address,
	"--initial-advertise-peer-urls":        address,
	"--listen-metrics-urls":                address,
	"--quota-backend-bytes":                number,
	"--heartbeat-interval":                 positive,
	"--election-timeout":                   positive,
	"--snapshot-count":                     positive,
	"--max-request-bytes":                  positive,
	"--log-level":                          oneOf("debug", "info", "warn", "error"),
	"--auto-compaction-mode":               oneOf("periodic", "revision"),
	"--auto-compaction-retention":          retention,
	"--feature-gates":                      gates,
	"--experimental-initial-corrupt-check": oneOf("true"),
	"--cert-file":                          file, "--key-file": file, "--trusted-ca-file": file,
	"--peer-cert-file": file, "--peer-key-file": file, "--peer-trusted-ca-file": file,
	"--client-cert-auth": oneOf("true"), "--peer-client-cert-auth": oneOf("true"),
	"--peer-cert-allowed-cn":                           oneOf("demo:peers"),
	"--peer-skip-client-san-verification":              oneOf("true"),
	"--experimental-peer-skip-client-san-verification": oneOf("true"),
	"--tls-min-version":                                oneOf("TLS1.2", "TLS1.3"), "--cipher-suites": anything,
	"--auth-token": oneOf(
		"jwt,pub-key=/etc/etcd/pki/token/token.pub,priv-key=/etc/etcd/pki/token/token.key,sign-method=ES256,ttl=10m"),
	"--experimental-compact-hash-check-enabled": oneOf("true"),
}

func anything(string) error { return nil }

func file(value string) error {
	if !strings.HasPrefix(value, objects.CertificateDir+"/") {
		return fmt.Errorf("not among the certificates: %s", value)
	}
	return nil
}

func address(value string) error {
	u, err := url.Parse(value)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "") {
		err = fmt.Errorf("no URL with a port: %s", value)
	}
	return err
}

func number(value string) error {
	_, err := strconv.ParseInt(value, 10, 64)
	return err
}

func positive(value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err == nil && n <= 0 {
		err = fmt.Errorf("not positive: %d", n)
	}
	return err
}

func oneOf(values ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("%s is none of %v", value, values)
		}
		return nil
	}
}

// retention is read as in parseCompactionRetention of etcd's embed/config.go.
func retention(value string) error {
	if n, err := strconv.Atoi(value); err == nil && n >= 0 {
		return nil
	}
	_, err := time.ParseDuration(value)
	return err
}

func gates(value string) error {
	for gate := range strings.SplitSeq(value, ",") {
		name, on, found := strings.Cut(gate, "=")
		if _, err := strconv.ParseBool(on); err != nil || !found || name == "" {
			return fmt.Errorf("no gate: %q", gate)
		}
	}
	return nil
}

// FuzzFlags: a spec that the CRD's schema and validate let through becomes flags that etcd can read. The schema is
// that of the fields, such as a minimum; what it says about several fields at once (its CEL rules) does not hold in
// every Kubernetes.
func FuzzFlags(f *testing.F) {
	f.Add("3.5.35", int64(1<<30), int64(0), int64(0), int32(0), int32(0), int64(0), int64(0), byte(0))
	f.Add("3.6.16", int64(1<<30), int64(1<<28), int64(4096), int32(50), int32(500), int64(30*time.Minute), int64(0),
		byte(1))
	f.Add("3.7.3", int64(1<<40), int64(1<<33), int64(100<<20), int32(10000), int32(50000), int64(0), int64(42), byte(2))
	f.Add("3.6.0", int64(-1), int64(-1), int64(-1), int32(-1), int32(-1), int64(math.MaxInt64), int64(-1), byte(4))
	f.Add("3.7.3", int64(1), int64(1), int64(1), int32(1), int32(1), int64(0), int64(math.MaxInt64), byte(4))
	f.Add("3.7.3", int64(1<<30), int64(1), int64(1), int32(1), int32(1), int64(-time.Hour), int64(0), byte(4))
	f.Fuzz(func(t *testing.T, version string, size, quota, requests int64, heartbeat, election int32,
		kept, revisions int64, level byte) {
		c := fresh(3).Cluster
		c.Spec.Version = version
		c.Spec.Storage.Size = *resource.NewQuantity(size, resource.BinarySI)
		c.Spec.Options = v1beta1.Options{
			QuotaBackendBytes: optional(quota, 16<<20), MaxRequestBytes: optional(min(requests, 100<<20), 1024),
			HeartbeatInterval: millis(among(heartbeat, 10, 10000)),
			ElectionTimeout:   millis(among(election, 50, 50000)),
			AutoCompaction: v1beta1.AutoCompaction{Revisions: optional(revisions, 1),
				Retention: &metav1.Duration{Duration: time.Duration(kept).Truncate(time.Second)}},
			LogLevel: []string{"", "debug", "info", "warn", "error"}[level%5],
		}
		if defaults.Validate(&c.Spec, observation.Settings{}) != nil || defaults.ValidateRoom(&c.Spec) != nil {
			return
		}
		room := defaults.RoomFor(&c.Spec)
		list := defaults.Flags(c, facts.TemplateOf(c, version), "demo-0", "", version, room, defaults.Speech{PeersTLS: true})
		again := defaults.Flags(c, facts.TemplateOf(c, version), "demo-0", "", version, room, defaults.Speech{PeersTLS: true})
		if !slices.Equal(list, again) {
			t.Errorf("rendered %v, and the second time %v", list, again)
		}
		readableByEtcd(t, list)
		fitVersion(t, version, list)
		if quota := defaults.QuotaOn(c.Spec.Options, room); quota < defaults.LeastQuota || 2*quota > size || room.SnapshotCount < 50 {
			t.Errorf("quota %d of a volume of %d, %+v", quota, size, room)
		}
	})
}

// optional is nil for 0, and never below the schema's minimum.
func optional(value, minimum int64) *int64 {
	if value == 0 {
		return nil
	}
	return new(max(value, minimum))
}

// within is 0 for unset, else between the schema's bounds.
func millis(n int32) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(n) * time.Millisecond}
}

func among(value, low, high int32) int32 {
	if value == 0 {
		return 0
	}
	return min(max(value, low), high)
}

func readableByEtcd(t *testing.T, list []string) {
	seen := map[string]bool{}
	for _, flag := range list {
		name, value, _ := strings.Cut(flag, "=")
		if !flagName.MatchString(name) || !flagValue.MatchString(value) {
			t.Errorf("%q is not a flag with a value", flag)
		}
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if read := etcdReads[name]; read == nil {
			t.Errorf("%s is a flag that this test does not know", name)
		} else if err := read(value); err != nil {
			t.Errorf("etcd can't read %s: %v", flag, err)
		}
	}
	if seen["--auto-compaction-mode"] != seen["--auto-compaction-retention"] {
		t.Errorf("half of the compaction: %v", list)
	}
}

// fitVersion: 3.5 knows no feature gates, and 3.7 no experimental flags.
func fitVersion(t *testing.T, version string, list []string) {
	r, err := defaults.ParseRelease(version)
	if err != nil {
		t.Error(err)
	}
	for _, flag := range list {
		experimental, gates := strings.HasPrefix(flag, "--experimental-"), strings.HasPrefix(flag, "--feature-gates")
		if experimental && r.Minor() != 5 || gates && r.Minor() == 5 {
			t.Errorf("%s is no flag of %s", flag, version)
		}
	}
}

// TestExtraArgs: each reaches etcd by the name that its version has for it, beside the flags of Quorate's own, none of
// which is said twice.
func TestExtraArgs(t *testing.T) {
	all := v1beta1.Options{ExtraArgs: map[string]v1beta1.ExtraArg{}}
	for name, arg := range defaults.ExtraArgs {
		all.ExtraArgs[name] = v1beta1.ExtraArg(arg.Example)
	}
	for version, count := range map[string]int{"3.5.35": len(defaults.ExtraArgs) - 2, "3.6.16": len(defaults.ExtraArgs),
		"3.7.3": len(defaults.ExtraArgs)} {
		c := fresh(3).Cluster
		c.Spec.Version = version
		own := defaults.Flags(c, facts.TemplateOf(c, version), "demo-0", "", version, room("1Gi"), defaults.Speech{PeersTLS: true})
		c.Spec.Options = all
		both := defaults.Flags(c, facts.TemplateOf(c, version), "demo-0", "", version, room("1Gi"), defaults.Speech{PeersTLS: true})
		assert.Len(t, both, len(own)+count)
		seen := map[string]bool{}
		for _, flag := range both {
			name, _, _ := strings.Cut(flag, "=")
			assert.False(t, seen[name], "%s is there twice", name)
			seen[name] = true
		}
		assert.Subset(t, both, own)
		assert.Equal(t, version == "3.5.35", seen["--experimental-warning-apply-duration"])
		assert.Equal(t, version != "3.5.35", seen["--warning-apply-duration"] && seen["--log-format"])
		for name, arg := range defaults.ExtraArgs {
			if arg.KnownTo(version) {
				c.Spec.Options.ExtraArgs = map[string]v1beta1.ExtraArg{name: v1beta1.ExtraArg(arg.Example)}
				assert.NoError(t, defaults.Validate(&c.Spec, observation.Settings{}))
			}
		}
	}
}

// TestExtraArgsAreGuarded: a flag that is not known to be harmless is refused whatever it says, and a value that etcd
// would not start with.
func TestExtraArgsAreGuarded(t *testing.T) {
	for want, args := range map[string][2]string{
		"may harm the cluster":                 {"initial-cluster", "a=http://a"},
		`"listen-metrics-urls", which belongs`: {"listen-metrics-urls", "http://0.0.0.0:1"},
		`"config-file"`:                        {"config-file", "/x"},
		`"force-new-cluster"`:                  {"force-new-cluster", "true"},
		`"unsafe-no-fsync"`:                    {"unsafe-no-fsync", "true"},
		`"--metric"`:                           {"--metric", "basic"},
		"write metrics, without --":            {"--metrics", "basic"},
		"write corrupt-check-time, without":    {"experimental-corrupt-check-time", "1h"},
		"a number from 100 to 4294967295":      {"max-concurrent-streams", "1"},
		"basic or extensive":                   {"metrics", "all"},
		"a duration such as 100ms":             {"warning-apply-duration", "100"},
		"from 1ms to 24h":                      {"compact-hash-check-time", "0s"},
		"a host and a port":                    {"distributed-tracing-address", "otel"},
	} {
		c := fresh(3).Cluster
		c.Spec.Options.ExtraArgs = map[string]v1beta1.ExtraArg{args[0]: v1beta1.ExtraArg(args[1])}
		assert.ErrorContains(t, defaults.Validate(&c.Spec, observation.Settings{}), want)
	}
	c := fresh(3).Cluster
	c.Spec.Version, c.Spec.Options.ExtraArgs = "3.5.35", map[string]v1beta1.ExtraArg{"log-format": "json"}
	assert.ErrorContains(t, defaults.Validate(&c.Spec, observation.Settings{}), "etcd 3.5.35 does not know: remove it")
}

// TestFlagsOfQuorateAreNoExtraArgs: none that Quorate itself gives to a member, whatever the spec says.
func TestFlagsOfQuorateAreNoExtraArgs(t *testing.T) {
	for flag := range etcdReads {
		assert.NotContains(t, defaults.ExtraArgs, strings.TrimPrefix(strings.TrimPrefix(flag, "--"), "experimental-"))
	}
}

// TestTheCRDHasTheSameExtraArgs: its rule refuses the same flags.
func TestTheCRDHasTheSameExtraArgs(t *testing.T) {
	crd, err := os.ReadFile("../manifests/crds/etcd.quorate.dev_etcdclusters.yaml")
	require.NoError(t, err)
	whole := strings.ReplaceAll(strings.Join(strings.Fields(string(crd)), " "), "''", "'")
	names := slices.Sorted(maps.Keys(defaults.ExtraArgs))
	assert.Contains(t, whole, "without experimental-: "+strings.Join(names, ", "))
	assert.Contains(t, whole, "name in ['"+strings.Join(names, "', '")+"']")
	for name, arg := range defaults.ExtraArgs {
		assert.Equal(t, arg.KnownTo("3.5.35"), !strings.Contains(whole, "'"+name+"' in self"), name)
	}
}
