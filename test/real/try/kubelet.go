package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// runner is the kubelet: it runs the pods of the world as processes: their init container prepare and their etcd, with
// the flags and the environment that the pods say. Only what a container's own file system and network are is put in:
// folders for the places of volumes, ports of 127.0.0.1 for those that it listens on.
type runner struct {
	world  *world.World
	vault  vault
	dir    string
	net    *network
	keeper *keeper
	images *images
	poke   func()
	nodes  map[types.UID]*podRun
}

// podRun is a pod on its node.
type podRun struct {
	name, dir  string
	files      map[string][]byte
	containers map[string]*container
	ending     bool
}

// Places of a kubelet.
func (k *runner) volumes() string { return filepath.Join(k.dir, "volumes") }
func (k *runner) logs() string    { return filepath.Join(k.dir, "logs") }

// pass does what there is to do.
func (k *runner) pass() {
	for _, pod := range k.world.Pods() {
		run := k.nodes[pod.UID]
		if run == nil {
			run = &podRun{name: pod.Name, dir: filepath.Join(k.dir, "pods", string(pod.UID)),
				files: map[string][]byte{}, containers: map[string]*container{}}
			k.nodes[pod.UID] = run
		}
		switch {
		case pod.DeletionTimestamp != nil:
			k.end(pod, run)
		case k.world.Schedule(pod):
			k.run(k.world.Pod(pod.Name), run)
		}
	}
	k.clean()
	k.connect()
}

// end stops a pod that was deleted, within its grace period.
func (k *runner) end(pod *corev1.Pod, run *podRun) {
	alive := false
	for _, c := range run.containers {
		if !c.process.runs() {
			continue
		}
		alive = true
		if !run.ending {
			c.process.signal(syscall.SIGTERM)
		} else if time.Now().After(pod.DeletionTimestamp.Time) {
			c.process.signal(syscall.SIGKILL)
		}
	}
	run.ending = true
	if !alive {
		k.world.KillPod(pod.Name)
	}
}

// clean takes away what is left of pods and claims that are gone.
func (k *runner) clean() {
	alive := map[string]bool{}
	for _, pod := range k.world.Pods() {
		alive[string(pod.UID)] = true
	}
	for uid, run := range k.nodes {
		if alive[string(uid)] {
			continue
		}
		ended := true
		for _, c := range run.containers {
			c.process.signal(syscall.SIGKILL)
			ended = ended && !c.process.runs()
		}
		if ended {
			_ = os.RemoveAll(run.dir)
			delete(k.nodes, uid)
			delete(k.world.Procs, uid)
		}
	}
	for _, claim := range k.world.Claims() {
		alive[string(claim.UID)] = true
	}
	entries, _ := os.ReadDir(k.volumes())
	for _, e := range entries {
		if !alive[e.Name()] {
			_ = os.RemoveAll(filepath.Join(k.volumes(), e.Name()))
		}
	}
}

// connect tells the network where pods are.
func (k *runner) connect() {
	ports, ready := map[string]int{}, []int{}
	selector := k.clients()
	for _, pod := range k.world.Pods() {
		run := k.nodes[pod.UID]
		if run == nil || run.containers[objects.ContainerEtcd] == nil {
			continue
		}
		etcd := run.containers[objects.ContainerEtcd]
		for _, host := range []string{pod.Status.PodIP, hostOf(pod.Spec.Hostname, pod.Spec.Subdomain, pod.Namespace)} {
			for port, here := range etcd.ports {
				ports[fmt.Sprintf("%s:%d", host, port)] = here
			}
		}
		if etcd.process.runs() && etcd.ready.Load() && selector.Matches(labels.Set(pod.Labels)) {
			ready = append(ready, etcd.ports[objects.ClientPort])
		}
	}
	k.net.set(ports, ready)
}

