//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// shape is what a running lab was asked to be.
type shape struct {
	Name    string
	Nodes   int
	APIPort int
	IP      families
	// EtcdServers are the URLs that the API server has its data at; none for those of the lab's own etcd.
	EtcdServers []string `json:",omitempty"`
}

func (l *lab) shapeFile() string { return filepath.Join(l.run, "lab.json") }

// running reads the shape of the lab in the run folder, and takes over its
// number of nodes. Without one it returns an error that says what to do.
func (l *lab) running() (shape, error) {
	var s shape
	text, err := os.ReadFile(l.shapeFile())
	if err != nil {
		return s, fmt.Errorf("no lab runs in %s; start it: go run -C test/real/lab . up", l.run)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", l.shapeFile(), err)
	}
	l.name, l.nodes, l.apiPort, l.etcdServers = s.Name, s.Nodes, s.APIPort, s.EtcdServers
	l.families = cmp.Or(s.IP, v4)
	return s, nil
}

// up starts a lab, unless it runs.
func up(l *lab, _ []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	if strings.HasPrefix(l.run+"/", "/run/") {
		return fmt.Errorf("%s: a node has a /run of its own and would not see it; choose another QUORATE_LAB_RUN",
			l.run)
	}
	unlock, err := l.lockRun()
	if err != nil {
		return err
	}
	defer unlock()
	if done, err := l.upAlready(); done || err != nil {
		return err
	}
	if l.nodes == 0 {
		l.nodes = 1
	}
	if !l.upToDate() || len(missingOf(debianPackages)) > 0 {
		if err := l.build(nil); err != nil {
			return err
		}
	}
	if err := l.startAll(); err != nil {
		return fmt.Errorf("%w\nthe logs are in %s; `lab down` ends what did start", err, l.run)
	}
	fmt.Println("export KUBECONFIG=" + l.kubeconfig())
	return nil
}

func (l *lab) lockRun() (func(), error) { return lock(l.run + ".lock") }

// upAlready says whether the lab that is wanted runs. One that is half dead is
// taken down; one of another shape is left to its users.
func (l *lab) upAlready() (bool, error) {
	wanted := *l
	if _, err := l.running(); err != nil {
		if exists(l.run) {
			return false, l.down(false) // the rest of an `up` that broke off
		}
		return false, nil
	}
	if why := l.broken(); why != nil {
		fmt.Fprintf(os.Stderr, "the lab in %s is broken (%v): starting it afresh\n", l.run, why)
		err := l.down(false)
		*l = wanted
		return false, err
	}
	if wanted.nodes != 0 && wanted.nodes != l.nodes || wanted.apiPort != l.apiPort || wanted.name != l.name ||
		wanted.families != l.families {
		return false, fmt.Errorf("a lab called %s with %d node(s), port %d and the IP addresses %s runs in %s; `lab down` first, or choose another QUORATE_LAB_RUN, QUORATE_LAB_NAME and QUORATE_LAB_API_PORT",
			l.name, l.nodes, l.apiPort, l.families, l.run)
	}
	fmt.Fprintf(os.Stderr, "the lab runs already, with %d node(s)\n", l.nodes)
	fmt.Println("export KUBECONFIG=" + l.kubeconfig())
	return true, nil
}

// broken says what of a lab does not live.
func (l *lab) broken() error {
	for id := 0; id <= l.nodes; id++ {
		n := l.node(id)
		if !n.poweredOn() {
			return fmt.Errorf("%s is not running", n)
		}
		for _, name := range n.ownProcesses() {
			if !n.process(name).alive() {
				return fmt.Errorf("%s on %s has ended", name, n)
			}
		}
	}
	client, err := l.newAPIClient()
	if err != nil {
		return err
	}
	return client.ready()
}

// ownProcesses are those that the lab itself starts on a node.
func (n node) ownProcesses() []string {
	switch n.id {
	case 0:
		return nil
	case 1:
		return append(n.lab.apiServerProcesses(), "kube-controller-manager", "kube-scheduler",
			"containerd", "kubelet", "kube-proxy", "coredns", "local-path-provisioner")
	default:
		return []string{"containerd", "kubelet", "kube-proxy"}
	}
}

