package objects

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Check are the ways in which a new pod breaks what holds for all of them: no container has a kubelet put the
// value of a variable into what it is told, gets more of a Secret than keys that are named, or is of an image that the
// installation does not allow. In messages the pod is called of, such as "pod demo-0".
func Check(allowed Images, of string, pod *corev1.PodSpec) (broken []error) {
	require := func(ok bool, rule, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Errorf("%s: %s", rule, fmt.Sprintf(format, args...)))
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		words := slices.Concat(c.Command, c.Args)
		for _, e := range c.Env {
			if !isMemory(e, c.Env) {
				words = append(words, e.Value)
			}
		}
		for _, word := range words {
			require(!strings.Contains(strings.ReplaceAll(word, "$$", ""), "$"), "secrets",
				"the container %s of %s is told something with a $ that a kubelet may expand", c.Name, of)
		}
		require(mayRun(allowed, c.Image), "images",
			"the container %s of %s is of the image %s, which this installation does not allow", c.Name, of, c.Image)
		require(len(c.EnvFrom) == 0, "secrets", "the container %s of %s has all keys of a Secret or ConfigMap", c.Name,
			of)
	}
	return broken
}

// isMemory reports whether a variable is the limit of Go's heap, made of the container's own limit of memory.
func isMemory(e corev1.EnvVar, all []corev1.EnvVar) bool {
	return e.Name == "GOMEMLIMIT" && e.Value == "$(MEMORY_LIMIT_MIB)000000" &&
		slices.ContainsFunc(all, func(of corev1.EnvVar) bool {
			return of.Name == "MEMORY_LIMIT_MIB" && of.ValueFrom != nil && of.ValueFrom.ResourceFieldRef != nil
		})
}

// mayRun reports whether an image is Quorate's own, or of a repository that etcd may come from.
func mayRun(from Images, image string) bool {
	tagged, _, _ := strings.Cut(image, "@")
	repository := tagged[:max(strings.LastIndexByte(tagged, ':'), 0)]
	return len(from.AllowedRepositories) == 0 || image == from.Image ||
		repository == cmp.Or(from.EtcdRepository, DefaultEtcdRepository) ||
		slices.ContainsFunc(from.AllowedRepositories, func(allowed string) bool {
			return repository == allowed || allowed[len(allowed)-1] == '/' && strings.HasPrefix(repository, allowed)
		})
}