// clients selects the pods behind the Service for clients.
func (k *runner) clients() labels.Selector {
	c := k.world.Cluster()
	for _, o := range k.world.OfKind(world.ServiceKind) {
		if s, is := o.(*corev1.Service); is && c != nil && s.Name == objects.ClientService(c.Name) {
			return labels.SelectorFromSet(s.Spec.Selector)
		}
	}
	return labels.Nothing()
}

// run brings a pod's containers as far as they come, and reports them.
func (k *runner) run(pod *corev1.Pod, run *podRun) {
	lacks := k.mount(pod, run)
	ready, all := lacks == "", []corev1.ContainerStatus(nil)
	for i := range pod.Spec.InitContainers {
		c := run.container(&pod.Spec.InitContainers[i])
		if ready {
			k.initialise(pod, run, c)
		}
		ready = ready && c.done
		all = append(all, c.status(lacks))
	}
	etcd := run.container(&pod.Spec.Containers[0])
	if ready {
		k.keepRunning(pod, run, etcd)
	}
	status := *pod.Status.DeepCopy()
	status.InitContainerStatuses, status.ContainerStatuses = all, []corev1.ContainerStatus{etcd.status("")}
	status.Phase = kubelet.Phase(status.ContainerStatuses[0])
	status.Conditions = kubelet.Ready(status.Conditions, etcd.process.runs() && etcd.ready.Load(), seconds(time.Now()))
	k.world.Report(pod.Name, status)
	if etcd.process.runs() {
		k.world.Procs[pod.UID] = world.Proc{Pod: pod.Name, Since: etcd.process.began, Image: etcd.image}
	} else {
		delete(k.world.Procs, pod.UID)
	}
}

// mount makes the pod's volumes, with what is in them. It returns the Secret that it waits for, before the pod has
// begun.
func (k *runner) mount(pod *corev1.Pod, run *podRun) (lacks string) {
	for _, v := range pod.Spec.Volumes {
		dir := k.folder(pod, run, &v)
		if os.MkdirAll(dir, 0o700) != nil || v.Projected == nil {
			if v.DownwardAPI != nil {
				for _, item := range v.DownwardAPI.Items {
					run.write(filepath.Join(dir, item.Path), []byte(kubelet.Field(pod, item.FieldRef)))
				}
			}
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret == nil {
				continue
			}
			data := k.vault[s.Secret.Name]
			for _, item := range s.Secret.Items {
				if k.world.Secret(s.Secret.Name) == nil || data[item.Key] == nil {
					lacks = cmp.Or(lacks, s.Secret.Name)
					continue
				}
				run.write(filepath.Join(dir, item.Path), data[item.Key])
			}
		}
	}
	if etcd := run.containers[objects.ContainerEtcd]; etcd != nil && etcd.id != "" {
		return "" // one that has begun keeps what it has
	}
	return lacks
}

// write puts a file into a volume, when it is new.
func (r *podRun) write(path string, content []byte) {
	if had, is := r.files[path]; is && bytes.Equal(had, content) {
		return
	}
	_ = os.MkdirAll(filepath.Dir(path), 0o700)
	if os.WriteFile(path+".new", content, 0o600) == nil && os.Rename(path+".new", path) == nil {
		r.files[path] = content
	}
}

// folder is where a volume of a pod is.
func (k *runner) folder(pod *corev1.Pod, run *podRun, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		if claim := k.world.Claim(v.PersistentVolumeClaim.ClaimName); claim != nil {
			return filepath.Join(k.volumes(), string(claim.UID))
		}
	case v.HostPath != nil:
		return filepath.Join(k.dir, "nodes", pod.Spec.NodeName, v.HostPath.Path)
	}
	return filepath.Join(run.dir, v.Name)
}