// startAll is the start itself. Its critical path is the API server's start;
// everything else is done beside it.
func (l *lab) startAll() error {
	say := stopwatch()
	if err := l.prepare(); err != nil {
		return err
	}
	nodes := l.allNodes()
	if err := all(
		l.writeKeys,
		func() error { return l.startSwitch() },
		func() error { return each(nodes, node.boot) },
	); err != nil {
		return err
	}
	if err := each(nodes, node.plugIn); err != nil {
		return err
	}
	say("%d node(s) booted", len(nodes))
	api := milestone{done: make(chan struct{})}
	err := all(
		func() error {
			err := l.startControlPlane()
			api.reach(err == nil)
			if err == nil {
				say("API server ready")
			}
			return err
		},
		func() error {
			if !api.await() {
				return nil
			}
			return l.applyBase()
		},
		func() error {
			return each(nodes, func(n node) error {
				if err := n.startContainerd(); err != nil {
					return err
				}
				return all(
					n.loadImages,
					func() error {
						if !api.await() {
							return nil
						}
						return n.startAgents()
					},
				)
			})
		},
	)
	if err != nil {
		return err
	}
	if err := l.awaitNodes(nodes); err != nil {
		return err
	}
	say("all nodes Ready")
	return nil
}

// prepare makes the run folder, which must not be there.
func (l *lab) prepare() error {
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	if pids := groups.processes(l.name); len(pids) > 0 {
		return fmt.Errorf("the control group %s has processes (%d and others), of another lab: choose another "+
			"QUORATE_LAB_NAME", l.name, pids[0])
	}
	for id := 0; id <= l.nodes; id++ {
		if err := os.MkdirAll(l.node(id).path(), 0o755); err != nil {
			return err
		}
	}
	s := shape{Name: l.name, Nodes: l.nodes, APIPort: l.apiPort, IP: l.families}
	if err := os.WriteFile(l.shapeFile(), encode(s), 0o644); err != nil {
		return err
	}
	// First of all, as it is what fails when the port is taken.
	if err := l.startForwarder(); err != nil {
		return err
	}
	return l.holdSysctls()
}

func (l *lab) writeKeys() error {
	nodes := map[string][]string{}
	for _, n := range l.allNodes() {
		nodes[n.String()] = n.ips()
	}
	if err := writePKI(l.pki(""), "https://"+l.node(1).at(nodeAPIPort), l.apiServiceIPs(), nodes,
		append(l.node(1).ips(), "localhost", "127.0.0.1")); err != nil {
		return err
	}
	// For the host: the same user, at the forwarder's address.
	inside, err := os.ReadFile(l.pki("admin.kubeconfig"))
	if err != nil {
		return err
	}
	outside := strings.Replace(string(inside), l.node(1).at(nodeAPIPort), l.hostAddress(), 1)
	return os.WriteFile(l.kubeconfig(), []byte(outside), 0o600)
}

// startControlPlane returns when the API server is ready and the managers run.
func (l *lab) startControlPlane() error {
	return inOrder(l.startAPIServer, l.awaitAPIServer, l.startManagers)
}

func (l *lab) awaitAPIServer() error {
	client, err := l.newAPIClient()
	if err != nil {
		return err
	}
	n := l.node(1)
	return waitFor("the API server", 90*time.Second, func() error {
		for _, name := range l.apiServerProcesses() {
			if !n.process(name).alive() {
				return fmt.Errorf("%s has ended; see %s", name, n.logFile(name))
			}
		}
		return client.ready()
	})
}

func (l *lab) applyBase() error {
	text, err := conf("base.yaml", map[string]any{"DNS": l.dnsServiceIPs(), "Families": l.families.names(),
		"IPs": l.node(1).ips()})
	if err != nil {
		return err
	}
	if err := l.kubectl(text, "apply", "--validate=false", "-f", "-"); err != nil {
		return err
	}
	return l.startAddons()
}

// startAgents starts what makes a node out of a machine with containerd.
func (n node) startAgents() error {
	return inOrder(n.startKubelet, n.startProxy)
}

// loadImages imports what a pod may want. An import waits for the disk more
// than for a processor, so it is done while the API server starts.
func (n node) loadImages() error {
	images, err := n.lab.labImages()
	if err != nil {
		return err
	}
	var tars []string
	for _, i := range images {
		if !i.optional {
			tars = append(tars, n.lab.tarOf(i))
		}
	}
	return n.load(tars...)
}

func (l *lab) awaitNodes(nodes []node) error {
	client, err := l.newAPIClient()
	if err != nil {
		return err
	}
	if err := each(nodes, func(n node) error {
		return waitFor(n.String()+" to be Ready", 90*time.Second, func() error {
			if !n.process("kubelet").alive() {
				return fmt.Errorf("kubelet has ended; see %s", n.logFile("kubelet"))
			}
			return client.nodeReady(n.String())
		})
	}); err != nil {
		return err
	}
	// The first pod of a namespace needs its service account.
	return waitFor("the default service account", 30*time.Second, func() error {
		_, err := client.get("/api/v1/namespaces/default/serviceaccounts/default")
		return err
	})
}

func (l *lab) allNodes() []node {
	var nodes []node
	for id := 1; id <= l.nodes; id++ {
		nodes = append(nodes, l.node(id))
	}
	return nodes
}

