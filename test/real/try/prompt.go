package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/term"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/internal/kubectl"
	"github.com/quorate-dev/quorate/server/wire"
)

const help = `  status              the cluster on one screen, as kubectl quorate status shows it
  explain             what Quorate would do now, and why, as kubectl quorate explain says it
  history             what was decided, when and why, as kubectl quorate history tells it
  get                 the cluster, its pods and its claims, as kubectl get shows them
  members             etcd's own member list
  apply [-f FILE]     an EtcdCluster in YAML; without a file ` + samplePath + `
  scale N             spec.replicas; also as in kubectl: scale demo --replicas=N
  upgrade VERSION     spec.version, up or down; a release that is not here is built from source
  kill MEMBER         end its etcd, as a crash does
  lose MEMBER         its pod, claim and data are gone
  delete NAME         a pod, a claim as pvc/NAME, or the cluster
  logs MEMBER         the end of its etcd's log
  etcdctl ARGS        such as etcdctl get greeting; without ARGS the line for another terminal
  quit                end everything, leaving nothing behind
`

// verbs of the prompt. What they print goes to the writer.
func (t *try) verbs() map[string]func(ctx context.Context, w io.Writer, args []string) error {
	return map[string]func(ctx context.Context, w io.Writer, args []string) error{
		"help":    func(_ context.Context, w io.Writer, _ []string) error { return text(w, help) },
		"status":  t.plugin("status"),
		"explain": t.plugin("explain"),
		"history": t.plugin("history"),
		"get":     func(_ context.Context, w io.Writer, _ []string) error { return text(w, t.table()) },
		"members": t.showMembers,
		"apply":   t.applyFile,
		"scale":   t.scale,
		"upgrade": t.upgrade,
		"kill":    named(t.killEtcd),
		"lose":    named(t.loseMember),
		"delete":  named(t.remove),
		"logs":    t.showLog,
		"etcdctl": t.runEtcdctl,
	}
}

// do carries out one line.
func (t *try) do(ctx context.Context, w io.Writer, line string) error {
	words := strings.Fields(line)
	if len(words) > 0 && words[0] == "kubectl" {
		words = words[1:]
	}
	if len(words) > 0 && words[0] == "quorate" {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	if words[0] == "quit" || words[0] == "exit" {
		return io.EOF
	}
	verb, is := t.verbs()[words[0]]
	if !is {
		return fmt.Errorf("there is no command %q; `help` lists them", words[0])
	}
	return verb(ctx, w, words[1:])
}

// prompt takes commands until it is told to quit.
func (t *try) prompt(ctx context.Context, c *console) error {
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(os.Stdin.Fd()), before) }()
	terminal := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{os.Stdin, os.Stdout}, "try> ")
	if w, h, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		_ = terminal.SetSize(w, h)
	}
	c.onto(terminal)
	_, _ = fmt.Fprintf(terminal, "\nIt is yours now: break it. `help` lists what you can do, `quit` ends all of it. "+
		"Logs: %s\n", t.kubelet.logs())
	if line, err := t.line(); err == nil {
		_, _ = fmt.Fprintf(terminal, "  %s get greeting\n", line)
	}
	lines := make(chan string)
	failed := make(chan error, 1)
	next := make(chan struct{})
	go func() {
		for range next {
			line, err := terminal.ReadLine()
			if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
				failed <- err
				return
			}
			lines <- line
		}
	}()
	for {
		next <- struct{}{}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case line := <-lines:
			switch err := t.do(ctx, terminal, line); {
			case errors.Is(err, io.EOF):
				return err
			case err != nil:
				_, _ = fmt.Fprintf(terminal, "%v\n", err)
			}
		}
	}
}

func text(w io.Writer, words string) error {
	_, err := io.WriteString(w, words)
	return err
}

// named is a verb that takes one name.
func named(do func(name string) error) func(context.Context, io.Writer, []string) error {
	return func(_ context.Context, _ io.Writer, args []string) error {
		if len(args) != 1 {
			return errors.New("say which one, such as demo-1; `get` lists what there is")
		}
		return do(strings.TrimPrefix(strings.TrimPrefix(args[0], "pod/"), "etcdcluster/"))
	}
}

// plugin is a command of kubectl quorate, looking at this Kubernetes.
func (t *try) plugin(command string) func(context.Context, io.Writer, []string) error {
	return func(ctx context.Context, w io.Writer, args []string) error {
		p := kubectl.Explaining(kubectl.New("try", w, w), wire.ReadCluster)
		p.Through(kubectl.Reach{Run: t.run, Forward: t.forward})
		p.Run(ctx, append([]string{command, "-n", "default"}, args...))
		return nil
	}
}

func (t *try) showMembers(ctx context.Context, w io.Writer, _ []string) error {
	lines, err := t.members(ctx)
	if err != nil {
		return err
	}
	return text(w, "  "+strings.Join(lines, "\n  ")+"\n")
}

func (t *try) applyFile(_ context.Context, _ io.Writer, args []string) error {
	if len(args) == 0 {
		c, err := sample(version.Version)
		if err != nil {
			return err
		}
		return t.apply(c)
	}
	raw, err := os.ReadFile(strings.TrimPrefix(args[len(args)-1], "--filename="))
	if err != nil {
		return err
	}
	c, err := read(raw)
	if err != nil {
		return err
	}
	return t.apply(c)
}

func (t *try) scale(_ context.Context, _ io.Writer, args []string) error {
	number := strings.TrimPrefix(cmp.Or(strings.Join(args[max(0, len(args)-1):], ""), "none"), "--replicas=")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 || n > 9 {
		return fmt.Errorf("say how many members, 0 to 9, such as `scale 5`, not %q", number)
	}
	return t.edit(func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(n)) })
}

func (t *try) upgrade(_ context.Context, w io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("say to which version, such as `upgrade %s`; %s is linked in", older, version.Version)
	}
	release := strings.TrimPrefix(args[0], "v")
	if _, there := built(release, "etcd"); !there && release != version.Version {
		_, _ = fmt.Fprintf(w, "etcd %s is not here: it is built from source when the first member asks for it, in a "+
			"minute or two\n", release)
	}
	return t.edit(func(s *v1beta1.EtcdClusterSpec) { s.Version = release })
}

// showLog prints the end of a log.
func (t *try) showLog(_ context.Context, w io.Writer, args []string) error {
	if len(args) != 1 {
		return errors.New("say whose, such as demo-1")
	}
	return tail(w, filepath.Join(t.kubelet.logs(), filepath.Base(args[0])+".etcd.log"), 20)
}

func tail(w io.Writer, file string, most int) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return text(w, strings.Join(lines[max(0, len(lines)-most):], "\n")+"\n")
}

// tails prints the ends of all logs, for those who have no prompt to ask at.
func (t *try) tails(c *console) {
	files, _ := filepath.Glob(filepath.Join(t.kubelet.logs(), "*.log"))
	for _, file := range files {
		c.say("--- the end of %s", filepath.Base(file))
		_ = tail(c.out, file, 5)
	}
}

func (t *try) runEtcdctl(ctx context.Context, w io.Writer, args []string) error {
	a, err := t.access()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return text(w, "  "+t.etcdctl()+" "+strings.Join(a.flags(), " ")+" get greeting\n")
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // no key ends it here: watch and lock would never end
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = append(append([]string{"etcdctl"}, a.flags()...), args...)
	cmd.Stdout, cmd.Stderr = w, w
	_ = cmd.Run() // it has said what is wrong
	if ctx.Err() != nil {
		return errors.New("etcdctl was ended after a minute; from another terminal it may take longer")
	}
	return nil
}
