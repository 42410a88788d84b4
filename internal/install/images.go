package install

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/manifests"
)

// images say where the images of an installation come from. What is empty is as the manifests have it.
type images struct {
	registry string // before every image that is not named by itself
	quorate  string
	etcd     string // a repository: the tag is the version of a cluster
}

func (i *images) flags(flags *flag.FlagSet) {
	flags.StringVar(&i.registry, "registry", "",
		"`registry` that has all images, such as registry.example/mirror, each under its name without its own registry")
	flags.StringVar(&i.quorate, "image", "", "`image` of Quorate; empty for the one of this release")
	flags.StringVar(&i.etcd, "etcd-repository", "",
		"`repository` of etcd's image, without a tag, for EtcdClusters that do not name one; empty for that of etcd's "+
			"own project")
}

// check finds what no image could be pulled by. Members would wait for it, one after the other.
func (i *images) check() error {
	for name, value := range map[string]string{"registry": i.registry, "image": i.quorate, "etcd-repository": i.etcd} {
		if strings.Contains(value, "://") || strings.ContainsAny(value, " \t\n") || strings.HasSuffix(value, "/") {
			return fmt.Errorf("--%s must be as in the name of an image: no https://, no blanks, no slash at its end: "+
				"%q", name, value)
		}
	}
	if _, tag, _ := strings.Cut(i.etcd[strings.LastIndex(i.etcd, "/")+1:], ":"); tag != "" ||
		strings.Contains(i.etcd, "@") {
		return fmt.Errorf("--etcd-repository takes no tag: the tag is v and the version of an EtcdCluster: %q", i.etcd)
	}
	return nil
}

// CheckImages finds by which names no image could be pulled: that of Quorate, and the repository of etcd's.
func CheckImages(quorate, etcd string) error { return (&images{quorate: quorate, etcd: etcd}).check() }

// mirrored is an image of the manifests as the registry has it: all of its name but its own registry.
func (i *images) mirrored(image string) string {
	if i.registry == "" {
		return image
	}
	return i.registry + image[strings.Index(image, "/"):]
}

func (i *images) ofQuorate(image string) string { return cmp.Or(i.quorate, i.mirrored(image)) }

func (i *images) ofEtcd(repository string) string { return cmp.Or(i.etcd, i.mirrored(repository)) }

// ListImages is the command quorate images. It prints every image that an installation pulls, one in a line:
// Quorate's, etcd's in the newest release of each minor version that is supported, and Metacontroller's.
func ListImages(args []string, stdout, stderr io.Writer) error {
	var i images
	flags := flag.NewFlagSet("quorate images", flag.ContinueOnError)
	flags.SetOutput(stderr)
	i.flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if err := i.check(); err != nil {
		return err
	}
	quorate, err := imageInManifests()
	if err != nil {
		return err
	}
	metacontroller, err := shippedMetacontroller()
	if err != nil {
		return err
	}
	all := []string{i.ofQuorate(quorate)}
	for _, version := range facts.NewestReleases() {
		all = append(all, i.ofEtcd(objects.DefaultEtcdRepository)+":v"+version)
	}
	for _, image := range append(all, i.mirrored(metacontroller.image+":v"+metacontroller.version)) {
		fmt.Fprintln(stdout, image)
	}
	return nil
}

// imageInManifests is Quorate's, of the Deployment.
func imageInManifests() (string, error) {
	objects, err := manifestObjects(manifests.Base)
	if err != nil {
		return "", err
	}
	n := slices.IndexFunc(objects, func(o object) bool { return o["kind"] == "Deployment" })
	if n < 0 {
		return "", errors.New("the manifests have no Deployment")
	}
	return at(objects[n], "spec", "template", "spec")["containers"].([]any)[0].(object)["image"].(string), nil
}

// metacontroller is a release of it.
type metacontroller struct{ image, version string }

// shippedMetacontroller is the one that manifests/metacontroller names, and that the tests run with.
func shippedMetacontroller() (metacontroller, error) {
	k, err := readKustomization(manifests.Metacontroller)
	if err != nil || len(k.Images) != 1 {
		return metacontroller{}, fmt.Errorf("manifests/%s/kustomization.yaml names %d images, not 1: %w",
			manifests.Metacontroller, len(k.Images), err)
	}
	return metacontroller{k.Images[0].Name, strings.TrimPrefix(k.Images[0].NewTag, "v")}, nil
}
