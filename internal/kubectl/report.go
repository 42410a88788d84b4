package kubectl

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/internal/kubectl/check"
)

// validReport refuses a file that is there before all is collected for it.
func (a *invocation) validReport() error {
	if _, err := os.Lstat(a.file); a.file != "" && err == nil {
		return misused("%s is there already: choose another file with -o", a.file)
	}
	return nil
}

// report writes a support bundle. What can't be had is said in it, and is no reason to have none.
func (a *invocation) report(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	file := cmp.Or(a.file, fmt.Sprintf("quorate-report-%s-%s-%s.tar.gz", c.Namespace, c.Name,
		a.now().UTC().Format("20060102T150405Z")))
	b := a.bundle(ctx, c)
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the report about EtcdCluster %s/%s can't be written: %w; choose another file with -o",
			c.Namespace, c.Name, err)
	}
	err = b.write(out, a.now())
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("the report about EtcdCluster %s/%s was not written whole: %w", c.Namespace, c.Name, err)
	}
	fmt.Fprintf(a.Out, "%s holds %s about %s in namespace %s; Secrets are in it by name, keys and sizes only\n", file,
		count(len(b.files), "file"), c.Name, c.Namespace)
	if len(b.troubles) > 0 {
		fmt.Fprintf(a.Out, "%s could not be had: see problems.txt in it\n", count(len(b.troubles), "thing"))
	}
	return nil
}

// bundle is a report while it is made.
type bundle struct {
	redactor *redactor
	files    map[string][]byte
	troubles []string
}

// add puts a file in, without what is secret.
func (b *bundle) add(name string, content []byte) {
	b.files[name] = []byte(b.redactor.text(string(content)))
}

func (b *bundle) trouble(format string, args ...any) {
	b.troubles = append(b.troubles, b.redactor.text(fmt.Sprintf(format, args...)))
}

// bundle collects everything.
func (a *invocation) bundle(ctx context.Context, c *found) *bundle {
	b := &bundle{files: map[string][]byte{}}
	if a.metacontroller == "" {
		o := check.Options{Namespace: a.quorate}
		a.metacontroller = o.Found(a.answer(ctx, o.Own())).Metacontroller
	}
	secrets, troubles := a.secrets(ctx, c.Namespace, a.quorate, a.metacontroller)
	b.redactor = newRedactor(secrets)
	for _, err := range troubles {
		b.trouble("secrets could be recognised only by their form, not by comparison: %s", err)
	}
	b.add("versions.txt", []byte("kubectl quorate "+a.Version+"\n"))
	a.words(ctx, b, c)
	for _, piece := range a.pieces(c) {
		a.collect(ctx, b, piece)
	}
	a.addJournal(ctx, b, c)
	a.logs(ctx, b, c.Namespace, objects.LabelCluster+"="+c.Name, "logs")
	a.logs(ctx, b, a.quorate, "app.kubernetes.io/name=quorate", "quorate/logs")
	its := "" // the labels of one that others have installed are not known
	if a.metacontroller == a.quorate {
		its = "app.kubernetes.io/name=metacontroller"
	}
	a.logs(ctx, b, a.metacontroller, its, "metacontroller/logs")
	if len(b.troubles) > 0 {
		b.files["problems.txt"] = []byte(strings.Join(b.troubles, "\n") + "\n")
	}
	return b
}

// secrets are those of some namespaces: to find what they hold elsewhere, never to write it.
func (a *invocation) secrets(ctx context.Context, namespaces ...string) (all []corev1.Secret, troubles []error) {
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		out, err := a.kube.run(ctx, "get", "secrets", "-n", namespace, "-o", "json")
		if err != nil {
			troubles = append(troubles, err)
			continue
		}
		var list corev1.SecretList
		if objects.Read(out, &list) != nil {
			troubles = append(troubles, fmt.Errorf("the Secrets of namespace %s can't be read", namespace))
			continue
		}
		all = append(all, list.Items...)
	}
	return all, troubles
}

// words are what status and explain print.
func (a *invocation) words(ctx context.Context, b *bundle, c *found) {
	var text bytes.Buffer
	printStatus(&text, c.EtcdCluster, a.look(ctx, c.EtcdCluster), a.syncFailure(ctx, c.EtcdCluster), a.now())
	b.add("status.txt", text.Bytes())
	e, err := a.explanation(ctx, c)
	if err != nil {
		b.trouble("explain.txt: %s", err)
		return
	}
	text.Reset()
	e.print(&text)
	b.add("explain.txt", text.Bytes())
}

