package cluster

import (
	"errors"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/safety"
)

// verify is hooks.Verify, which the tests of a package below it can't import.
func verify(o observation.Observation, d decision.Decision) error {
	return errors.Join(VerifyOutlook(d), safety.Verify(o, d))
}
