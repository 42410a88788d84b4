// expandable is the CSI driver behind the lab's StorageClass of that name, whose volumes grow while pods use them. One
// process on every node does all that is done there: it makes a claim's volume when the scheduler has chosen this node,
// mounts it for the kubelet, grows it, and copies it for a VolumeSnapshot. The one with -resize is also the controller
// of the cluster that answers claims which ask for more. Nothing is kept in memory: it may be killed and started again at any time, under running
// pods too.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driver = "expandable.quorate.lab"

	// The kubelet watches the second folder, and calls the socket in the first one that it is told of there. Both are
	// on the node's disk, and so are the volumes.
	folder             = "/var/lib/kubelet/plugins/" + driver
	registrationSocket = "/var/lib/kubelet/plugins_registry/" + driver + "-reg.sock"
	socket             = folder + "/csi.sock"
	volumes            = folder + "/volumes"
)

func main() {
	name := flag.String("node", "", "name of this Kubernetes node")
	kubeconfig := flag.String("kubeconfig", "", "file that tells where the API server is, and who this is")
	resize := flag.Bool("resize", false, "answer claims that ask for more; on one node alone")
	copies := flag.String("snapshots", "", "folder of all nodes for copies of volumes")
	flag.Parse()
	if err := run(context.Background(), *name, *kubeconfig, *copies, *resize); err != nil {
		klog.ErrorS(err, "The driver ends")
		os.Exit(1)
	}
}

func run(ctx context.Context, name, kubeconfig, copies string, resize bool) error {
	if name == "" || copies == "" {
		return errors.New("-node or -snapshots is missing")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200 // the usual 5 requests a second would be what a test waits for
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	taker := snapshotter{client: client, snapshots: objects.Resource(snapshotKind), folder: copies, node: name}
	group, ctx := errgroup.WithContext(ctx)
	if err := serveKubelet(group, name); err != nil {
		return err
	}
	group.Go(func() error { return provision(ctx, client, taker) })
	group.Go(func() error { return taker.run(ctx) })
	if resize {
		group.Go(func() error { return answerGrowth(ctx, client) })
	}
	return group.Wait()
}

// serveKubelet listens for CSI calls, and only then says so to the kubelet, which calls at once.
func serveKubelet(group *errgroup.Group, name string) error {
	calls := grpc.NewServer()
	csi.RegisterIdentityServer(calls, identity{})
	csi.RegisterNodeServer(calls, node{name: name})
	introduction := grpc.NewServer()
	registration.RegisterRegistrationServer(introduction, registrar{})
	for _, s := range []struct {
		path   string
		server *grpc.Server
	}{{socket, calls}, {registrationSocket, introduction}} {
		listener, err := listen(s.path)
		if err != nil {
			return err
		}
		group.Go(func() error { return s.server.Serve(listener) })
	}
	return nil
}

// listen takes the place of a socket that an earlier process left.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// registrar tells the kubelet where the driver is, as a sidecar would.
type registrar struct {
	registration.UnimplementedRegistrationServer
}

func (registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driver, Endpoint: socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.PluginRegistered {
		klog.InfoS("The kubelet knows the driver")
	} else {
		klog.ErrorS(errors.New(s.Error), "The kubelet refuses the driver, and will ask again")
	}
	return &registration.RegistrationStatusResponse{}, nil
}
