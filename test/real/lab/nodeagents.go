//go:build linux

package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

//go:embed conf
var confFiles embed.FS

// conf fills in a template of conf/.
func conf(name string, values any) ([]byte, error) {
	text, err := template.New(name).Option("missingkey=error").ParseFS(confFiles, "conf/"+name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := text.Execute(&out, values); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// writeConf writes the node's configuration files, which are the same at every boot.
func (n node) writeConf() error {
	values := map[string]any{
		"PKI": n.lab.pki(""), "Node": n.String(), "IPs": n.ips(), "PodCIDRs": n.podCIDRs(),
		"PodsCIDRs": strings.Join(n.lab.podsCIDRs(), ","), "DNS": n.lab.dnsServiceIPs(),
		"Everywhere": n.lab.everywhere(), "Pause": pauseVersion,
	}
	for name, target := range map[string]string{
		"containerd.toml": n.path("conf", "containerd.toml"),
		"kubelet.yaml":    n.path("conf", "kubelet.yaml"),
		"kube-proxy.yaml": n.path("conf", "kube-proxy.yaml"),
		"audit.yaml":      n.path("conf", "audit.yaml"),
		"Corefile":        n.path("conf", "Corefile"),
		"cni.conflist":    filepath.Join(n.disk("/etc/cni/net.d"), "10-lab.conflist"),
	} {
		text, err := conf(name, values)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// startContainerd returns when it answers.
func (n node) startContainerd() error {
	if err := n.start("containerd", "containerd", "-c", n.path("conf", "containerd.toml")); err != nil {
		return err
	}
	// Its socket is in the node's own /run, seen from here through /proc.
	pid, err := n.initPID()
	if err != nil {
		return err
	}
	socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", pid)
	return waitFor("containerd on "+n.String(), 30*time.Second, func() error {
		if !n.process("containerd").alive() {
			return fmt.Errorf("it ended; see %s", n.logFile("containerd"))
		}
		if !exists(socket) {
			return fmt.Errorf("no socket yet; see %s", n.logFile("containerd"))
		}
		return nil
	})
}

// load imports image tars.
func (n node) load(tars ...string) error {
	for _, tar := range tars {
		cmd := n.command([]string{"ctr", "-n", "k8s.io", "images", "import", "--local", tar})
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := n.run(cmd); err != nil {
			return fmt.Errorf("importing %s on %s: %w: %s", tar, n, err, lastLines(output.String(), 3))
		}
	}
	return nil
}

func (n node) startKubelet() error {
	return n.start("kubelet", "kubelet", "--config="+n.path("conf", "kubelet.yaml"),
		"--kubeconfig="+n.lab.pki("kubelet-"+n.String()+".kubeconfig"),
		"--hostname-override="+n.String(), "--node-ip="+strings.Join(n.ips(), ","),
		"--node-labels=topology.kubernetes.io/zone=zone-"+fmt.Sprint(n.id), "--root-dir=/var/lib/kubelet")
}

func (n node) startProxy() error {
	return n.start("kube-proxy", "kube-proxy", "--config="+n.path("conf", "kube-proxy.yaml"))
}

// startAddons starts cluster DNS and the volume provisioner. They are plain
// processes of node1, not pods, so that they are there before the first pod.
func (l *lab) startAddons() error {
	n := l.node(1)
	if err := n.start("coredns", "coredns", "-conf", n.path("conf", "Corefile")); err != nil {
		return err
	}
	for _, name := range []string{"local-path.json", "local-path-helper.yaml"} {
		text, err := conf(name, nil)
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.path("conf", name), text, 0o644); err != nil {
			return err
		}
	}
	return n.start("local-path-provisioner", "local-path-provisioner", "start",
		"--config", n.path("conf", "local-path.json"), "--kubeconfig", l.pki("local-path-provisioner.kubeconfig"),
		"--namespace", "local-path-storage", "--helper-pod-file", n.path("conf", "local-path-helper.yaml"),
		"--configmap-name", "local-path-config", "--service-account-name", "local-path-provisioner")
}

// kubectl runs as administrator from the host.
func (l *lab) kubectl(stdin []byte, args ...string) error {
	cmd := l.admin(args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, lastLines(string(output), 5))
	}
	return nil
}

// shows prints what kubectl says, for people who look for why something failed.
func (l *lab) shows(args ...string) {
	cmd := l.admin(args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	_ = cmd.Run() // it says itself what is wrong
}
