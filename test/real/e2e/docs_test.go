//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/static/docs"
)

// TestDocuments: a user who types what the documents show gets what they show. Each page is played from top to bottom.
func TestDocuments(t *testing.T) {
	t.Parallel()
	pages, err := docs.ReadPages("../../..")
	require.NoError(t, err)
	for _, page := range pages {
		if !slices.ContainsFunc(page.Parts, docs.Part.Runs) {
			continue
		}
		t.Run(strings.TrimPrefix(page.Path, "docs/"), func(t *testing.T) {
			beside(t)
			enter(t, page).play()
		})
	}
}

// scene is where a page is played: a namespace, and a folder with what a reader has at hand.
type scene struct {
	*cluster
	page docs.Page
	dir  string
	env  []string
	// rows is what `kubectl get etcdcluster -w` has printed so far; told is how much of it the page has shown.
	rows string
	told int
	// replaced is what a reader replaces by what he has: a bucket and its keys.
	replaced *strings.Replacer
}

// enter makes the folder: manifests/ and bin/quorate as in a checkout, kubectl's plugin and etcdctl on the PATH, a
// kubeconfig of its own.
func enter(t *testing.T, page docs.Page) *scene {
	t.Helper()
	s := &scene{cluster: inNamespace(t), page: page, dir: t.TempDir()}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "bin/quorate"), "make build")
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "bin"), 0o700))
	for link, to := range map[string]string{"manifests": "manifests", "test": "test", "bin/quorate": "bin/quorate",
		"bin/kubectl-quorate": "bin/quorate"} {
		require.NoError(t, os.Symlink(filepath.Join(root, to), filepath.Join(s.dir, link)))
	}
	config, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "kubeconfig"), config, 0o600))
	path := strings.Join([]string{filepath.Join(s.dir, "bin"),
		filepath.Join(os.Getenv("QUORATE_LAB_BIN"), "etcd-3.6.16"), os.Getenv("PATH")}, ":")
	s.env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.dir, "kubeconfig"), "PATH="+path, "HOME="+s.dir,
		"TMPDIR="+s.dir)
	bucket := store(t)
	s.replaced = strings.NewReplacer("bucket: backups, prefix: etcd, region: eu-west-1", bucket.fields(s.ns),
		"AWS_ACCESS_KEY_ID=...", "AWS_ACCESS_KEY_ID="+s3Key, "AWS_SECRET_ACCESS_KEY=...",
		"AWS_SECRET_ACCESS_KEY="+s3Pass)
	s.run(0, "kubectl config set-context --current --namespace="+s.ns)
	s.watch()
	return s
}

// play carries out the parts of the page in their order.
func (s *scene) play() {
	began, played := time.Now(), 0
	for _, part := range s.page.Parts {
		switch {
		case part.Setup != "":
			s.run(part.Line, part.Setup)
			continue
		case part.Wait != "":
			s.waits(part)
			continue
		case !part.Runs():
			continue
		case part.Language == "yaml":
			s.applies(part)
		default:
			s.types(part)
		}
		played++
	}
	s.t.Logf("%s: %d blocks in %.0f s", s.page.Path, played, time.Since(began).Seconds())
}

// patient finds how long a reader waits: a slow machine must not decide here.
var patient = regexp.MustCompile(`--timeout=[0-9]+m`)

// typed by a reader, who asks etcd once more where it gave no answer: it may elect a leader just then.
func (s *scene) typed(c docs.Command, more ...string) (printed string) {
	s.t.Helper()
	if !strings.Contains(c.Text, "etcdctl ") {
		return s.run(c.Line, c.Text, more...)
	}
	eventually(s.t, fmt.Sprintf("%s:%d: etcd answers", s.page.Path, c.Line), func() string {
		var err error
		// it may have compacted before its answer was lost
		printed, err = s.tried(c.Text, more...)
		return while(err != nil && !strings.Contains(printed, "has been compacted"), printed)
	})
	return printed
}

// run has a shell run this, and fails the test when a command of it fails.
func (s *scene) run(line int, script string, more ...string) string {
	s.t.Helper()
	printed, err := s.tried(script, more...)
	require.NoError(s.t, err, "%s:%d:\n%s\nit says:\n%s", s.page.Path, line, script, printed)
	return printed
}

// tried by a shell. What it starts in the background ends with the test.
func (s *scene) tried(script string, more ...string) (string, error) {
	s.t.Helper()
	out, err := os.CreateTemp(s.dir, "out-") // a pipe would be waited for as long as anything in the background has it
	require.NoError(s.t, err)
	defer func() { _ = out.Close() }()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c",
		patient.ReplaceAllString(s.replaced.Replace(script), "--timeout="+patience.String()))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, append(s.env, more...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s.t, cmd.Start())
	group := -cmd.Process.Pid
	s.t.Cleanup(func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	err = cmd.Wait()
	printed, readErr := os.ReadFile(out.Name())
	require.NoError(s.t, readErr)
	return strings.ReplaceAll(string(printed), s.ns, "default"), err
}

