package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/internal/kubectl"
)

// TestWithMetacontroller: the own Metacontroller is where Quorate is, serves its CompositeControllers alone, and is
// let in alone.
func TestWithMetacontroller(t *testing.T) {
	without := installed(t)
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
		objects := installed(t, append(strings.Fields(args), "--with-metacontroller")...)
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
		"--with-metacontroller --metacontroller-version=1.5.20": "needs --metacontroller-version=4.16.0 or later",
		"--with-metacontroller --metacontroller-version=4.17":   "needs a whole version",
		"--with-metacontroller --metacontroller-namespace=mc":   "leave out --metacontroller-namespace",
		"--kinds --no-kinds": "leave nothing",
		"--apply --kinds":    "leave out --kinds",
		"--context=prod":     "with --apply only",
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
	all := installed(t, "--with-metacontroller", "--keep", file)
	kinds := installed(t, "--with-metacontroller", "--kinds")
	rest := installed(t, "--with-metacontroller", "--no-kinds", "--keep", file)
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
		return run(t, "", "--with-metacontroller", "--apply", "--context=prod")
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
