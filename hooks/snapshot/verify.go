package snapshot

import (
	"errors"

	"github.com/quorate-dev/quorate/hooks/safety/containers"
)

// Verify checks a decision against the safety rules, said a second time: what new Jobs are told. The error names every
// rule that is broken.
func Verify(o Observation, d Decision) error {
	var broken []error
	for _, job := range d.Jobs {
		if o.Jobs[job.Name] == nil {
			broken = append(broken, containers.Check(o.Images, "Job "+job.Name, &job.Spec.Template.Spec)...)
		}
	}
	return errors.Join(broken...)
}
