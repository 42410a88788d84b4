package rescue

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/hooks/objects"
)

const (
	mount = "/var/lib/etcd"
	// certificates is the directory, in the member's, of what the static pod shows and trusts.
	certificates = "rescue"
)

type order struct {
	dir, image, manifests string
	caCert, caKey         string
}

func (o *order) flags(flags *flag.FlagSet) {
	flags.StringVar(&o.image, "image", "", "`image` of etcd that the members ran, which is on this node; required")
	flags.StringVar(&o.manifests, "manifests", "/etc/kubernetes/manifests", "`directory` of the kubelet's static pods")
	flags.StringVar(&o.caCert, "ca-cert", "/etc/kubernetes/pki/etcd/ca.crt", "`file` of the members' authority")
	flags.StringVar(&o.caKey, "ca-key", "/etc/kubernetes/pki/etcd/ca.key", "`file` of its key")
}

func start(args []string, stdout, stderr io.Writer) error {
	var o order
	flags := flag.NewFlagSet("quorate-snapshot rescue start", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dir, "dir", "", "`directory` of the member, as list prints it; required")
	o.flags(flags)
	if err := command.Parse(flags, args); err != nil {
		return err
	}
	if o.dir == "" || o.image == "" {
		return errors.New("--dir and --image are required: list prints the directories, and the image is the one in " +
			"the pods of the EtcdCluster, such as gcr.io/etcd-development/etcd:v3.6.16")
	}
	m := read(filepath.Clean(o.dir))
	if m.err != nil {
		return fmt.Errorf("%s can't be started: %w", m.name, m.err)
	}
	own, listed := m.own()
	if !listed || own.Name != m.name {
		return fmt.Errorf("%s can't be started: its own data does not list it as a member", m.name)
	}
	at, err := addressesOf(own.PeerURLs, own.ClientURLs)
	if err != nil {
		return fmt.Errorf("%s can't be started: %w", m.name, err)
	}
	if at.tls {
		if err := o.certify(m, at); err != nil {
			return err
		}
	}
	file, err := o.write(m, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s will run as the static pod rescue-%s. Do the same on the other nodes.\nWhen the API "+
		"server answers, on one node after the other: rm -r %s %s, and wait until the EtcdCluster shows that %s is "+
		"ready.\n", m.name, m.name, file, filepath.Join(m.dir, certificates), m.name)
	return nil
}

// write writes the static pod of a member, and says where.
func (o order) write(m member, at place) (file string, err error) {
	file = filepath.Join(o.manifests, "rescue-"+m.name+".yaml")
	text, err := yaml.Marshal(pod(m, at, o.image))
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("the static pod can't be written to %s: %w", o.manifests, cause(err))
	}
	return file, nil
}

// place is where a member listens and is reached.
type place struct {
	address              string
	peerURL, clientURL   string
	peerPort, clientPort string
	tls                  bool
}

// addressesOf reads that from the member's own URLs: those of a member on the hosts' network have an IP address.
func addressesOf(peers, clients []string) (place, error) {
	errElse := errors.New("it is not on the hosts' network (spec.hostNetwork): without Kubernetes its address leads " +
		"nowhere")
	if len(peers) != 1 || len(clients) != 1 {
		return place{}, errElse
	}
	peer, errPeer := url.Parse(peers[0])
	client, errClient := url.Parse(clients[0])
	if errPeer != nil || errClient != nil || objects.AddressIn(peers[0]) == "" {
		return place{}, errElse
	}
	if client.Hostname() != peer.Hostname() || (client.Scheme == "https") != (peer.Scheme == "https") {
		return place{}, errElse
	}
	return place{address: peer.Hostname(), peerURL: peers[0], clientURL: clients[0], peerPort: peer.Port(),
		clientPort: client.Port(), tls: peer.Scheme == "https"}, nil
}

var ordinal = regexp.MustCompile(`-[0-9]+$`)

// cluster that a member is of, by its name.
func cluster(member string) string { return ordinal.ReplaceAllString(member, "") }

// pod is the static pod of a member: the same data directory, name, addresses and user as in the pod that Quorate
// made, so that the two can never run at the same time.
func pod(m member, at place, image string) *corev1.Pod {
	listen := func(port string) string {
		scheme, _, _ := strings.Cut(at.peerURL, "://")
		return scheme + "://" + net.JoinHostPort(objects.AnyAddress(at.address), port)
	}
	flags := []string{"/usr/local/bin/etcd", "--name=" + m.name, "--data-dir=" + mount + "/data",
		"--initial-cluster-state=existing", // it begins nothing if the directory is empty
		"--listen-client-urls=" + listen(at.clientPort), "--advertise-client-urls=" + at.clientURL,
		"--listen-peer-urls=" + listen(at.peerPort), "--initial-advertise-peer-urls=" + at.peerURL}
	if at.tls {
		dir := mount + "/" + certificates
		flags = append(flags, "--trusted-ca-file="+dir+"/ca.crt", "--client-cert-auth=true",
			"--cert-file="+dir+"/server.crt", "--key-file="+dir+"/server.key",
			"--peer-trusted-ca-file="+dir+"/ca.crt", "--peer-client-cert-auth=true",
			"--peer-cert-file="+dir+"/peer.crt", "--peer-key-file="+dir+"/peer.key")
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "rescue-" + m.name, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"app.kubernetes.io/name": "etcd-rescue"}},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", SecurityContext: objects.PodSecurity(nil),
			Containers: []corev1.Container{{Name: objects.ContainerEtcd, Image: image,
				ImagePullPolicy: corev1.PullIfNotPresent, Command: flags, SecurityContext: objects.Restricted(),
				VolumeMounts: []corev1.VolumeMount{{Name: "member", MountPath: mount}}}},
			Volumes: []corev1.Volume{{Name: "member", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: m.dir, Type: new(corev1.HostPathDirectory)}}}},
		},
	}
}
