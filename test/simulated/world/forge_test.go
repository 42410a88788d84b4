package world

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestForgedIsMade: what the world makes of each recipe is what etcdops/pki makes of it, except the numbers.
func TestForgedIsMade(t *testing.T) {
	w, now := New(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return now.AddDate(0, 0, n) }
	forged, data, made := map[string]*observation.Secret{}, map[string]map[string][]byte{},
		map[string]*observation.Secret{}
	for i, step := range []struct {
		name   string
		recipe decision.Recipe
	}{
		{"token", decision.TokenKeys{}},
		{"password", decision.Password{Key: "password"}},
		{"ca", decision.Authority{CommonName: "first", NotBefore: day(0), NotAfter: day(30)}},
		{"leaf", decision.Leaf{Signer: "ca", CommonName: "root", Names: []string{"*.demo", "127.0.0.1"}, Server: true,
			Client: true, NotBefore: day(0), NotAfter: day(20)}},
		{"ca", decision.Authority{CommonName: "second", NotBefore: day(20), NotAfter: day(50), Previous: true}},
		{"leaf", decision.Bundle{Signer: "ca"}},
		{"other", decision.Leaf{Signer: "ca", Previous: true, CommonName: "client", Client: true, NotBefore: day(20),
			NotAfter: day(30)}},
		{"leaf", decision.Leaf{Signer: "ca", CommonName: "root", Client: true, NotBefore: day(21), NotAfter: day(41)}},
		{"ca", decision.Trim{At: day(31)}},
		{"other", decision.Bundle{Signer: "ca"}},
		{"other", nil},
		{"ca", decision.Adopt{Keep: nil, From: "leaf"}},
		{"ca", decision.Authority{CommonName: "third", NotBefore: day(40), NotAfter: day(70), Inherit: "leaf"}},
	} {
		all, err := w.forge([]*decision.DesiredSecret{{ObjectMeta: metav1.ObjectMeta{Name: step.name},
			Make: step.recipe}}, forged)
		require.NoError(t, err)
		forged[step.name] = all[step.name]
		data[step.name], err = pki.Make(step.name, step.recipe, data)
		require.NoError(t, err)
		made[step.name] = pki.Read(&corev1.Secret{Data: data[step.name]})
		assert.Equal(t, known(made[step.name]), known(forged[step.name]), "step %d: %s %T", i, step.name, step.recipe)
	}
}

// known is what is known of a Secret, except numbers.
func known(s *observation.Secret) string {
	about := func(c *observation.Certificate) string {
		if c == nil {
			return "none"
		}
		by := slices.IndexFunc(s.Trust, func(t observation.Certificate) bool { return t.Key == c.Issuer })
		return fmt.Sprint(c.CommonName, c.NotBefore, c.NotAfter, c.Names, c.Authority, c.Server, c.Client, by)
	}
	all := fmt.Sprint(slices.Sorted(slices.Values(s.Keys)), about(s.Certificate), about(s.Previous), s.Flaw)
	for _, c := range s.Trust {
		all += "\n" + about(&c)
	}
	return all
}
