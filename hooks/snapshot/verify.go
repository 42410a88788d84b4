package hooks

import "errors"

// VerifySnapshot checks a decision against the safety rules, said a second time: what new Jobs are told. The error names every rule that
// is broken.
func VerifySnapshot(o SnapshotObservation, d SnapshotDecision) error {
	var broken []error
	for _, job := range d.Jobs {
		if o.Jobs[job.Name] == nil {
			broken = append(broken, CheckContainers(o.Images, "Job "+job.Name, &job.Spec.Template.Spec)...)
		}
	}
	return errors.Join(broken...)
}
