package hooks

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// When users and roles are looked at. What etcd has can only be read through its log, so that it is not read at rest:
// only when something else is wanted than was applied last, and every ten minutes to find what somebody else has
// changed.
const (
	authLook = 10 * 60 // seconds
	authGate = 35      // seconds: longer than the controller's resync period, so that one call falls into it
)

// authorize applies the declared users and roles. Their names are recorded as ours before they are made.
func authorize(v *view) *verdict {
	if v.Cluster.Spec.Auth == nil {
		return nil
	}
	want, err := v.authWanted()
	old := v.Cluster.Status.Auth
	switch {
	case err != nil:
		return nil // the condition Authorized says it; nothing else has to wait for that
	case v.tried():
		return nil // whether it worked or not: the condition says it, the next call tries again, and nothing else waits
	case !users.Recorded(old, want):
		return &verdict{message: "recording the names of etcd's users and roles before they are made",
			resync: rule.ResyncSoon}
	case old.Applied == want.Hash() && (v.Now.Unix()+v.offset())%authLook >= authGate:
		return nil
	}
	return v.change(Authorize{Want: want}, "applying users and roles")
}

// offset spreads the slow look of many clusters over time.
func (v *view) offset() int64 {
	n := int64(0)
	for _, c := range string(v.Cluster.UID) {
		n = (n*31 + int64(c)) % authLook
	}
	return n
}

// tried reports whether this very call has tried to apply the users and roles, authorized whether it succeeded.
func (v *view) tried() bool {
	if v.Taken == nil {
		return false
	}
	_, did := v.Taken.Step.(Authorize)
	return did
}

func (v *view) authorized() bool { return v.tried() && v.Taken.Err == "" }

// authWanted is what etcd's users and roles should be. The error names the field that stands in the way.
func (v *view) authWanted() (users.Want, error) {
	s := v.Cluster.Spec.Auth
	if !objects.Encrypted(v.Cluster) {
		return users.Want{}, fmt.Errorf("spec.auth: passwords would cross the network in plain text, and Quorate " +
			"needs a certificate to be let in; set spec.tls.mode to another one than Disabled")
	}
	if err := users.Validate(s); err != nil {
		return users.Want{}, err
	}
	want := users.Wanted(v.Cluster.Name, s, v.Cluster.Status.Auth, v.secretVersion)
	for _, u := range want.Users {
		if u.Password == nil {
			continue
		}
		err := missingPassword(u.Password, v.anySecret(u.Password.Secret))
		if err != nil && u.Password.Secret == users.PasswordSecret(v.Cluster.Name, u.Name) {
			err = errPasswordNotYet
		}
		if err != nil {
			return users.Want{}, err
		}
	}
	return want, nil
}

// errPasswordNotYet: a password is being generated, which takes one call.
var errPasswordNotYet = errors.New("a generated password is not there yet")

// errNoSecret: a Secret that the spec names is not there, and may be on its way.
var errNoSecret = errors.New("there is no Secret")

// missingPassword says why there is no password that will do; nil when there is.
func missingPassword(p *users.PasswordFrom, s *Secret) error {
	switch {
	case s == nil:
		return fmt.Errorf("%s: %w %s; create it, with the password under the key %q", p.Field, errNoSecret, p.Secret,
			p.Key)
	case !s.has(p.Key) && len(s.Keys) == 0 && s.Flaw != "":
		return fmt.Errorf("%s: Secret %s can't be read: %s", p.Field, p.Secret, s.Flaw)
	case !s.has(p.Key):
		return fmt.Errorf("%s: there is nothing under the key %q in Secret %s; put the password there", p.Field, p.Key,
			p.Secret)
	case s.Unfit[p.Key] != "":
		return fmt.Errorf("%s: the password under %q in Secret %s %s", p.Field, p.Key, p.Secret, s.Unfit[p.Key])
	}
	return nil
}

// anySecret is an observed Secret, the cluster's own or one that the spec names.
func (v *view) anySecret(name string) *Secret {
	if own := v.Children.Secrets[name]; own != nil {
		return own
	}
	return v.Related.Secrets[name]
}

// secretVersion changes with every write to the Secret.
func (v *view) secretVersion(name string) string {
	s := v.anySecret(name)
	if s == nil {
		return ""
	}
	return string(s.UID) + "/" + s.ResourceVersion
}

