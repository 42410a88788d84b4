package kubelet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// theSecret is the value of every key of every Secret.
const theSecret = "MARKED-SECRET"

// marked are the variables of a container where every key of a Secret has the same value, whatever it is called.
func marked(c *corev1.Container) Variables {
	var everyKey Variables
	if len(c.EnvFrom) > 0 {
		everyKey = func(string) (string, bool) { return theSecret, true } // a Secret may have a key of this name
	}
	_, find, _ := Environment(c.Env, func(from *corev1.EnvVarSource) (string, error) { // which never fails
		if from.SecretKeyRef != nil {
			return theSecret, nil
		}
		return "of the pod", nil
	}, everyKey)
	return find
}

// Line is the command line of a container as its program sees it.
func Line(c *corev1.Container) []string {
	return CommandLine(c, marked(c))
}

// Leaks are the ways in which a Secret comes into a command line, or as a whole into an environment; none is as it
// should be.
func Leaks(pod *corev1.PodSpec) (leaks []string) {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		find := marked(&c)
		if text := strings.Join(CommandLine(&c, find), " "); strings.Contains(text, theSecret) {
			leaks = append(leaks, fmt.Sprintf("the command line of container %s: %s", c.Name, text))
		}
		for _, e := range c.Env {
			if text := expand(e.Value, find); strings.Contains(text, theSecret) {
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
func AnyStore(r *rand.Rand) v1beta1.Store {
	credentials := v1beta1.SecretRef{Name: "keys"}
	store := v1beta1.Store{CASecretRef: v1beta1.SecretKeyRef{Name: AnyText(r), Key: AnyText(r)}}
	switch r.IntN(5) {
	case 0:
		store.S3 = &v1beta1.S3Store{Bucket: AnyText(r), Prefix: AnyText(r), Region: AnyText(r), Endpoint: AnyText(r),
			ForcePathStyle: true, KMSKeyID: AnyText(r), CredentialsSecretRef: credentials}
	case 1:
		store.GCS = &v1beta1.GCSStore{Bucket: AnyText(r), Prefix: AnyText(r),
			CredentialsSecretRef: v1beta1.SecretKeyRef{Name: "keys", Key: AnyText(r)}}
	case 2:
		store.Azure = &v1beta1.AzureStore{Container: AnyText(r), Prefix: AnyText(r), StorageAccount: AnyText(r),
			CredentialsSecretRef: credentials}
	case 3:
		store.Claim = &v1beta1.ClaimStore{Name: AnyText(r), Path: AnyText(r)}
	}
	return store
}