// piece is one call of kubectl whose answer is a file.
type piece struct {
	file   string
	object bool // the answer is JSON and becomes YAML without what is secret
	args   []string
}

func (a *invocation) pieces(c *found) []piece {
	get := func(file, namespace string, args ...string) piece {
		args = append([]string{"get"}, args...)
		if namespace != "" {
			args = append(args, "-n", namespace)
		}
		return piece{file, true, append(args, "-o", "json")}
	}
	ours := []string{"-l", objects.LabelCluster + "=" + c.Name}
	list := []piece{
		{"versions-kubernetes.txt", false, []string{"version"}},
		{"nodes.txt", false, []string{"get", "nodes", "-o", "wide"}},
		get("etcdcluster.yaml", c.Namespace, clusters, c.Name),
	}
	for _, kind := range observation.Kinds {
		if !kind.Optional || c.Spec.TLS.CertManager != nil {
			name, _, _ := strings.Cut(kind.Resource, ".")
			list = append(list, get("children/"+name+".yaml", c.Namespace, append([]string{kind.Resource}, ours...)...))
		}
	}
	return append(list,
		get("snapshots.yaml", c.Namespace, "etcdsnapshots,etcdsnapshotschedules"),
		get("mirrors.yaml", c.Namespace, "etcdmirrors"),
		get("jobs.yaml", c.Namespace, "jobs", "-l", objects.LabelSnapshot),
		piece{"events.txt", false, []string{"get", "events", "-n", c.Namespace, "--sort-by=.lastTimestamp"}},
		get("crd.yaml", "", "customresourcedefinition", clusters),
		get("quorate/deployment.yaml", a.quorate, "deployment", "quorate"),
		get("quorate/pods.yaml", a.quorate, "pods", "-l", "app.kubernetes.io/name=quorate"),
		piece{"quorate/events.txt", false, []string{"get", "events", "-n", a.quorate, "--sort-by=.lastTimestamp"}},
		get("quorate/compositecontroller.yaml", "", "compositecontrollers.metacontroller.k8s.io"),
		get("metacontroller/workloads.yaml", a.metacontroller, "statefulsets,deployments"),
		get("metacontroller/pods.yaml", a.metacontroller, "pods"),
	)
}

func (a *invocation) collect(ctx context.Context, b *bundle, p piece) {
	out, err := a.kube.run(ctx, p.args...)
	if err == nil && p.object {
		out, err = b.redactor.object(out)
	}
	if err != nil {
		b.trouble("%s: %s", p.file, err)
		return
	}
	if p.object {
		b.files[p.file] = out
		return
	}
	b.add(p.file, out)
}

// logLines of each container that are kept.
const logLines = "--tail=5000"

// logs of all containers of some pods, with those of the run before where there was one.
func (a *invocation) logs(ctx context.Context, b *bundle, namespace, selector, folder string) {
	args := []string{"get", "pods", "-n", namespace, "-o", "json"}
	if selector != "" {
		args = append(args, "-l", selector)
	}
	out, err := a.kube.run(ctx, args...)
	var pods corev1.PodList
	if err == nil {
		err = objects.Read(out, &pods)
	}
	if err != nil {
		b.trouble("%s: %s", folder, err)
		return
	}
	for _, pod := range pods.Items {
		for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if s.State.Waiting != nil && s.RestartCount == 0 && s.LastTerminationState.Terminated == nil {
				continue // it has never run
			}
			log := []string{"logs", pod.Name, "-n", namespace, "-c", s.Name, "--timestamps", logLines}
			file := fmt.Sprintf("%s/%s.%s", folder, pod.Name, s.Name)
			a.collect(ctx, b, piece{file + ".log", false, log})
			if s.RestartCount > 0 {
				a.collect(ctx, b, piece{file + ".previous.log", false, append(log, "--previous")})
			}
		}
	}
}

// write packs the files, in order.
func (b *bundle) write(w io.Writer, now time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		header := &tar.Header{Name: "quorate-report/" + name, Mode: 0o600, Size: int64(len(b.files[name])),
			ModTime: now,
			Format:  tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(b.files[name]); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
