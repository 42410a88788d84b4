package hooks

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// VerifySnapshot checks a decision about an EtcdSnapshot as [Verify] does one about a cluster: what
// its Jobs are told.
func VerifySnapshot(o SnapshotObservation, d SnapshotDecision) error {
	j := judgement{o: Observation{Settings: o.Settings}}
	for _, job := range d.Jobs {
		if o.Jobs[job.Name] == nil {
			j.containers("Job "+job.Name, &job.Spec.Template.Spec)
		}
	}
	return errors.Join(j.broken...)
}

// newContainers checks those of every pod that an answer makes.
func (j *judgement) newContainers() {
	for _, pod := range j.d.Children.Pods {
		if j.o.Children.Pods[pod.Name] == nil {
			j.containers("pod "+pod.Name, &pod.Spec)
		}
	}
}

// mayRun reports whether an image is Quorate's own, or of a repository that etcd may come from.
func (j *judgement) mayRun(image string) bool {
	repository, _, _ := strings.Cut(image, ":v")
	return len(j.o.Settings.AllowedRepositories) == 0 || image == j.o.Settings.Image || repository == cmp.Or(j.o.Settings.EtcdRepository, DefaultEtcdRepository) ||
		slices.ContainsFunc(j.o.Settings.AllowedRepositories, func(allowed string) bool {
			return repository == allowed || allowed[len(allowed)-1] == '/' && strings.HasPrefix(repository, allowed)
		})
}

// containers: none has a kubelet put the value of a variable into what it is told, or gets more of
// a Secret than keys that are named.
func (j *judgement) containers(of string, pod *corev1.PodSpec) {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		words := slices.Concat(c.Command, c.Args)
		for _, e := range c.Env {
			words = append(words, e.Value)
		}
		for _, word := range words {
			j.require(!strings.Contains(strings.ReplaceAll(word, "$$", ""), "$"), "secrets", "the container %s of %s is told something with a $ that a kubelet may expand", c.Name, of)
		}
		j.require(j.mayRun(c.Image), "images", "the container %s of %s is of the image %s, which this installation does not allow", c.Name, of, c.Image)
		j.require(len(c.EnvFrom) == 0, "secrets", "the container %s of %s has all keys of a Secret or ConfigMap", c.Name, of)
	}
}
