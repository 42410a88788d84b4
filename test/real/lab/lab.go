package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// lab is one lab: what it is called and where its files are. All of it comes
// from the environment, so that a second lab can run beside the first.
type lab struct {
	name    string // names its cgroups
	nodes   int    // how many were asked for; 0 when the caller did not say
	apiPort int    // of the API server, on the host's 127.0.0.1
	families

	// etcdServers are the URLs at which the API server keeps its data; none for those of the lab's own etcd.
	etcdServers []string

	source string // this folder: src/ holds the module folders
	bin    string
	images string
	logs   string
	run    string // everything that a running lab writes
}

func newLab() (*lab, error) {
	state, err := stateFolder()
	if err != nil {
		return nil, err
	}
	l := &lab{
		name:   envOr("QUORATE_LAB_NAME", "quorate-lab"),
		source: sourceFolder(),
		bin:    filepath.Join(state, "bin"),
		images: filepath.Join(state, "images"),
		logs:   filepath.Join(state, "logs"),
	}
	if l.run, err = filepath.Abs(envOr("QUORATE_LAB_RUN", filepath.Join(state, "run"))); err != nil {
		return nil, err
	}
	if l.apiPort, err = envNumber("QUORATE_LAB_API_PORT", 6443, 1, 65535); err != nil {
		return nil, err
	}
	if l.families, err = parseFamilies(envOr("QUORATE_LAB_IP", string(v4))); err != nil {
		return nil, err
	}
	if l.nodes, err = envNumber("NODES", 0, 1, maxNodes); err != nil {
		return nil, err
	}
	// What the lab starts finds the lab's own binaries before the machine's.
	return l, os.Setenv("PATH", l.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// stateFolder is where everything built is kept: outside the repository, since
// it is gigabytes, and in a cache folder, since it can be built again.
func stateFolder() (string, error) {
	if dir := os.Getenv("QUORATE_LAB"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "quorate-lab"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the lab's files: %w; set QUORATE_LAB", err)
	}
	return filepath.Join(home, ".cache", "quorate-lab"), nil
}

// source is this folder, where the build tells it: one with -trimpath does not know.
var source string

// sourceFolder is the folder of this file: that of the clone in which the program lies, the one that the linker was
// told, or for `go run` and tests the one they run in. The module folders cannot be embedded: go:embed leaves out any
// folder with a go.mod.
func sourceFolder() string {
	if program, err := os.Executable(); err == nil { // bin/lab of a clone
		beside := filepath.Join(filepath.Dir(program), "..", "test", "real", "lab")
		if _, err := os.Stat(filepath.Join(beside, "src")); err == nil {
			return beside
		}
	}
	if source != "" {
		return source
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return "."
	}
	return here
}

func (l *lab) kubeconfig() string { return filepath.Join(l.run, "kubeconfig") }

// kinds is where kubectl keeps which kinds there are. At home it keeps them by address, and every lab has the same one:
// it would take the kinds of the lab before for ours.
func (l *lab) kinds() string { return filepath.Join(l.run, "kubectl-cache") }

// admin prepares kubectl, as administrator from the host.
func (l *lab) admin(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(l.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.kubeconfig(), "KUBECACHEDIR="+l.kinds())
	return cmd
}

func (l *lab) pki(name string) string {
	return filepath.Join(l.run, "pki", name)
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func envNumber(name string, otherwise, least, most int) (int, error) {
	v := os.Getenv(name)
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%s: must be a number from %d to %d", name, v, least, most)
	}
	return n, nil
}
