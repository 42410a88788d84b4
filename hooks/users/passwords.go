package users

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// NoPassword is what a user's version of its password is when it has none and comes with a certificate only.
const NoPassword = "certificate"

// PasswordFrom is where a password is.
type PasswordFrom struct {
	// Secret in the cluster's namespace, and the key in its data.
	Secret, Key string
	// Version changes whenever the password may have. It reaches the status, which more people may read than Secrets,
	// and is therefore never made from the password.
	Version string
	// Field of the spec that names the Secret, such as spec.auth.users[2].passwordSecretRef; for messages.
	Field string `json:"-"`
}

// PasswordSecret names the Secret of a user's generated password; its key is `password`. No cluster's name has a dot,
// so that no other cluster's Secret has this name.
func PasswordSecret(cluster, user string) string { return cluster + "-user." + user }

// PasswordKey is the key of a password in a Secret that names no other.
const PasswordKey = "password"

// passwordSource is where the password of a declared user is; nil for a user with a certificate only.
func passwordSource(cluster string, i int, u v1beta1.UserSpec) *PasswordFrom {
	if u.Credential == v1beta1.CredentialCertificate {
		return nil
	}
	return PasswordIn(fmt.Sprintf("spec.auth.users[%d].passwordSecretRef", i), u.PasswordSecretRef,
		PasswordSecret(cluster, u.Name))
}

// RootPasswordSource is where root's password is.
func RootPasswordSource(cluster string, s *v1beta1.AuthSpec) *PasswordFrom {
	return PasswordIn("spec.auth.rootPasswordSecretRef", s.RootPasswordSecretRef, PasswordSecret(cluster, Root))
}

// PasswordIn is where a password is: in the Secret that the field names, or else in the generated one.
func PasswordIn(field string, given *v1beta1.SecretKeyRef, generated string) *PasswordFrom {
	if given == nil {
		return &PasswordFrom{Secret: generated, Key: PasswordKey, Field: field}
	}
	return &PasswordFrom{Secret: given.Name, Key: cmp.Or(given.Key, PasswordKey), Field: field}
}

// longestPassword in bytes: bcrypt, by which etcd stores passwords, takes no more.
const longestPassword = 72

// PasswordFlaw says what is wrong with a password, as the end of a sentence about it; empty when etcd and people can
// use it.
func PasswordFlaw(password string) string {
	switch {
	case password == "":
		return "is empty"
	case len(password) > longestPassword:
		return fmt.Sprintf("has %d bytes; etcd takes %d at most", len(password), longestPassword)
	case strings.ContainsAny(password, "\r\n\x00"):
		return "has a line break or a zero byte; create it without, as kubectl create secret --from-literal does"
	}
	return ""
}
