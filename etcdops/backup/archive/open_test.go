package archive

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/reach"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestWhatATenantGivesAsCredentialsOfGooglesReadsNoFile: Google's packages take types that read any file, and send it
// to any address. Of what a Secret has, only the key of a service account is taken, and it is shown to Google alone.
func TestWhatATenantGivesAsCredentialsOfGooglesReadsNoFile(t *testing.T) {
	asked := 0
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(thief.Close)
	own := serviceAccount(t, "https://oauth2.googleapis.com/token")
	for name, change := range map[string]map[string]any{
		"a key": nil,
		"a federated identity": {"type": "external_account", "audience": "//iam.googleapis.com/x",
			"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": thief.URL,
			"credential_source": map[string]any{"file": "/etc/passwd"}},
		"a program": {"type": "external_account", "audience": "//iam.googleapis.com/x",
			"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": thief.URL,
			"credential_source": map[string]any{"executable": map[string]any{"command": "/bin/sh"}}},
		"a type twice":               {"Type": "external_account"},
		"a user":                     {"type": "authorized_user"},
		"another's identity":         {"type": "impersonated_service_account"},
		"a token from another":       {"token_uri": thief.URL},
		"a token from another twice": {"Token_URI": thief.URL},
		"another universe":           {"universe_domain": "example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(own)
			require.NoError(t, err)
			var all map[string]any
			require.NoError(t, json.Unmarshal(raw, &all))
			for field, value := range change {
				all[field] = value
			}
			raw, err = json.Marshal(all)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "credentials.json")
			require.NoError(t, os.WriteFile(file, raw, 0o600))
			found, err := googleCredentials(t.Context(), file, file)
			if err != nil {
				assert.Equal(t, Denied, ReasonOf(err))
				assert.NotContains(t, err.Error(), mark)
				assert.NotNil(t, change)
				return
			}
			var read map[string]string
			require.NoError(t, json.Unmarshal(found.JSON, &read))
			assert.Equal(t, "service_account", read["type"])
			assert.Equal(t, "https://oauth2.googleapis.com/token", read["token_uri"])
			if name != "a key" {
				assert.Contains(t, name, "twice")
			}
		})
	}
	assert.Zero(t, asked)
}

// TestAnotherEtcdIsDialedWhereItMayBe: the pod looks at each address that an endpoint's name leads to.
func TestAnotherEtcdIsDialedWhereItMayBe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	accepted := make(chan bool, 1)
	go func() {
		_, err := listener.Accept()
		accepted <- err == nil
	}()
	allowed, err := objects.ParseAllowedEndpoints("10.1.2.0/24")
	require.NoError(t, err)
	for _, within := range []*reach.Within{{Allowed: allowed, Namespace: "shop"}, {}} {
		c := Cluster{Endpoints: []string{"http://" + listener.Addr().String()}, Within: within}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		_, err = c.Standing(ctx)
		stop()
		require.Error(t, err)
	}
	require.NoError(t, listener.Close())
	require.False(t, <-accepted, "it was connected to")
}

// TestAnAccountOfAzuresIsNoHost: a token of the platform goes to the host whose name begins with it.
func TestAnAccountOfAzuresIsNoHost(t *testing.T) {
	for _, account := range []string{"evil.example/", "evil.example#", "a@evil.example?", "SHOP", "sh"} {
		t.Setenv("AZURE_STORAGE_ACCOUNT", account)
		folder, _, err := Source{URL: "azblob://bucket/folder/x.db"}.folder()
		require.NoError(t, err)
		_, err = openBucket(t.Context(), folder)
		require.Error(t, err)
		assert.Equal(t, Denied, ReasonOf(err))
		assert.NotContains(t, err.Error(), account)
	}
}

// An authority from a file is trusted besides the public ones, wherever no others are named, and no second file is.
func TestTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ask := func() error {
		client := &http.Client{Transport: &http.Transport{}} // without authorities of its own, as those of the stores' SDKs
		answer, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	require.Error(t, ask())
	assert.True(t, unreachable(ask()), "one whose authority is unknown counts as not reached")

	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	assert.ErrorContains(t, trust(file), "no certificate in PEM")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	require.NoError(t, trust(file))
	require.NoError(t, trust(file))
	assert.NoError(t, ask())
	assert.Error(t, trust(""))
}

// The authorities in the binary are those of Mozilla, some of them only for certificates of before a day.
func TestPublic(t *testing.T) {
	assert.False(t, public().Equal(nil))
	assert.Greater(t, len(public().Subjects()), 100) //nolint:staticcheck // it is deprecated for pools of the system, and this is none
}
