package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func needRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return errors.New("a lab makes namespaces and control groups, which needs root.\n" + ownCluster)
}

// onNode makes a command out of one that is about a node of the running lab.
func onNode(least int, usage string, do func(n node, args []string) error) func(*lab, []string) error {
	return func(l *lab, args []string) error {
		if len(args) < least+1 {
			return fmt.Errorf("usage: lab %s", usage)
		}
		if err := needRoot(); err != nil {
			return err
		}
		if _, err := l.running(); err != nil {
			return err
		}
		id, err := strconv.Atoi(strings.TrimPrefix(args[0], "node"))
		if err != nil || id < 1 || id > l.nodes {
			return fmt.Errorf("node %s: there are nodes 1 to %d", args[0], l.nodes)
		}
		return do(l.node(id), args[1:])
	}
}

func init() {
	commands = append(commands, []labCommand{
		{"up", "", "start the lab, building what is missing; NODES=1..9", up},
		{"down", "", "end it and leave nothing behind; KEEP=1 keeps its folder with the logs", downCommand},
		{"env", "", "shell exports: KUBECONFIG, PATH, and QUORATE_* for tests", printEnv},
		{"ps", "", "processes of the nodes, and their memory", ps},
		{"metacontroller", "[image]", "install Metacontroller into the cluster, or only load its image; the README " +
			"says which release", installMetacontroller},
		{"etcd", "", "load the images of every release of etcd, building what is missing", loadReleases},
		{"etcd-servers", "URL...", "restart the API server with its data at an etcd that has it", moveAPIServer},
		{"api-server", "N URL...", "start another API server on node N, with its data there",
			onNode(1, "api-server N URL...", node.startAPIServer)},
		{"cert-manager", "", "install cert-manager into the cluster, building it if need be", installCertManager},
		{"expandable", "", "give the cluster a StorageClass whose volumes grow, building its driver if need be",
			installExpandable},
		{"load", "TAR...", "import image tars on every node", load},
		{"exec", "N CMD...", "run a command on node N", onNode(1, "exec N CMD...", execOn)},
		{"start", "N NAME CMD...", "start a process on node N, in the background", onNode(2, "start N NAME CMD...",
			func(n node, args []string) error { return n.start(args[0], args[1:]...) })},
		{"stop", "N NAME [SIGNAL]", "stop a process: TERM, or KILL, STOP, CONT, ...",
			onNode(1, "stop N NAME [SIGNAL]", stopOn)},
		{"again", "N NAME", "start it again with the same command",
			onNode(1, "again N NAME", func(n node, args []string) error { return n.again(args[0]) })},
		{"logs", "N NAME", "print its log", onNode(1, "logs N NAME", printLog)},
		{"poweroff", "N", "end node N at once",
			onNode(0, "poweroff N", func(n node, _ []string) error { return n.powerOff() })},
		{"poweron", "N", "start it again with its disk",
			onNode(0, "poweron N", func(n node, _ []string) error { return n.powerOn() })},
		{"node-init", "", "", nodeInit},
		{"forward", "", "", forward},
	}...)
}

// printEnv is for eval.
func printEnv(l *lab, _ []string) error {
	if _, err := l.running(); err != nil {
		return err
	}
	pid, err := l.node(1).initPID()
	if err != nil {
		return err
	}
	m, err := l.chooseMetacontroller()
	if err != nil {
		return err
	}
	for _, v := range [][2]string{
		{"KUBECONFIG", l.kubeconfig()},
		{"KUBECACHEDIR", l.kinds()},
		{"QUORATE_LAB_NETNS", fmt.Sprintf("/proc/%d/ns/net", pid)},
		{"QUORATE_LAB_BIN", l.bin},
		{"QUORATE_LAB_AUDIT", l.auditLog()},
		{"QUORATE_LAB_IP", string(l.families)},
		{"QUORATE_METACONTROLLER_VERSION", m.version},
	} {
		fmt.Printf("export %s=%s\n", v[0], quote(v[1]))
	}
	fmt.Printf("export PATH=%s:\"$PATH\"\n", quote(l.bin))
	return nil
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func execOn(n node, args []string) error {
	cmd := n.command(args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Ctrl-C reaches the command from the terminal; its end is awaited here.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	err := n.run(cmd)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exitCode(exit.ExitCode())
	}
	return err
}

func stopOn(n node, args []string) error {
	signal := unix.SIGTERM
	if len(args) > 1 {
		name := "SIG" + strings.TrimPrefix(strings.ToUpper(args[1]), "SIG")
		if signal = unix.SignalNum(name); signal == 0 {
			return fmt.Errorf("there is no signal %s", args[1])
		}
	}
	return n.stop(args[0], signal)
}

func printLog(n node, args []string) error {
	file, err := os.Open(n.logFile(args[0]))
	if err != nil {
		return fmt.Errorf("nothing called %s was started on %s (%w); see lab ps", args[0], n, err)
	}
	defer file.Close()
	_, err = io.Copy(os.Stdout, file)
	return err
}

func load(l *lab, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: lab load TAR...")
	}
	if _, err := l.running(); err != nil {
		return err
	}
	var tars []string
	for _, arg := range args {
		tar, err := filepath.Abs(arg)
		if err != nil {
			return err
		}
		tars = append(tars, tar)
	}
	return l.loadOn(tars...)
}

// loadReleases is for those who upgrade: `up` loads one release alone.
func loadReleases(l *lab, _ []string) error {
	if _, err := l.running(); err != nil {
		return err
	}
	if err := l.build([]string{"etcd"}); err != nil {
		return err
	}
	var tars []string
	for _, version := range etcdVersions {
		image := l.etcdImage(version)
		if _, err := l.buildImage(image); err != nil {
			return err
		}
		tars = append(tars, l.tarOf(image))
	}
	return l.loadOn(tars...)
}

// loadOn loads on every node that has power.
func (l *lab) loadOn(tars ...string) error {
	return each(l.allNodes(), func(n node) error {
		if !n.poweredOn() {
			fmt.Fprintf(os.Stderr, "%s has no power: not loaded there\n", n)
			return nil
		}
		return n.load(tars...)
	})
}

func ps(l *lab, _ []string) error {
	if _, err := l.running(); err != nil {
		return err
	}
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	fmt.Printf("%-6s %-26s %8s %9s %9s\n", "node", "process", "pid", "RSS MiB", "PSS MiB")
	for _, n := range l.allNodes() {
		for _, name := range n.processNames() {
			p := n.process(name)
			if !p.alive() {
				fmt.Printf("%-6s %-26s %8s\n", n, name, "ended")
				continue
			}
			fmt.Printf("%-6s %-26s %8d %9.1f %9.1f\n", n, name, p.PID,
				kilobytes(p.PID, "status", "VmRSS:")/1024, kilobytes(p.PID, "smaps_rollup", "Pss:")/1024)
		}
		state := fmt.Sprintf("all, with pods and page cache: %d MiB", groups.memory(n.group())>>20)
		if !n.poweredOn() {
			state = "powered off"
		}
		fmt.Printf("%-6s %s\n", n, state)
	}
	return nil
}

func kilobytes(pid int, file, key string) float64 {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == key {
			n, _ := strconv.ParseFloat(fields[1], 64)
			return n
		}
	}
	return 0
}
