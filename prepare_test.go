package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/objects"
)

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	cases := []struct {
		args string
		env  map[string]string
		code int
		says string
	}{
		{"", nil, 2, "Usage:"},
		{"help", nil, 0, "quorate serve"},
		{"version", nil, 0, "quorate devel (commit unknown, go"},
		{"fly", nil, 2, `no command "fly"`},
		{"serve", nil, 1, "pass --image or QUORATE_IMAGE"},
		{"serve -h", nil, 0, "-call-timeout"},
		{"serve --no-such-flag", nil, 2, "no-such-flag"},
		{"serve extra", nil, 1, "takes flags, and no other arguments"},
		{"serve", map[string]string{"QUORATE_CALL_TIMEOUT": "soon"}, 1, "QUORATE_CALL_TIMEOUT"},
		{"serve --image=i --image-pull-policy=Sometimes", nil, 1, "--image-pull-policy must be"},
		{"serve --image=i --call-timeout=0s", nil, 1, "more than 0"},
		{"serve --image=i --call-timeout=11s", nil, 1, "10s at most"},
		{"serve --listen=nowhere", map[string]string{"QUORATE_IMAGE": "i"}, 1, "nowhere"},
		{"prepare", nil, 1, "--start must be"},
		{"prepare --start=resume --data-dir=" + dir + " --marker=" + dir + "/m", nil, objects.ExitDataLost, "the member's data is lost"},
		{"prepare --start=join --data-dir=" + dir + " --marker=" + dir + "/m", nil, 0, ""},
	}
	for _, c := range cases {
		var out bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), func(k string) string { return c.env[k] }, &out, &out)
		require.Equal(t, c.code, code, "%s: %s", c.args, out.String())
		require.Contains(t, out.String(), c.says, c.args)
	}
}

func TestServeUntilTerminated(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	pages := l.Addr().String()
	require.NoError(t, l.Close())
	ctx, terminate := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--metrics-listen", pages, "--drain-delay=-1ns"}, func(k string) string {
			return map[string]string{"QUORATE_IMAGE": "i", "QUORATE_VERIFY": "1", "QUORATE_LOG_LEVEL": "warn"}[k]
		}, &bytes.Buffer{}, &bytes.Buffer{})
	}()
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + pages + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, 5*time.Second, 10*time.Millisecond)
	terminate()
	require.Equal(t, 0, <-code)
}
