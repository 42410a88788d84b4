//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

const usersAndRoles = `  auth:
    enabled: true
    roles:
    - {name: orders, permissions: [{access: ReadWrite, prefix: /orders/}]}
    - {name: everything, permissions: [{access: ReadWrite, prefix: ""}]}
    users:
    - {name: client, roles: [everything]}
    - {name: shop, roles: [orders], credential: Certificate}
    - {name: till, roles: [orders]}
    - {name: own, roles: [orders], passwordSecretRef: {name: own-password}}
`

// authorized says why the condition Authorized has another reason; empty when it has this one.
func (c *cluster) authorized(reason string) string {
	a := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Authorized)
	return while(a == nil || a.Reason != reason, fmt.Sprintf("%+v", a))
}

// loggedIn waits until a user with a password is let in.
func (c *cluster) loggedIn(user, password string) *clientv3.Client {
	c.t.Helper()
	return letIn(c.t, user, func() (*clientv3.Client, error) { return c.login(user, password) })
}

// letIn waits until a client is.
func letIn(t *testing.T, who string, open func() (*clientv3.Client, error)) (client *clientv3.Client) {
	t.Helper()
	eventually(t, who+" is let in", func() string {
		var err error
		client, err = open()
		return failure(err)
	})
	return client
}

// shutOut waits until etcd itself refuses a password.
func shutOut(t *testing.T, who string, open func() (*clientv3.Client, error)) {
	t.Helper()
	eventually(t, who+" is not let in with another password", func() string {
		_, err := open()
		require.Error(t, err)
		return while(!strings.Contains(err.Error(), rpctypes.ErrAuthFailed.Error()) &&
			!errors.Is(err, rpctypes.ErrAuthFailed), err)
	})
}

func TestUsersAndRoles(t *testing.T) {
	beside(t)
	c := newCluster(t, three)
	c.converges(3)
	w := c.writes() // with the certificate of the user client, which has no name in etcd yet

	// Enabled on a live cluster. A password that is not there yet is asked for by its field, and meanwhile nothing is
	// changed.
	c.apply(three + usersAndRoles)
	eventually(t, "the missing Secret is named", func() string { return c.authorized("SecretNotFound") })
	assert.Contains(t, meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Authorized).Message,
		"spec.auth.users[3].passwordSecretRef")
	c.kube("create", "secret", "generic", "own-password", "--from-literal=password=first")
	c.kube("label", "secret", "own-password", "etcd.quorate.dev/cluster="+name)
	eventually(t, "applied", func() string { return c.authorized("Enabled") })
	w.ends()
	assert.Empty(t, w.refused, "a client whose user has its roles notices nothing")
	w.losesNothing()
	w = c.writesWith(c.client(), "later")

	// A prefix, and nothing beside it.
	shop := c.clientAs(name + "-client.shop")
	till := c.loggedIn("till", string(c.secretOf(name + "-user.till")["password"]))
	own := c.loggedIn("own", "first")
	for who, client := range map[string]*clientv3.Client{"shop": shop, "till": till, "own": own} {
		require.NoError(t, putting(t, client, "/orders/1", who), who)
		_, err := getting(t, client, "/orders/1")
		require.NoError(t, err, who)
		for _, key := range []string{"/order", "/orders", "/orders0", "/payments/1"} {
			_, err := getting(t, client, key)
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "%s reads %s", who, key)
			err = putting(t, client, key, who)
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "%s writes %s", who, key)
		}
		_, err = answered(t, func(ctx context.Context) (any, error) { return client.UserList(ctx) })
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "%s is no root", who)
	}
	shutOut(t, "own", func() (*clientv3.Client, error) { return c.login("own", "wrong") })

	// Another password, by changing the Secret.
	c.kube("patch", "secret", "own-password", "-p", `{"stringData":{"password":"second"}}`)
	c.loggedIn("own", "second")
	shutOut(t, "own", func() (*clientv3.Client, error) { return c.login("own", "first") })

	// A token that any member accepts, also when the one that gave it is killed. A user that has logged in goes on.
	till = c.loggedIn("till", string(c.secretOf(name + "-user.till")["password"]))
	for _, pod := range c.pods() {
		c.kills(pod.Name)
		eventually(t, "the user with a token goes on without "+pod.Name, func() string {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, err := till.Put(ctx, "/orders/2", pod.Name); err != nil {
				require.False(t, errors.Is(err, rpctypes.ErrInvalidAuthToken), "%v", err)
				return err.Error()
			}
			return ""
		})
		c.another(pod)
		c.converges(3)
	}

	w.losesNothing()
	c.takesPasswordsAlone()
	w = c.writesWith(c.client(), "at-last")

	// Disabled on purpose.
	c.edit(`{"auth":{"enabled":false}}`)
	eventually(t, "turned off", func() string { return c.authorized("Disabled") })
	_, err := getting(t, shop, "/payments/1")
	require.NoError(t, err)
	w.losesNothing()
}

// takesPasswordsAlone: clients without a certificate log in, also while a member is lost, and afterwards certificates
// are asked for again.
func (c *cluster) takesPasswordsAlone() {
	password := string(c.secretOf(name + "-user.client")["password"])
	w := c.writesWith(c.loggedIn("client", password), "passwords")
	users := strings.Replace(usersAndRoles, "    - {name: shop, roles: [orders], credential: Certificate}\n", "", 1)
	c.apply(three + users + "  tls: {mode: Auto, clientAuth: None}\n")
	c.converges(3)
	assert.Equal(c.t, v1beta1.ClientAuthNone, c.object().Status.TLS.ClientAuth)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.secretOf(name + "-client-tls")["ca.crt"])
	alone := func(user, password string) (*clientv3.Client, error) {
		return c.open(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, c.service(), user, password)
	}
	tills := string(c.secretOf(name + "-user.till")["password"])
	till := letIn(c.t, "till, with the authority alone,", func() (*clientv3.Client, error) {
		return alone("till", tills)
	})
	require.NoError(c.t, putting(c.t, till, "/orders/3", "till"))
	shutOut(c.t, "till", func() (*clientv3.Client, error) { return alone("till", "wrong") })
	stranger, err := alone("", "")
	require.NoError(c.t, err)
	_, err = getting(c.t, stranger, "/orders/3")
	require.ErrorIs(c.t, err, rpctypes.ErrUserEmpty)

	c.deletes("pvc", "demo-1")
	c.deletes("pods", "demo-1")
	c.succeeds("demo-1", func() {})

	c.apply(three + usersAndRoles)
	c.converges(3)
	assert.Equal(c.t, v1beta1.ClientAuthRequired, c.object().Status.TLS.ClientAuth)
	_, err = alone("till", tills)
	require.Error(c.t, err, "a certificate is asked for again")
	w.losesNothing()
}
