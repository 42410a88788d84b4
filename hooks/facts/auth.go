package facts

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/users"
)

// When users and roles are looked at. What etcd has can only be read through its log, so that it is not read at rest:
// only when something else is wanted than was applied last, and every ten minutes to find what others have changed.
const (
	authLook = 10 * time.Minute
	// authGate is for how long a look is due: longer than the resync period, so that one call falls into it.
	authGate = 35 * time.Second
)

// sinceAuthLook is how long ago the last look at users and roles was due. Those of many clusters are spread over time.
func sinceAuthLook(cluster types.UID, now time.Time) time.Duration {
	offset := int64(0)
	period := int64(authLook / time.Second)
	for _, c := range string(cluster) {
		offset = (offset*31 + int64(c)) % period
	}
	return time.Duration((now.Unix()+offset)%period) * time.Second
}

// AuthLookDue reports whether it is time to see what others have changed of users and roles.
func (f *Facts) AuthLookDue() bool { return sinceAuthLook(f.Cluster.UID, f.Clock) < authGate }

// UntilAuthLook is when a look at users and roles is next due.
func UntilAuthLook(o observation.Observation) time.Duration {
	return authLook - sinceAuthLook(o.Cluster.UID, o.Now)
}

// Tried reports whether this very call has tried to apply the users and roles, authorized whether it succeeded.
func (f *Facts) Tried() bool {
	if f.Taken == nil {
		return false
	}
	_, did := f.Taken.Step.(decision.Authorize)
	return did
}

func (f *Facts) authorized() bool { return f.Tried() && f.Taken.Err == "" }

// Unguarded reports whether the data that an epoch began with may be open to all: users and whether auth is on are in
// it, as they were then, and what the spec says is not applied yet. Clients are led to no member before. Where the API
// server has its data here, it could not call Quorate then.
func (f *Facts) Unguarded() bool {
	s := f.Cluster.Spec.Auth
	if s == nil || !s.Enabled || f.Cluster.Spec.SelfHosted || f.Epoch == nil {
		return false
	}
	_, applied := f.AuthStatus()
	return f.Epoch.Filled() && f.Epoch.Source != record.SourceEmpty && applied == ""
}

// etcdNow is the cluster ID of the etcd that runs; empty while that is not known.
func (f *Facts) etcdNow() string {
	switch {
	case f.Etcd != nil:
		return objects.Hex(f.Etcd.ClusterID)
	case f.Epoch != nil && f.Epoch.HadQuorum():
		return objects.Hex(f.Epoch.ClusterID)
	}
	return ""
}

// Applied is what was done about users and roles in the etcd that runs, and the hash of what it has; empty for nothing.
// What was done in another one, as before a restore, says only which names are ours: users, passwords and whether auth
// is on are in the data.
func (f *Facts) Applied() (status *v1beta1.AuthStatus, hash string) {
	s := f.Cluster.Status.Auth
	if now := f.etcdNow(); s == nil || now == "" || s.ClusterID != now {
		return users.InAnother(s), ""
	}
	return s, f.Cluster.Status.Internal.AppliedAuth
}

// AuthWanted is what etcd's users and roles should be. The error names the field that stands in the way.
func (f *Facts) AuthWanted() (users.Want, error) {
	s := f.Cluster.Spec.Auth
	if !objects.Encrypted(f.Cluster) {
		return users.Want{}, fmt.Errorf("spec.auth: passwords need TLS, and so does Quorate's own access; set " +
			"spec.tls.mode to Auto, Secrets or CertManager")
	}
	if err := users.Validate(s); err != nil {
		return users.Want{}, err
	}
	old, _ := f.Applied()
	want := users.Wanted(f.Cluster.Name, s, old,
		func(name string) string { return f.secretVersion(name) })
	for _, u := range want.Users {
		if u.Password == nil {
			continue
		}
		err := MissingPassword(u.Password, f.AnySecret(u.Password.Secret))
		if err != nil && u.Password.Secret == users.PasswordSecret(f.Cluster.Name, u.Name) {
			err = errPasswordNotYet
		}
		if err != nil {
			return users.Want{}, err
		}
	}
	return want, nil
}

// errPasswordNotYet: a password is being generated, which takes one call.
var errPasswordNotYet = errors.New("the generated password does not exist yet")

// errNoSecret: a Secret that the spec names is not there, and may be on its way.
var errNoSecret = errors.New("there is no Secret with the label " + objects.LabelCluster + " called")

