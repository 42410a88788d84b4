package install

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// caller is what Metacontroller can do to prove who it is.
type caller int

const (
	bearer   caller = iota // 4.16 and later read a CA and a token from the CompositeController and a Secret
	noToken                // 2.0 to 4.15 make the URL a label of their metrics: it must hold no token
	oldToken               // 1.5 sends the password of the URL, and shows it nowhere
)

// callerOf says what a version such as 4.16, 4.16.1 or v1.5.20 can do.
func callerOf(version string) (caller, error) {
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); n != 2 {
		return 0, fmt.Errorf("--metacontroller-version must be a version such as 4.16 or 1.5.20, not %q", version)
	}
	switch {
	case major > 4 || major == 4 && minor >= 16:
		return bearer, nil
	case major >= 2:
		return noToken, nil
	}
	return oldToken, nil
}

// RelatesByUID reports whether a Metacontroller of this version remembers by UID what is related to an object, as 4.16
// and later do.
func RelatesByUID(version string) (bool, error) {
	c, err := callerOf(version)
	return c == bearer, err
}

// advice is what else has to be done for a Metacontroller that can do less.
func (c caller) advice() string {
	trust := "this Metacontroller trusts the hooks' certificate only if its container has the ConfigMap " +
		"NAMESPACE/" + callerCA + " mounted and SSL_CERT_DIR set to that folder (" +
		v1beta1.Docs + "explanation/security.md); it " +
		"reads it once, so restart it now: " +
		"kubectl -n NAMESPACE rollout restart statefulset/metacontroller"
	if c == noToken {
		return trust + "\nquorate: it can't send a token without showing it in its metrics, so none is asked for: " +
			"only the NetworkPolicy keeps others away from the hooks; upgrade Metacontroller to 4.16 or later"
	}
	return trust + "\nquorate: the token is in the URLs of the CompositeController: only those that may " +
		"call the hooks should have the right to read compositecontrollers"
}