// ---- Secrets of users

// UserSecret names the Secret with the certificate of a user that has one. No cluster's name has a dot, so that no
// other cluster's Secret has this name.
func UserSecret(cluster, user string) string { return cluster + "-client." + user }

// userLeaves are the certificates of the users that have one.
func userLeaves(c *v1alpha1.EtcdCluster) []leaf {
	var list []leaf
	if c.Spec.Auth == nil || users.Validate(c.Spec.Auth) != nil {
		return nil
	}
	for _, u := range c.Spec.Auth.Users {
		if u.Certificate {
			list = append(list, leaf{what: "user " + u.Name, secret: UserSecret(c.Name, u.Name), commonName: u.Name,
				client: true})
		}
	}
	return list
}

// generated are the Secrets of the passwords that nobody has given.
func (v *view) generated() []*DesiredSecret {
	s := v.Cluster.Spec.Auth
	if s == nil || !objects.Encrypted(v.Cluster) || users.Validate(s) != nil {
		return nil
	}
	var list []*DesiredSecret
	add := func(user string) {
		name := users.PasswordSecret(v.Cluster.Name, user)
		d := v.desired(name, corev1.SecretTypeOpaque, nil)
		if old := v.Children.Secrets[name]; old == nil || !old.has(users.PasswordKey) {
			d.Make = Password{Key: users.PasswordKey}
		}
		list = append(list, d)
	}
	if s.RootPasswordSecret == nil {
		add(users.Root)
	}
	for _, u := range s.Users {
		if u.PasswordSecret == nil && !u.Certificate {
			add(u.Name)
		}
	}
	return list
}

// ---- what people see

// authStatus is what was last done about users and roles. What is ours stays recorded while the spec says nothing
// about it.
func authStatus(v *view) *v1alpha1.AuthStatus {
	old := v.Cluster.Status.Auth
	if v.Cluster.Spec.Auth == nil || v.Cluster.Spec.Suspend {
		return old
	}
	want, err := v.authWanted()
	switch {
	case err != nil:
		return old
	case v.authorized():
		return users.Done(want)
	case old != nil && old.Applied == want.Hash() && users.Recorded(old, want):
		return old
	}
	var passwords map[string]string
	if v.Taken != nil {
		passwords = v.Taken.Passwords
	}
	return users.Pending(old, want, passwords)
}

// authorization is whether etcd asks everybody who they are, with a reason and words.
func authorization(v *view, now *v1alpha1.AuthStatus) (reason, message string, is bool) {
	enabled := now != nil && now.Enabled
	if v.Cluster.Spec.Auth == nil {
		if enabled {
			return "LeftOn", "spec.auth is gone; users and roles in etcd are left as they are, and etcd goes on " +
				"asking for them; to turn that off, set spec.auth.enabled to false", true
		}
		return "NotAsked", "spec.auth is not set: every certificate of this cluster may read and write everything",
			false
	}
	want, err := v.authWanted()
	switch {
	case errors.Is(err, errPasswordNotYet):
		return "Applying", err.Error(), false
	case errors.Is(err, errNoSecret):
		return "SecretNotFound", err.Error(), false
	case err != nil:
		return "FieldWrong", err.Error(), false
	case now == nil || now.Applied != want.Hash():
		if v.tried() && v.Taken.Err != "" {
			return "NotApplied", v.Taken.Err, false
		}
		return "Applying", "users and roles are being applied", false
	case !enabled:
		return "Disabled", "spec.auth.enabled is false: every certificate of this cluster may read and write " +
			"everything", false
	}
	return "Enabled", fmt.Sprintf("etcd asks everybody who they are; it has %s and %s of the spec",
			wording.Count(len(v.Cluster.Spec.Auth.Users), "user"), wording.Count(len(v.Cluster.Spec.Auth.Roles), "role")),
		true
}

// Authorize makes etcd's users and roles what is wanted, by what [users.Plan] says. It may be carried out twice, or
// twice at the same time.
type Authorize struct{ Want users.Want }

func (Authorize) String() string { return "apply users and roles" }

// Verb implements Step.
func (Authorize) Verb() string { return "authorize" }

func (Authorize) step() {}