// MissingPassword says why there is no password that will do; nil when there is.
func MissingPassword(p *users.PasswordFrom, s *observation.Secret) error {
	switch {
	case s == nil:
		return fmt.Errorf("%s: %w %s; create it with that label and the password under the key %q, or label it",
			p.Field, errNoSecret, p.Secret, p.Key)
	case !s.Has(p.Key) && len(s.Keys) == 0 && s.Flaw != "":
		return fmt.Errorf("%s: Secret %s can't be read: %s", p.Field, p.Secret, s.Flaw)
	case !s.Has(p.Key):
		return fmt.Errorf("%s: Secret %[3]s has no key %[2]q; put the password there", p.Field, p.Key,
			p.Secret)
	case s.Unfit[p.Key] != "":
		return fmt.Errorf("%s: the password under %q in Secret %s %s", p.Field, p.Key, p.Secret, s.Unfit[p.Key])
	}
	return nil
}

// secretVersion changes with every write to the Secret.
func (f *Facts) secretVersion(name string) string {
	s := f.AnySecret(name)
	if s == nil {
		return ""
	}
	return string(s.UID) + "/" + s.ResourceVersion
}

// AuthStatus is what was last done about users and roles, and the hash of what etcd has; that is empty until etcd has
// what is wanted. What is ours stays recorded while the spec says nothing about it.
func (f *Facts) AuthStatus() (status *v1beta1.AuthStatus, applied string) {
	status, applied = f.done()
	if status != nil {
		status = v1beta1.Copy(status)
		status.ClusterID = f.etcdNow()
	}
	return status, applied
}

func (f *Facts) done() (status *v1beta1.AuthStatus, applied string) {
	old, applied := f.Applied()
	if f.Cluster.Spec.Auth == nil || f.Suspended() {
		return old, applied
	}
	want, err := f.AuthWanted()
	switch {
	case err != nil:
		return old, applied
	case f.authorized():
		return users.Done(old, want), want.Hash()
	case applied == want.Hash() && users.Recorded(old, want):
		return old, applied
	}
	var passwords map[string]string
	if f.Taken != nil {
		passwords = f.Taken.Passwords
	}
	return users.Pending(old, want, passwords), ""
}

// unlessData says who may do what while nothing is declared: that is in the data, which may come from elsewhere.
func (f *Facts) unlessData() string {
	const all = "every certificate of this cluster may read and write everything"
	if f.Epoch == nil || f.Epoch.Source == record.SourceEmpty {
		return all
	}
	return fmt.Sprintf("%s, unless etcd's auth is on in the data that epoch %d began with", all, f.Epoch.N)
}

// Authorization is whether etcd asks every client who it is, with a reason and words; now and applied are of
// [AuthStatus].
func (f *Facts) Authorization(now *v1beta1.AuthStatus, applied string) (reason, message string, is bool) {
	enabled := now != nil && now.Enabled
	if f.Cluster.Spec.Auth == nil {
		if enabled {
			return "LeftOn", "spec.auth was removed; etcd keeps its users and roles and still enforces them; to turn " +
				"that off, set spec.auth.enabled to false", true
		}
		return "NotAsked", "spec.auth is not set: " + f.unlessData(), false
	}
	want, err := f.AuthWanted()
	switch {
	case f.etcdNow() == "":
		return "Applying", "no quorum has answered yet: users and roles are applied when one does", false
	case errors.Is(err, errPasswordNotYet):
		return "Applying", err.Error(), false
	case errors.Is(err, errNoSecret):
		return "SecretNotFound", err.Error(), false
	case err != nil:
		return "FieldWrong", err.Error(), false
	case applied != want.Hash():
		if f.Tried() && f.Taken.Err != "" {
			return "NotApplied", f.Taken.Err, false
		}
		if open := f.Anonymous(); !want.Enabled && len(open) > 0 {
			return "Applying", fmt.Sprintf("auth is turned off once all members ask clients for certificates; %s "+
				"will after a restart", strings.Join(open, ", ")), enabled
		}
		return "Applying", "users and roles are being applied", false
	case !enabled:
		return "Disabled", "spec.auth.enabled is false: every certificate of this cluster may read and write " +
			"everything", false
	}
	return "Enabled", fmt.Sprintf("etcd authenticates every client, with %s and %s of the spec",
			objects.Count(len(f.Cluster.Spec.Auth.Users), "user"), objects.Count(len(f.Cluster.Spec.Auth.Roles),
				"role")),
		true
}
