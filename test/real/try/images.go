package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// images are the programs behind the names of etcd's images. One release is linked into this program; others are
// those that the lab has built (make etcd-binaries), or are built from source when a pod asks for one, as an image is
// pulled.
type images struct {
	logs string
	poke func()

	keeper *keeper
	lock   sync.Mutex
	pulls  map[string]*pull
}

type pull struct {
	done bool
	err  error
}

func versionOf(image string) string {
	_, tag, _ := strings.Cut(image, ":v")
	return tag
}

// built is the lab's program of a release; false when there is none.
func built(release, name string) (string, bool) {
	path := filepath.Join(lab(), "bin", "etcd-"+release, name)
	_, err := os.Stat(path)
	return path, err == nil
}

// lab is where test/real/lab puts what it builds.
func lab() string {
	if dir, err := filepath.Abs(os.Getenv("QUORATE_LAB")); err == nil && os.Getenv("QUORATE_LAB") != "" {
		return dir
	}
	dir := os.Getenv("XDG_CACHE_HOME")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".cache")
	}
	return filepath.Join(dir, "quorate-lab")
}

// command runs etcd of an image. While there is none, it says why in Kubernetes' word and in a sentence.
func (i *images) command(image string, args []string) (cmd *exec.Cmd, reason, message string) {
	release := versionOf(image)
	if release == version.Version {
		return self(append([]string{"etcd"}, args...)...), "", ""
	}
	if path, there := built(release, "etcd"); there {
		cmd := exec.Command(path, args...)
		cmd.SysProcAttr = self().SysProcAttr
		return cmd, "", ""
	}
	i.lock.Lock()
	defer i.lock.Unlock()
	p := i.pulls[release]
	switch {
	case p == nil:
		i.pulls[release] = &pull{}
		go i.build(release)
	case p.done && p.err != nil:
		return nil, kubelet.NoImage, p.err.Error()
	}
	return nil, "ContainerCreating", fmt.Sprintf("etcd %s is being built from source, which takes a minute or two",
		release)
}

func (i *images) build(release string) {
	log := filepath.Join(i.logs, "build-etcd-"+release+".log")
	cmd := exec.Command("go", "run", "-C", "test/real/lab", ".", "build", "etcd-"+release)
	cmd.SysProcAttr = self().SysProcAttr
	p, err := start(cmd, log, i.keeper, func() {})
	if err == nil {
		<-p.ended
	}
	if err != nil || p.code() != 0 {
		err = fmt.Errorf("etcd %s can't be built here (%s says why); %s is linked in", release, log, version.Version)
	}
	i.lock.Lock()
	i.pulls[release] = &pull{done: true, err: err}
	i.lock.Unlock()
	i.poke()
}
