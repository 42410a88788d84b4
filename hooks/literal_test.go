package hooks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// theSecret is the value of every key of every Secret in these tests.
const theSecret = "MARKED-SECRET"

// expand is what a kubelet makes of a command, an argument or a value: $(NAME) is the value of that
// variable, and stays as it is when there is none; $$ is $ (the field args of Container in
// k8s.io/api/core/v1/types.go, and third_party/forked/golang/expansion in Kubernetes).
func expand(text string, variable func(name string) (string, bool)) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		rest := text[i+1:]
		end := strings.IndexByte(rest, ')')
		switch {
		case rest[0] == '$':
			out.WriteByte('$')
			i++
		case rest[0] == '(' && end > 0:
			value, is := variable(rest[1:end])
			if !is {
				value = "$" + rest[:end+1]
			}
			out.WriteString(value)
			i += end + 1
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// variables of a container as a kubelet sets them. Every key of a Secret has the same value,
// whatever it is called.
func variables(c *corev1.Container) func(name string) (string, bool) {
	set := map[string]string{}
	find := func(name string) (string, bool) {
		value, is := set[name]
		if !is && len(c.EnvFrom) > 0 {
			return theSecret, true // a Secret may have a key of this name
		}
		return value, is
	}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			set[e.Name] = expand(e.Value, find)
		case e.ValueFrom.SecretKeyRef != nil:
			set[e.Name] = theSecret
		default:
			set[e.Name] = "of the pod"
		}
	}
	return find
}

// lines are the command line of a container as its program sees it.
func lineOf(c *corev1.Container) []string {
	var line []string
	for _, arg := range slices.Concat(c.Command, c.Args) {
		line = append(line, expand(arg, variables(c)))
	}
	return line
}

// tellsNoSecret fails when a Secret comes into a command line, or as a whole into an environment.
func tellsNoSecret(t *testing.T, pod *corev1.PodSpec, from string) {
	t.Helper()
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		assert.NotContains(t, strings.Join(lineOf(&c), " "), theSecret, "container %s of %s", c.Name, from)
		for _, e := range c.Env {
			assert.NotContains(t, expand(e.Value, variables(&c)), theSecret, "container %s of %s", c.Name, from)
		}
		assert.Empty(t, c.EnvFrom, "container %s of %s has every key of a Secret", c.Name, from)
	}
}

// TestTheIssuesOwnURL is the way by which the key of an authority came into a status.
func TestTheIssuesOwnURL(t *testing.T) {
	const url = "s3://b/$(tls.key)"
	o := aSnapshot()
	o.Snapshot.Spec.Store = v1alpha1.Store{URL: url, CredentialsSecret: "demo-ca"}
	v := newSnapshotView(o)
	for _, job := range []*corev1.PodSpec{&v.takingJob(1).Spec.Template.Spec, &v.discardJob(1).Spec.Template.Spec} {
		tellsNoSecret(t, job, "a Job")
		assert.Contains(t, lineOf(&job.Containers[0]), "--store-url="+url, "its program is told what is written")
	}
	for _, pod := range fillFrom(resolved{URL: url + "/x.db", Store: o.Snapshot.Spec.Store}, fresh(3)) {
		tellsNoSecret(t, &pod.Spec, pod.Name)
		assert.Contains(t, lineOf(&pod.Spec.InitContainers[1]), "--url="+url+"/x.db")
	}
}

// fillFrom are the pods of initial members that are filled from a snapshot, whatever the record
// says of it.
func fillFrom(from resolved, o Observation) []*corev1.Pod {
	record := newRecord(o.Cluster, 1, 0, 3)
	originate(record, origin{source: SourceSnapshot, snapshot: &from})
	record.Annotations[AnnotationStartsOn] = "demo-0:uid-claim-0,demo-1:uid-claim-1,demo-2:uid-claim-2"
	o.Children.ConfigMaps[record.Name] = record
	for i := range 3 {
		addClaim(&o, i)
	}
	return Decide(o).Children.Pods
}

// fragments are what texts are made of: references in every form, what ends a line, a path, a query
// or a URL.
var fragments = []string{
	"$(AWS_SECRET_ACCESS_KEY)", "$$(AWS_SECRET_ACCESS_KEY)", "$$$(AZURE_STORAGE_KEY)", "$(tls.key)", "$(GOOGLE_APPLICATION_CREDENTIALS", "${HOME}", "$", "$$", ")", "(",
	"\n", "\x00", "%24(AZURE_STORAGE_SAS_TOKEN)", "s3://", "gs://", "azblob://", "file:///", "bucket", "/", "/..", "?", "&", "endpoint=", "#", "@", ":", "x", "1.2", " ",
}

