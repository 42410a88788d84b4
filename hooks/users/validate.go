package users

import (
	"fmt"
	"regexp"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

const namesWords = "is not 1 to 40 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"

// Validate says what is wrong with a declaration that can't be applied, and names the field. The API server refuses all
// of it (CEL rules); this is for a Kubernetes without them.
func Validate(s *v1beta1.AuthSpec) error {
	roles := map[string]bool{}
	for i, r := range s.Roles {
		field := fmt.Sprintf("spec.auth.roles[%d]", i)
		if err := validateName(field, r.Name, roles); err != nil {
			return err
		}
		for j, p := range r.Permissions {
			if problem := validatePermission(p); problem != "" {
				return fmt.Errorf("%s.permissions[%d]%s", field, j, problem)
			}
		}
	}
	users := map[string]bool{}
	for i, u := range s.Users {
		field := fmt.Sprintf("spec.auth.users[%d]", i)
		if err := validateName(field, u.Name, users); err != nil {
			return err
		}
		if u.Credential == v1beta1.CredentialCertificate && u.PasswordSecretRef != nil {
			return fmt.Errorf("%s: a user with the credential Certificate has no password; remove passwordSecretRef",
				field)
		}
		for j, r := range u.Roles {
			if !roles[r] {
				return fmt.Errorf("%s.roles[%d]: spec.auth.roles has no role %q; declare it there, or correct the "+
					"name", field, j, r)
			}
		}
	}
	return nil
}

func validateName(field, name string, seen map[string]bool) error {
	switch {
	case name == Root:
		return fmt.Errorf("%s.name: root is reserved by etcd; choose another name", field)
	case len(name) > 40 || !names.MatchString(name):
		return fmt.Errorf("%s.name %q %s", field, name, namesWords)
	case seen[name]:
		return fmt.Errorf("%s.name %q is declared twice", field, name)
	}
	seen[name] = true
	return nil
}

// validatePermission says what is wrong after the name of the permission; empty for nothing.
func validatePermission(p v1beta1.Permission) string {
	given := 0
	for _, is := range []bool{p.Key != "", p.Prefix != nil, p.Range != nil} {
		if is {
			given++
		}
	}
	switch {
	case accessOf(p.Access) == 0:
		return fmt.Sprintf(".access %q is not Read, Write or ReadWrite", p.Access)
	case given != 1:
		return " needs exactly one of key, prefix and range"
	case p.Range != nil && p.Range.From == "":
		return ".range.from is empty; use prefix \"\" for all keys"
	case p.Range != nil && p.Range.To != "" && p.Range.To <= p.Range.From:
		return fmt.Sprintf(".range is empty: to %q must be after from %q; remove to for all keys from there on",
			p.Range.To, p.Range.From)
	}
	return ""
}
