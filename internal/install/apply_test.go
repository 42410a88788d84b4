package install

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/internal/kubectl"
)

// TestItsMetacontroller: unless one is named that is there, a Metacontroller comes with Quorate: where Quorate is, for
// its CompositeControllers alone, and let in alone.
func TestItsMetacontroller(t *testing.T) {
	without := installed(t, existing)
	for args, want := range map[string]struct{ namespace, image, version string }{
		"":                     {"quorate-system", "ghcr.io/metacontroller/metacontroller:v4.17.2", "4.17.2"},
		"--namespace=etcd-ops": {"etcd-ops", "ghcr.io/metacontroller/metacontroller:v4.17.2", "4.17.2"},
		"--metacontroller-version=v4.18.0 --registry=registry.example/mirror": {
			"quorate-system", "registry.example/mirror/metacontroller/metacontroller:v4.18.0", "4.18.0",
		},
		"--name=blue --selector=a=b": {
			"quorate-blue", "ghcr.io/metacontroller/metacontroller:v4.17.2", "4.17.2",
		},
	} {
		objects := installed(t, strings.Fields(args)...)
		var d appsv1.Deployment
		require.NoError(t, yaml.UnmarshalStrict([]byte(objects["Deployment/metacontroller"]), &d))
		require.Equal(t, want.namespace, d.Namespace, args)
		require.Equal(t, want.version, d.Labels["app.kubernetes.io/version"], args)
		c := d.Spec.Template.Spec.Containers[0]
		require.Equal(t, want.image, c.Image, args)
		require.Contains(t, c.Args, "--target-label-selector=quorate.dev/installation="+want.namespace, args)
		require.Contains(t, c.Args, "--leader-election")
		for name, document := range objects {
			if strings.HasPrefix(name, "CompositeController/") {
				require.Contains(t, document, "    quorate.dev/installation: "+want.namespace+"\n", name)
			}
			if strings.Contains(name, "RoleBinding/") {
				require.Contains(t, document, "name: metacontroller\n  namespace: "+want.namespace, name)
			}
		}
		var p networkingv1.NetworkPolicy
		require.NoError(t, yaml.UnmarshalStrict([]byte(objects["NetworkPolicy/quorate"]), &p))
		from := p.Spec.Ingress[0].From[0]
		require.Equal(t, map[string]string{"kubernetes.io/metadata.name": want.namespace},
			from.NamespaceSelector.MatchLabels)
		require.Equal(t, map[string]string{"app.kubernetes.io/name": "metacontroller"}, from.PodSelector.MatchLabels)
	}
	require.NotContains(t, without, "Deployment/metacontroller")
	require.NotContains(t, without, "CustomResourceDefinition/compositecontrollers.metacontroller.k8s.io",
		"a Metacontroller that is there has its own")
	require.NotContains(t, without["NetworkPolicy/quorate"], "name: metacontroller\n        podSelector",
		"the labels of its pods are not known")

	for args, says := range map[string]string{
		"--metacontroller-version=1.5.20": "needs --metacontroller-version=4.16.0 or later, not 1.5.20",
		"--metacontroller-version=4.17":   "needs a whole --metacontroller-version",
		"--kinds --no-kinds":              "leave nothing",
		"--apply --kinds":                 "leave out --kinds",
		"--context=prod":                  "with --apply only",
	} {
		refuses(t, says, strings.Fields(args)...)
	}
}

// TestKinds: the kinds alone, all but the kinds, and both, are the same objects; a deletion of the rest deletes no
// kind.
func TestKinds(t *testing.T) {
	secret := installed(t)
	file := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(file, []byte(secret["Secret/quorate-hooks"]), 0o600))
	all := installed(t, "--keep", file)
	kinds := installed(t, "--kinds")
	rest := installed(t, "--no-kinds", "--keep", file)
	require.Len(t, kinds, 8)
	require.Len(t, all, len(kinds)+len(rest))
	for name, document := range all {
		require.Equal(t, document, kinds[name]+rest[name], name)
		require.Equal(t, strings.HasPrefix(name, "CustomResourceDefinition/"), kinds[name] != "", name)
	}
}

// kubectlSaid is a kubectl that writes down how it is called, and what it reads; it has the Secret if the folder has.
const kubectlSaid = `#!/bin/sh
echo "$*" >> "$FOLDER/calls"
case "$1 $2" in
"apply "*) cat >> "$FOLDER/applied" ;;
"get secret") cat "$FOLDER/secret" 2> /dev/null ;;
"version "*) echo "{}" ;;
"get "*) echo '{"items": []}' ;;
esac
exit 0
`

