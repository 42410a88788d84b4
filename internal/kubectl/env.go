package kubectl

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// The command env: what etcdctl needs, as a shell reads it. What is secret goes to files that only this user can read.

// root is the user of etcd that may do everything.
const root = "root"

func (a *invocation) envFlags(flags *flag.FlagSet) {
	userName.flag(flags, &a.user, "etcd-user", "`name` of a user of spec.auth, or root")
	flags.StringVar(&a.dir, "dir", "", "`folder` for certificates and passwords; unset, a new one for temporary files")
}

// passwordVariable is the one that has what is in the file; all others name it.
const passwordVariable = "ETCDCTL_PASSWORD"

// credential is a key of a Secret that becomes a file, and the variable for it.
type credential struct{ secret, key, file, variable string }

// env prints the lines. Whatever a shell had of another cluster, they unset.
func (a *invocation) env(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	if c.Status.Connection == nil {
		return fmt.Errorf("EtcdCluster %s/%s has not begun: nothing can be reached yet", c.Namespace, c.Name)
	}
	files, err := a.credentials(c.EtcdCluster)
	if err != nil {
		return err
	}
	lines := []string{"unset ETCDCTL_CACERT ETCDCTL_CERT ETCDCTL_KEY ETCDCTL_USER ETCDCTL_PASSWORD",
		"export ETCDCTL_ENDPOINTS=" + quoted(a.endpoints(c.EtcdCluster))}
	if len(files) > 0 {
		exports, err := a.keep(ctx, c.EtcdCluster, files)
		if err != nil {
			return err
		}
		lines = append(lines, exports...)
	}
	fmt.Fprintln(a.Out, strings.Join(lines, "\n"))
	return nil
}

// endpoints are those that are reached from here, and what it takes to reach them.
func (a *invocation) endpoints(c *v1beta1.EtcdCluster) string {
	at := c.Status.Connection
	switch {
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "": // here is a pod
		return strings.Join(at.Endpoints, ",")
	case len(at.External) > 0:
		return strings.Join(at.External, ",")
	}
	fmt.Fprintf(a.Err, "keep this running in another terminal: kubectl port-forward -n %s service/%s %d\n", c.Namespace,
		objects.ClientService(c.Name), objects.ClientPort)
	return fmt.Sprintf("%s://127.0.0.1:%d", objects.Scheme(c), objects.ClientPort)
}

// credentials are the files that it takes: what a client trusts, what it shows, and the password of --etcd-user.
func (a *invocation) credentials(c *v1beta1.EtcdCluster) ([]credential, error) {
	at := c.Status.Connection
	trusts, shows := at.CASecretRef.Name, at.ClientSecretRef.Name
	var password *users.PasswordFrom
	if a.user != "" {
		var err error
		if password, err = passwordOf(c, a.user); err != nil {
			return nil, err
		}
		if password == nil {
			trusts = defaults.UserSecret(c.Name, a.user)
			shows = trusts
		}
	} else if c.Spec.Auth != nil && c.Spec.Auth.Enabled {
		fmt.Fprintln(a.Err, "users and roles are on: --etcd-user=NAME logs in as one that has rights")
	}
	var files []credential
	if objects.Encrypted(c) {
		if trusts == "" {
			return nil, fmt.Errorf("status.connection of EtcdCluster %s/%s names no Secret for clients: with spec.tls.mode "+
				"Secrets, use the certificate that you have made", c.Namespace, c.Name)
		}
		files = append(files, credential{trusts, objects.KeyTrust, "ca.crt", "ETCDCTL_CACERT"})
	}
	if shows != "" {
		files = append(files, credential{shows, objects.KeyCertificate, "tls.crt", "ETCDCTL_CERT"},
			credential{shows, objects.KeyPrivate, "tls.key", "ETCDCTL_KEY"})
	}
	if password != nil {
		files = append(files, credential{password.Secret, password.Key, "password", passwordVariable})
	}
	return files, nil
}

// passwordOf is where the password of a user is; nil for one that has a certificate.
func passwordOf(c *v1beta1.EtcdCluster, name string) (*users.PasswordFrom, error) {
	auth := c.Spec.Auth
	if auth == nil {
		return nil, fmt.Errorf("EtcdCluster %s/%s has no spec.auth: leave out --etcd-user", c.Namespace, c.Name)
	}
	if name == root {
		return users.RootPasswordSource(c.Name, auth), nil
	}
	i := slices.IndexFunc(auth.Users, func(u v1beta1.UserSpec) bool { return u.Name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("spec.auth.users of EtcdCluster %s/%s has no %s", c.Namespace, c.Name, name)
	case auth.Users[i].Credential == v1beta1.CredentialCertificate:
		return nil, nil
	}
	return users.PasswordIn("", auth.Users[i].PasswordSecretRef, users.PasswordSecret(c.Name, name)), nil
}

// keep writes the files, and returns the lines that name them.
func (a *invocation) keep(ctx context.Context, c *v1beta1.EtcdCluster, files []credential) (lines []string, err error) {
	held := map[string]map[string][]byte{}
	for _, f := range files {
		if held[f.secret] == nil {
			if held[f.secret], err = a.secret(ctx, c, f.secret); err != nil {
				return nil, err
			}
		}
		if len(held[f.secret][f.key]) == 0 {
			return nil, fmt.Errorf("the Secret %s/%s has no %s", c.Namespace, f.secret, f.key)
		}
	}
	dir, err := a.folder(c.Name)
	if err != nil {
		return nil, fmt.Errorf("there is no folder for the files: %w; choose one with --dir", err)
	}
	for _, f := range files {
		path, err := written(dir, f.file, held[f.secret][f.key])
		if err != nil {
			return nil, fmt.Errorf("%s of Secret %s/%s is not written: %w", f.key, c.Namespace, f.secret, err)
		}
		if f.variable == passwordVariable {
			lines = append(lines, "export ETCDCTL_USER="+quoted(a.user),
				fmt.Sprintf(`export %s="$(cat %s)"`, f.variable, quoted(path)))
		} else {
			lines = append(lines, "export "+f.variable+"="+quoted(path))
		}
	}
	fmt.Fprintf(a.Err, "delete %s when you are done: a key is in it\n", dir)
	return lines, nil
}

// folder is the one of --dir, or a new one that only this user can read.
func (a *invocation) folder(of string) (string, error) {
	if a.dir == "" {
		return os.MkdirTemp("", "quorate-"+of+"-")
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return "", err
	}
	return filepath.Abs(a.dir)
}

// written is the path of a new file that only this user can read, in the place of one that was there.
func written(dir, name string, content []byte) (string, error) {
	file, err := os.CreateTemp(dir, name+".*") // readable and writable for this user alone
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	if closed := file.Close(); err == nil {
		err = closed
	}
	path := filepath.Join(dir, name)
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return path, err
}

// quoted is a word as a shell reads it.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
