package defaults

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// A cluster that the API server itself has its data in (spec.selfHosted). Without its quorum there is no API server, so
// no call, and nothing that Quorate could still put right. What would stop it as a whole is refused.

// FewestSelfHosted is the number of voters below which one that is lost, or restarted, stops the API server.
const FewestSelfHosted = 3

// validateSelfHosted repeats what the API server refuses.
func validateSelfHosted(s *v1beta1.EtcdClusterSpec) error {
	switch {
	case !s.SelfHosted:
		return nil
	case Replicas(&v1beta1.EtcdCluster{Spec: *s}) < FewestSelfHosted:
		return fmt.Errorf("spec.selfHosted needs spec.replicas of %d or more: with fewer, the loss or restart of one "+
			"member stops the API server", FewestSelfHosted)
	case s.Recovery.QuorumLoss != "" && s.Recovery.QuorumLoss != v1beta1.RecoverManual:
		return fmt.Errorf("spec.selfHosted needs spec.recovery.quorumLoss Manual: if the API server answers, there " +
			"is a quorum, even if Quorate does not see it")
	case s.TLS.Mode != v1beta1.TLSSecrets && s.TLS.Mode != v1beta1.TLSDisabled:
		return fmt.Errorf("spec.selfHosted needs spec.tls.mode Secrets: the API server reads its trusted authorities " +
			"from a file, and Quorate can't see when that file changes")
	}
	return nil
}