// TestApply: quorate install --apply has kubectl do it all, with the flags that are kubectl's, and keeps the
// credentials that are there. It ends with the checks, and fails with them.
func TestApply(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kubectl"), []byte(kubectlSaid), 0o755))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	t.Setenv("FOLDER", folder)
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		return string(text)
	}
	apply := func() (out, said string, err error) {
		_ = os.Remove(filepath.Join(folder, "applied"))
		return run(t, "", "--apply", "--context=prod")
	}
	out, said, err := apply()
	require.Empty(t, said)
	require.ErrorIs(t, err, kubectl.ErrUnfit, "nothing is there: the checks say so")
	require.Contains(t, out, "nothing was changed", "by the checks")
	for call := range strings.Lines(read("calls")) {
		require.Contains(t, call, "--context=prod")
	}
	first := read("applied")
	require.Less(t, strings.LastIndex(first, "kind: CustomResourceDefinition"), strings.Index(first, "kind: Namespace"))
	_, rest, _ := strings.Cut(first, "kind: Namespace")
	for document := range strings.SplitSeq(rest, "\n---\n") {
		if strings.Contains(document, "name: quorate-hooks\n") && strings.Contains(document, "kind: Secret") {
			require.NoError(t, os.WriteFile(filepath.Join(folder, "secret"), []byte(document), 0o600))
		}
	}
	_, _, err = apply()
	require.ErrorIs(t, err, kubectl.ErrUnfit)
	require.Equal(t, first, read("applied"), "done again, it is the same")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "secret"), []byte("kind: Secret\n"), 0o600))
	_, _, err = apply()
	require.ErrorContains(t, err,
		"the Secret quorate-system/quorate-hooks, which is there, can't be kept: it holds no tokens; delete it")
}

// TestSizes: what an installation has room for is what the flags say, and without them what the manifests have.
func TestSizes(t *testing.T) {
	plain := installed(t)
	objects := installed(t, "--replicas=4", "--memory=512Mi", "--metacontroller-workers=100", "--metacontroller-qps=1000",
		"--metacontroller-memory=4Gi")
	for name, want := range map[string][]string{
		"Deployment/quorate": {"replicas: 4\n", "memory: 512Mi\n"},
		"Deployment/metacontroller": {"--workers=100\n", "--client-go-qps=1000\n", "--client-go-burst=2000\n",
			"memory: 4Gi\n"},
	} {
		for _, text := range want {
			require.Contains(t, objects[name], text)
			require.NotContains(t, plain[name], text)
		}
		for _, o := range []string{objects[name], plain[name]} {
			require.Contains(t, o, "value: $(MEMORY_LIMIT_MIB)000000\n", "Go's limit follows that of the container")
		}
	}
	require.Contains(t, installed(t, existing, "--memory=1Gi")["Deployment/quorate"], "memory: 1Gi\n")
	for args, says := range map[string]string{
		"--replicas=0":                            "must be 1 or more",
		"--metacontroller-qps=-1":                 "must be 1 or more",
		"--memory=512MB":                          "--memory must be a quantity such as 512Mi",
		"--metacontroller-memory=1Mi":             "and 64Mi or more",
		existing + " --metacontroller-workers=50": "are for the Metacontroller that is installed with Quorate",
	} {
		refuses(t, says, strings.Fields(args)...)
	}
}

// TestSizesOfThePage: what docs/how-to/size.md says without flags is what is installed then, and each row of flags
// can be installed.
func TestSizesOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/how-to/size.md")
	require.NoError(t, err)
	s := usual()
	require.Contains(t, string(text), fmt.Sprintf("| no flags: %d replicas of Quorate, %s; Metacontroller %d workers, "+
		"%d requests/s, %s |", s.replicas, s.memory, s.its.workers, s.its.qps, s.its.memory))
	rows := regexp.MustCompile("`((?:--[a-z-]+=\\w+ ?)+)`").FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(rows), 5)
	for _, row := range rows {
		if strings.Contains(row[1], "--keys") { // of kubectl quorate size
			continue
		}
		_, _, err := run(t, "", strings.Fields(row[1])...)
		require.NoError(t, err, row[1])
	}
}
