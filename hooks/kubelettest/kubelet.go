// Package kubelettest is, for tests, what a kubelet makes of the containers that decisions ask for.
package kubelettest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// theSecret is the value of every key of every Secret.
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

// Line is the command line of a container as its program sees it.
func Line(c *corev1.Container) []string {
	var line []string
	for _, arg := range slices.Concat(c.Command, c.Args) {
		line = append(line, expand(arg, variables(c)))
	}
	return line
}

// Leaks are the ways in which a Secret comes into a command line, or as a whole into an environment; none is as it
// should be.
func Leaks(pod *corev1.PodSpec) (leaks []string) {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if text := strings.Join(Line(&c), " "); strings.Contains(text, theSecret) {
			leaks = append(leaks, fmt.Sprintf("the command line of container %s: %s", c.Name, text))
		}
		for _, e := range c.Env {
			if text := expand(e.Value, variables(&c)); strings.Contains(text, theSecret) {
				leaks = append(leaks, fmt.Sprintf("the variable %s of container %s: %s", e.Name, c.Name, text))
			}
		}
		if len(c.EnvFrom) > 0 {
			leaks = append(leaks, fmt.Sprintf("container %s has every key of a Secret", c.Name))
		}
	}
	return leaks
}

// fragments are what texts are made of: references in every form, what ends a line, a path, a query
// or a URL.
var fragments = []string{
	"$(AWS_SECRET_ACCESS_KEY)", "$$(AWS_SECRET_ACCESS_KEY)", "$$$(AZURE_STORAGE_KEY)", "$(tls.key)",
	"$(GOOGLE_APPLICATION_CREDENTIALS", "${HOME}", "$", "$$", ")", "(",
	"\n", "\x00", "%24(AZURE_STORAGE_SAS_TOKEN)", "s3://", "gs://", "azblob://", "file:///", "bucket", "/", "/..", "?",
	"&", "endpoint=", "#", "@", ":", "x", "1.2", " ",
}

// AnyText is made of such fragments.
func AnyText(r *rand.Rand) string {
	var all strings.Builder
	for range r.IntN(6) {
		all.WriteString(fragments[r.IntN(len(fragments))])
	}
	return all.String()
}

// AnyStore is one of a random kind, any text in it, as a spec has it that the API server should have refused.
func AnyStore(r *rand.Rand) v1alpha1.Store {
	credentials := v1alpha1.SecretRef{Name: "keys"}
	store := v1alpha1.Store{CASecretRef: v1alpha1.SecretKeyRef{Name: AnyText(r), Key: AnyText(r)}}
	switch r.IntN(5) {
	case 0:
		store.S3 = &v1alpha1.S3Store{Bucket: AnyText(r), Prefix: AnyText(r), Region: AnyText(r), Endpoint: AnyText(r),
			ForcePathStyle: true, KMSKeyID: AnyText(r), CredentialsSecretRef: credentials}
	case 1:
		store.GCS = &v1alpha1.GCSStore{Bucket: AnyText(r), Prefix: AnyText(r),
			CredentialsSecretRef: v1alpha1.SecretKeyRef{Name: "keys", Key: AnyText(r)}}
	case 2:
		store.Azure = &v1alpha1.AzureStore{Container: AnyText(r), Prefix: AnyText(r), StorageAccount: AnyText(r),
			CredentialsSecretRef: credentials}
	case 3:
		store.Claim = &v1alpha1.ClaimStore{Name: AnyText(r), Path: AnyText(r)}
	}
	return store
}