func anyText(r *rand.Rand) string {
	var all strings.Builder
	for range r.IntN(6) {
		all.WriteString(fragments[r.IntN(len(fragments))])
	}
	return all.String()
}

// FuzzNoTextOfASpecNamesASecret: whatever a spec says, in any field, and though the API server had
// let it through, no value of a Secret comes into a command line, and every text comes to its
// program as it is written.
func FuzzNoTextOfASpecNamesASecret(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		perhaps := func(fields ...*string) {
			for _, field := range fields {
				if r.IntN(3) > 0 {
					*field = anyText(r)
				}
			}
		}
		store := v1alpha1.Store{URL: "s3://backups/etcd", CredentialsSecret: "keys"}
		store.URL = v1alpha1.URL([]string{"s3://backups/", "azblob://backups/", "gs://backups/", "file:///", ""}[r.IntN(5)] + anyText(r))
		perhaps(&store.CASecret, &store.ClaimName)

		o := aSnapshot()
		o.Snapshot.Spec.Store = store
		recipient := "age1x"
		cluster := o.Clusters["orders"]
		perhaps(&recipient, &o.Snapshot.Spec.Job.ServiceAccountName, &cluster.Spec.Image.Repository, &cluster.Status.Version, &cluster.Status.Members[0].Name)
		o.Snapshot.Spec.Encryption = &v1alpha1.Encryption{Recipients: []string{recipient}}
		perhaps(&o.Snapshot.Spec.Cluster)
		v := newSnapshotView(o)
		v.cluster = cluster // though it had this name
		for _, pod := range []*corev1.PodSpec{&v.takingJob(1).Spec.Template.Spec, &v.discardJob(1).Spec.Template.Spec} {
			tellsNoSecret(t, pod, "a Job")
			assert.Contains(t, lineOf(&pod.Containers[0]), "--store-url="+string(store.URL))
			assert.Contains(t, lineOf(&pod.Containers[0]), "--key="+SnapshotKey(o.Snapshot))
		}
		if err := VerifySnapshot(o, DecideSnapshot(o)); err != nil {
			t.Error(err)
		}

		c := fresh(3)
		s := &c.Cluster.Spec
		perhaps(&s.Options.AutoCompaction.Retention, &s.Image.Repository, &s.PriorityClassName, &s.TLS.MinVersion, &s.Options.LogLevel, &c.Cluster.Namespace)
		s.TLS.CipherSuites = []string{anyText(r)}
		from := resolved{URL: anyText(r), Store: store}
		perhaps(&from.SHA256, &from.IdentitySecret, &from.ServiceAccountName)
		for _, pod := range fillFrom(from, c) {
			tellsNoSecret(t, &pod.Spec, pod.Name)
		}
		s.Bootstrap = &v1alpha1.Bootstrap{Snapshot: &v1alpha1.SnapshotSource{URL: v1alpha1.URL(anyText(r)), Store: &store}}
		for range 6 {
			d := Decide(c)
			require.NoError(t, Verify(c, d))
			for _, pod := range d.Children.Pods {
				tellsNoSecret(t, &pod.Spec, pod.Name)
			}
			c = stored(c, d)
		}
	})
}

func TestExpandIsTheKubelets(t *testing.T) {
	// Cases of expand_test.go in third_party/forked/golang/expansion.
	env := map[string]string{"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}
	find := func(name string) (string, bool) { value, is := env[name]; return value, is }
	for in, want := range map[string]string{
		"$(VAR_A)": "A", "___$(VAR_B)___": "___B___", "$(VAR_A)-1": "A-1", "$(VAR_REF)": "$(VAR_A)", "%%$(VAR_REF)--$(VAR_REF)%%": "%%$(VAR_A)--$(VAR_A)%%",
		"foo$(VAR_EMPTY)bar": "foobar", "$$(VAR_A)": "$(VAR_A)", "$$$(VAR_A)": "$A", "$$$$(VAR_A)": "$$(VAR_A)", "$(VAR_A$(VAR_B)": "$(VAR_A$(VAR_B)",
		"$VAR_A": "$VAR_A", "$": "$", "$$": "$", "\\$(VAR_A)": "\\A", "$(foo)": "$(foo)", "f$(VAR_A": "f$(VAR_A", "()": "()",
	} {
		assert.Equal(t, want, expand(in, find), fmt.Sprintf("%q", in))
	}
}