// places replaces the paths and ports of the inside of a container by those outside.
func (k *runner) places(pod *corev1.Pod, run *podRun, spec *corev1.Container, ports map[int]int) *strings.Replacer {
	var pairs []string
	mounts := slices.Clone(spec.VolumeMounts)
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return len(b.MountPath) - len(a.MountPath) })
	for _, m := range mounts {
		for i := range pod.Spec.Volumes {
			if pod.Spec.Volumes[i].Name == m.Name {
				pairs = append(pairs, m.MountPath, filepath.Join(k.folder(pod, run, &pod.Spec.Volumes[i]), m.SubPath))
			}
		}
	}
	for port, here := range ports {
		pairs = append(pairs, fmt.Sprintf("0.0.0.0:%d", port), fmt.Sprintf("127.0.0.1:%d", here))
	}
	return strings.NewReplacer(pairs...)
}

// line is the command line and the environment of a container, as they are here.
func (k *runner) line(pod *corev1.Pod, run *podRun, spec *corev1.Container, ports map[int]int) (args, environ []string,
	err error) {
	env, find, err := k.world.Environment(pod, spec.Env)
	if err != nil {
		return nil, nil, err
	}
	places := k.places(pod, run, spec, ports)
	environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + run.dir,
		"HTTP_PROXY=http://" + k.net.proxy.Addr().String(), "HTTPS_PROXY=http://" + k.net.proxy.Addr().String()}
	for name, value := range env {
		environ = append(environ, name+"="+places.Replace(value))
	}
	for _, arg := range kubelet.CommandLine(spec, find) {
		args = append(args, places.Replace(arg))
	}
	return args, environ, nil
}

// initialise runs an init container until it has ended well. Only prepare is run here.
func (k *runner) initialise(pod *corev1.Pod, run *podRun, c *container) {
	if c.done || c.process.runs() || !c.ended() {
		return
	}
	args, environ, err := k.line(pod, run, c.spec, nil)
	switch {
	case err != nil:
		c.wait("CreateContainerConfigError", err.Error())
	case c.spec.Name != objects.ContainerPrepare:
		c.wait("CreateContainerError", fmt.Sprintf("here are no stores and no other disks, so the container %s is "+
			"not run", c.spec.Name))
	default:
		cmd := self(args...)
		k.begin(run, c, cmd, environ)
	}
}

// keepRunning keeps etcd running, from the image that its pod names.
func (k *runner) keepRunning(pod *corev1.Pod, run *podRun, c *container) {
	if c.spec.Name != objects.ContainerEtcd {
		c.wait("CreateContainerError", "the container "+c.spec.Name+" is not run here")
		return
	}
	if c.process.runs() {
		if c.image != c.spec.Image && !c.exchanged {
			c.exchanged = true
			c.process.signal(syscall.SIGTERM)
		}
		return
	}
	if !c.ended() {
		return
	}
	ports := map[int]int{}
	for _, p := range c.spec.Ports {
		port, err := freePort()
		if err != nil {
			c.wait("CreateContainerError", err.Error())
			return
		}
		ports[int(p.ContainerPort)] = port
	}
	args, environ, err := k.line(pod, run, c.spec, ports)
	if err != nil {
		c.wait("CreateContainerConfigError", err.Error())
		return
	}
	cmd, reason, message := k.images.command(c.spec.Image, args[1:])
	if cmd == nil {
		c.wait(reason, message)
		return
	}
	c.ports = ports
	k.connect() // its peers look for it as soon as it runs
	k.begin(run, c, cmd, environ)
	if c.process.runs() {
		go c.probe(c.process, c.spec.ReadinessProbe, ports[objects.MetricsPort], k.poke)
	}
}

func (k *runner) begin(run *podRun, c *container, cmd *exec.Cmd, environ []string) {
	cmd.Env, cmd.Dir = environ, run.dir
	p, err := start(cmd, filepath.Join(k.logs(), run.name+"."+c.spec.Name+".log"), k.keeper, k.poke)
	if err != nil {
		c.wait("RunContainerError", err.Error())
		return
	}
	c.begun(p)
}
