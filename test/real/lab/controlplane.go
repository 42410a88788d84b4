//go:build linux

package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const nodeAPIPort = 6443 // of the API server, inside node1

// startAPIServer starts the cluster's own etcd and the API server, which waits
// for it. They are on node1; etcd does not sync to disk, as nothing of it needs
// to outlive the machine.
func (l *lab) startAPIServer() error {
	n := l.node(1)
	if len(l.etcdServers) == 0 {
		if err := n.start("etcd", l.etcdArgs()...); err != nil {
			return err
		}
	}
	return n.startAPIServer(l.etcdServers)
}

// apiServerProcesses are the API server, and the lab's own etcd while that has its data.
func (l *lab) apiServerProcesses() []string {
	if len(l.etcdServers) > 0 {
		return []string{"kube-apiserver"}
	}
	return []string{"etcd", "kube-apiserver"}
}

// moveAPIServer restarts the API server with its data elsewhere: at these URLs of an etcd that has it. The lab's own
// etcd goes on until it is stopped.
func moveAPIServer(l *lab, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: lab etcd-servers URL...")
	}
	s, err := l.running()
	if err != nil {
		return err
	}
	s.EtcdServers, l.etcdServers = args, args
	if err := os.WriteFile(l.shapeFile(), encode(s), 0o644); err != nil {
		return err
	}
	if err := l.node(1).startAPIServer(args); err != nil {
		return err
	}
	return l.awaitAPIServer()
}

// startAPIServer starts an API server with its data at these URLs, in the place of the one that may run there. On
// another node than the first it is one more, as where a Kubernetes has several nodes for its control plane.
func (n node) startAPIServer(etcdServers []string) error {
	if n.process("kube-apiserver").alive() {
		if err := n.stop("kube-apiserver", unix.SIGKILL); err != nil { // else it waits for its watchers
			return err
		}
	}
	return n.start("kube-apiserver", n.apiServerArgs(etcdServers)...)
}

// startManagers starts what acts on the API's objects.
func (l *lab) startManagers() error {
	n := l.node(1)
	if err := n.start("kube-controller-manager", l.controllerManagerArgs()...); err != nil {
		return err
	}
	return n.start("kube-scheduler", l.schedulerArgs()...)
}

func (l *lab) etcdArgs() []string {
	client, peer := "https://"+l.node(1).at(2379), "https://"+l.node(1).at(2380)
	return []string{
		filepath.Join(l.bin, "etcd-"+cmp.Or(os.Getenv("QUORATE_LAB_ETCD"), controlPlaneEtcd), "etcd"),
		"--name=control-plane", "--data-dir=" + l.node(1).disk("etcd"),
		"--listen-client-urls=https://127.0.0.1:2379," + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=control-plane=" + peer,
		"--cert-file=" + l.pki("etcd-server.crt"), "--key-file=" + l.pki("etcd-server.key"),
		"--trusted-ca-file=" + l.pki("etcd-ca.crt"), "--client-cert-auth",
		"--peer-cert-file=" + l.pki("etcd-peer.crt"), "--peer-key-file=" + l.pki("etcd-peer.key"),
		"--peer-trusted-ca-file=" + l.pki("etcd-ca.crt"), "--peer-client-cert-auth",
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

func (n node) apiServerArgs(etcdServers []string) []string {
	l, servers := n.lab, strings.Join(etcdServers, ",")
	return []string{
		"kube-apiserver",
		"--etcd-servers=" + cmp.Or(servers, "https://127.0.0.1:2379"), "--etcd-cafile=" + l.pki("etcd-ca.crt"),
		"--etcd-certfile=" + l.pki("apiserver-etcd-client.crt"), "--etcd-keyfile=" + l.pki("apiserver-etcd-client.key"),
		"--bind-address=" + l.everywhere()[0], "--secure-port=" + strconv.Itoa(nodeAPIPort),
		"--advertise-address=" + n.ip(),
		"--service-cluster-ip-range=" + strings.Join(l.serviceCIDRs(), ","),
		"--allow-privileged=true", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + l.pki("ca.crt"),
		"--tls-cert-file=" + l.pki("apiserver.crt"), "--tls-private-key-file=" + l.pki("apiserver.key"),
		"--kubelet-client-certificate=" + l.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + l.pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + l.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.lab.internal",
		"--service-account-key-file=" + l.pki("sa.pub"), "--service-account-signing-key-file=" + l.pki("sa.key"),
		"--requestheader-client-ca-file=" + l.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + l.pki("front-proxy-client.key"),
		"--audit-policy-file=" + l.node(1).path("conf", "audit.yaml"), "--audit-log-path=" + n.path("audit.log"),
		"--audit-log-maxsize=1000", "--audit-log-maxbackup=1",
	}
}

// auditLog has a line for each request of a service account outside kube-system.
func (l *lab) auditLog() string { return l.node(1).path("audit.log") }

func (l *lab) controllerManagerArgs() []string {
	return append(l.asUser("kube-controller-manager"),
		"--use-service-account-credentials=true",
		// At start it makes an account and a token for each controller; the
		// usual 20 requests a second would take 4 s over that.
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--root-ca-file="+l.pki("ca.crt"), "--client-ca-file="+l.pki("ca.crt"),
		"--requestheader-client-ca-file="+l.pki("front-proxy-ca.crt"),
		"--service-account-private-key-file="+l.pki("sa.key"),
		"--cluster-signing-cert-file="+l.pki("ca.crt"), "--cluster-signing-key-file="+l.pki("ca.key"),
		"--allocate-node-cidrs=false", // each node's bridge plugin has its range in its own file
	)
}

func (l *lab) schedulerArgs() []string { return l.asUser("kube-scheduler") }

// asUser is how both managers are told who they are. There is one of each, so
// they need not elect a leader, which costs 2 s at start and up to 15 s after
// a kill.
func (l *lab) asUser(name string) []string {
	config := l.pki(name + ".kubeconfig")
	return []string{
		name, "--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false",
	}
}