// milestone lets some parts of the start wait for another. Those that wait for
// one that failed have nothing to add: it reports its error itself.
type milestone struct {
	done    chan struct{}
	reached bool
}

func (m *milestone) reach(ok bool) { m.reached = ok; close(m.done) }
func (m *milestone) await() bool   { <-m.done; return m.reached }

// inOrder runs its steps one after the other, until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// all runs its parts at the same time and returns all their errors.
func all(parts ...func() error) error {
	errs := make([]error, len(parts))
	var wait sync.WaitGroup
	for i, part := range parts {
		wait.Go(func() { errs[i] = part() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func each(nodes []node, do func(node) error) error {
	var parts []func() error
	for _, n := range nodes {
		parts = append(parts, func() error { return do(n) })
	}
	return all(parts...)
}

// stopwatch says things with the seconds since it was made.
func stopwatch() func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%4.1f s] %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// powerOn boots a node that was powered off, with what is on its disk. What was
// in memory, such as emptyDirs of medium Memory, is gone, and so are processes
// that were started by `lab start`.
func (n node) powerOn() error {
	if n.poweredOn() {
		return fmt.Errorf("%s runs", n)
	}
	// Its network went with its power, but the kernel may take its time over that.
	n.lab.netSwitch().setNetwork("link del " + n.port())
	steps := []func() error{n.boot, n.plugIn}
	// Its API server can't run before an etcd does that may be on this node: who starts that starts it `again`.
	selfHosted := len(n.lab.etcdServers) > 0
	if n.id == 1 && !selfHosted {
		steps = append(steps, n.lab.startControlPlane, n.lab.startAddons)
	}
	steps = append(steps, n.startContainerd, n.startAgents)
	if !selfHosted {
		steps = append(steps, func() error { return n.lab.awaitNodes([]node{n}) })
	}
	if !selfHosted && n.lab.hasExpandable() {
		steps = append(steps, n.installExpandable)
	}
	return inOrder(steps...)
}

func downCommand(l *lab, _ []string) error {
	if err := needRoot(); err != nil {
		return err
	}
	unlock, err := l.lockRun()
	if err != nil {
		return err
	}
	defer unlock()
	if !exists(l.run) {
		fmt.Println("no lab runs")
		return nil
	}
	l.running() // a folder without a shape is cleared as well as can be
	if err := l.down(os.Getenv("KEEP") != ""); err != nil {
		return err
	}
	fmt.Println("down")
	return nil
}

// down ends everything and verifies that nothing is left.
func (l *lab) down(keepFolder bool) error {
	networks := l.networkNamespaces()
	l.endProcesses()
	left := l.awaitGone(networks)
	if left == nil {
		left = l.clearMachine()
	}
	if left != nil {
		return fmt.Errorf("the lab in %s is not wholly down: %w", l.run, left)
	}
	if keepFolder {
		// Without its shape the folder counts as no lab, and the next up clears it.
		return os.Remove(l.shapeFile())
	}
	return os.RemoveAll(l.run)
}

// endProcesses kills the forwarder, and of each node the first process: the
// kernel ends the rest with it.
func (l *lab) endProcesses() {
	files, _ := filepath.Glob(filepath.Join(l.run, "*", "init.json"))
	for _, file := range append(files, l.forwarderFile()) {
		if p := readProcess(file); p.alive() {
			unix.Kill(p.PID, unix.SIGKILL)
		}
	}
}

// awaitGone waits until no process is left in the lab's groups or networks.
func (l *lab) awaitGone(networks map[string]bool) error {
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	return waitFor("all processes to end", powerOffTime, func() error {
		pids := append(groups.processes(l.name), processesIn(networks)...)
		if len(pids) == 0 {
			return nil
		}
		return fmt.Errorf("still there: %s", describe(pids))
	})
}

func (l *lab) clearMachine() error {
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	return errors.Join(groups.remove(l.name), l.releaseSysctls(), l.leftMounts())
}

// leftMounts: the nodes' mounts are private to them, so there should be none.
func (l *lab) leftMounts() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, l.run+"/") {
			return fmt.Errorf("still mounted: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// networkNamespaces are those of the nodes that run, as "net:[4026531840]".
func (l *lab) networkNamespaces() map[string]bool {
	networks := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(l.run, "*", "init.json"))
	for _, file := range files {
		if p := readProcess(file); p.alive() {
			if name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID)); err == nil {
				networks[name] = true
			}
		}
	}
	return networks
}

// processesIn finds also those that someone started there by other means.
func processesIn(networks map[string]bool) []int {
	var pids []int
	links, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && networks[name] {
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func describe(pids []int) string {
	var names []string
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		names = append(names, fmt.Sprintf("%d (%s)", pid, strings.TrimSpace(string(name))))
	}
	return strings.Join(names, ", ")
}
