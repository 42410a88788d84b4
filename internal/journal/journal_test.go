package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/decision"
	hooks "github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server"
)

// unreachable is an etcd that tells nothing.
type unreachable struct{}

func (unreachable) Observe(context.Context, []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	return nil, nil
}

func (unreachable) Do(context.Context, decision.Step, *observation.Membership, []observation.Endpoint) error {
	return errors.New("no step is expected")
}

// TestPrintAndReplay: in a pod of Quorate's, whose environment names Quorate's own namespace, all clusters are told of,
// and what is told is decided once more.
func TestPrintAndReplay(t *testing.T) {
	body, err := os.ReadFile("../../server/testdata/sync.json")
	require.NoError(t, err)
	s := server.New(server.Options{Version: "v0.1.0", Etcd: unreachable{}})
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/sync", bytes.NewReader(body)))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	port := fmt.Sprint(os.Getpid()) // no port is opened, and tests of other processes have another name
	socket, err := net.Listen("unix", "@quorate-journal:"+port)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.ServeJournal(ctx, socket)

	environment := func(name string) string {
		return map[string]string{"QUORATE_NAMESPACE": "quorate-system", "QUORATE_LISTEN": ":" + port}[name]
	}
	var out, errs bytes.Buffer
	require.NoError(t, Print(ctx, nil, environment, &out, &errs))
	file := filepath.Join(t.TempDir(), "journal")
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	out.Reset()
	same, err := Replay("v0.2.0", []string{file}, nil, &out, &errs)
	require.NoError(t, err)
	assert.True(t, same)
	assert.Equal(t, "0 of 1 decisions about 1 clusters are others by v0.2.0\n", out.String())

	volume := t.TempDir()
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	var packed bytes.Buffer
	packer := hooks.Packer(&packed)
	_, err = packer.Write(kept)
	require.NoError(t, err)
	require.NoError(t, packer.Flush())
	whole := packed.Len()
	_, err = packer.Write([]byte(`{"ref":"ha`))
	require.NoError(t, err)
	require.NoError(t, packer.Close())
	onVolume := filepath.Join(volume, "1.journal.gz")
	require.NoError(t, os.WriteFile(onVolume, packed.Bytes(), 0o600))
	out.Reset()
	require.NoError(t, Print(ctx, []string{"--journal-dir", volume, "--namespace=shop"}, environment, &out, &errs))
	assert.Greater(t, out.Len(), len(kept), "of the volume and of the server")
	assert.Contains(t, errs.String(), "1.journal.gz is not whole: the last entry in it is missing")
	same, err = Replay("v0.2.0", []string{"-"}, &out, &errs, &errs)
	require.NoError(t, err)
	assert.True(t, same)
	assert.Contains(t, errs.String(), "0 of 1 decisions")
	out.Reset()
	require.NoError(t, Print(ctx, []string{"--journal-dir", volume, "--name=other"}, environment, &out, &errs))
	assert.Zero(t, out.Len())

	errs.Reset()
	require.NoError(t, os.WriteFile(onVolume, packed.Bytes()[:whole], 0o600))
	same, err = Replay("v0.2.0", []string{onVolume}, nil, &out, &errs)
	require.NoError(t, err)
	assert.True(t, same)
	assert.Contains(t, out.String(), "0 of 1 decisions")
	assert.Empty(t, errs.String(), "all that was written is there")

	out.Reset()
	_, err = Replay("v0.2.0", []string{"--as-story", file}, nil, &out, &errs)
	require.NoError(t, err)
	assert.Regexp(t, "(?s)^# What Quorate v0.1.0 has decided about shop/orders: .*\n\nreplay\n.*\n----\n20.* Blind: ", out.String())
	_, err = Replay("v0.2.0", []string{"--as-story", "--at=2001-01-01T00:00:00Z", file}, nil, &out, &errs)
	require.ErrorContains(t, err, "no entry")

	require.NoError(t, Print(ctx, []string{"--namespace=elsewhere"}, environment, &out, &errs))
	require.Error(t, Print(ctx, []string{"--listen=nowhere"}, environment, &out, &errs))
	_, err = Replay("v0.2.0", nil, nil, &out, &errs)
	require.Error(t, err)
	_, err = Replay("v0.2.0", []string{file + "s"}, nil, &out, &errs)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Replay("v0.2.0", []string{"-"}, strings.NewReader("no journal"), &out, &errs)
	require.ErrorContains(t, err, "line 1 is no entry of a journal")
}
