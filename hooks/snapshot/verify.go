package snapshot

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Verify checks a decision against the safety rules, said a second time: what new Jobs are told. The error names every
// rule that is broken.
func Verify(o Observation, d Decision) error {
	var broken []error
	for _, job := range d.Jobs {
		if o.Jobs[job.Name] == nil {
			broken = append(broken, objects.Check(o.Images, "Job "+job.Name, &job.Spec.Template.Spec)...)
		}
	}
	return errors.Join(broken...)
}

// VerifyPods checks in the same way what the new ones among the pods of a stream or a mirror are told.
func VerifyPods(images objects.Images, observed map[string]*corev1.Pod, decided []*corev1.Pod) error {
	var broken []error
	for _, pod := range decided {
		if observed[pod.Name] == nil {
			broken = append(broken, objects.Check(images, "pod "+pod.Name, &pod.Spec)...)
		}
	}
	return errors.Join(broken...)
}