// watch notes every row that `kubectl get etcdcluster` would show from now on: what comes and goes in a second is
// seen, too.
func (s *scene) watch() {
	s.t.Helper()
	s.rows = filepath.Join(s.dir, "rows")
	s.run(0, "kubectl get etcdcluster --watch > rows 2> /dev/null &")
}

// waits is what a reader does who is told that something takes a while.
func (s *scene) waits(part docs.Part) {
	s.t.Helper()
	words := strings.Fields(part.Wait)
	eventually(s.t, fmt.Sprintf("%s:%d: %s says %s", s.page.Path, part.Line, words[0], words[1]), func() string {
		return notYet(s.t, s.ns, words[0], words[1])
	})
}

// notYet says why an EtcdCluster does not have this STATUS for its newest spec.
func notYet(t *testing.T, ns, object, status string) string {
	t.Helper()
	o, found := get[v1beta1.EtcdCluster](t, ns, "etcdcluster", object)
	switch {
	case !found:
		return "it does not exist"
	case o.Status.ObservedGeneration != o.Generation:
		return "the status is of an older spec"
	case o.Status.Rule != status:
		return fmt.Sprintf("%d ready, %s", o.Status.ReadyReplicas, o.Status.Rule)
	}
	return ""
}

// applies asks the API server whether it takes a manifest, or gives it to it. A part of a manifest has been looked at
// by test/static/docs.
func (s *scene) applies(part docs.Part) {
	s.t.Helper()
	if !strings.Contains(part.Text, "apiVersion: ") {
		return
	}
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "manifest.yaml"), []byte(s.replaced.Replace(part.Text)),
		0o600))
	if part.Apply {
		s.run(part.Line, "kubectl apply -f manifest.yaml")
	} else {
		s.run(part.Line, "kubectl apply --dry-run=server -f manifest.yaml")
	}
}

// types the commands of a block, and compares what they print with what the page shows.
func (s *scene) types(part docs.Part) {
	s.t.Helper()
	commands, err := part.Commands()
	require.NoError(s.t, err)
	var dry []string
	if part.DryRun != "" {
		dry = []string{"PATH=" + s.harmless() + ":" + os.Getenv("PATH")}
	}
	for _, c := range commands {
		printed := s.typed(c, dry...)
		switch {
		case part.Language == "sh":
		case strings.HasPrefix(c.Text, "kubectl get etcdcluster ") && !strings.Contains(c.Text, " -o "):
			s.shows(part, c, printed)
		default:
			if differs := part.Differs(c.Output, strings.Split(printed, "\n")); differs != "" {
				s.t.Errorf("%s:%d: %s: %s", s.page.Path, c.Line, strings.TrimSpace(c.Text), differs)
			}
		}
	}
}

// shows waits until a row has been there as the page shows it, after the one that was shown before.
func (s *scene) shows(part docs.Part, c docs.Command, printed string) {
	s.t.Helper()
	require.NotEmpty(s.t, c.Output, "%s:%d: what it shows is missing", s.page.Path, c.Line)
	header, _, _ := strings.Cut(printed, "\n")
	require.Equal(s.t, part.Same(c.Output[0]), part.Same(header), "%s:%d", s.page.Path, c.Line)
	for _, want := range c.Output[1:] {
		eventually(s.t, fmt.Sprintf("%s:%d: %s", s.page.Path, c.Line, part.Same(want)), func() string {
			text, err := os.ReadFile(s.rows)
			require.NoError(s.t, err)
			rows := strings.Split(string(text), "\n")
			for n, row := range rows[min(s.told, len(rows)):] {
				if part.Same(row) == part.Same(want) {
					s.told += n + 1
					return ""
				}
			}
			return "these rows were there: " + strings.Join(rows[s.told:], "; ")
		})
	}
}

// harmless is a folder with a kubectl that changes nothing: the API server says what it would do. What waits for a
// change does not wait.
func (s *scene) harmless() string {
	s.t.Helper()
	program, err := exec.LookPath("kubectl")
	require.NoError(s.t, err)
	dir := filepath.Join(s.dir, "harmless")
	require.NoError(s.t, os.MkdirAll(dir, 0o700))
	script := `#!/bin/sh
for word; do
  case $word in
  wait) exit 0 ;;
  annotate | apply | create | delete | label | patch | scale) exec ` + program + ` "$@" --dry-run=server ;;
  get | describe | logs | exec) exec ` + program + ` "$@" ;;
  esac
done
echo "kubectl $*: it is not known how to do that without changing anything" >&2
exit 1
`
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700))
	return dir
}
